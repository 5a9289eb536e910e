import math

import pytest
import torch

from kernelgym_env.evaluation.correctness import Expected, compare, compare_all
from kernelgym_env.evaluation.protocols import get_protocol

STRICT = get_protocol("strict")


def expected(exact: torch.Tensor, dtype: torch.dtype = torch.float32) -> Expected:
    return Expected.of("output", exact.to(dtype), exact)


@pytest.fixture
def product():
    torch.manual_seed(0)
    a, b = torch.randn(256, 512, dtype=torch.float64), torch.randn(512, 192, dtype=torch.float64)
    return a.float(), b.float()


def test_another_summation_order_passes(product):
    a, b = product
    want = Expected.of("output", a @ b, a.double() @ b.double())
    split = a[:, :100] @ b[:100] + a[:, 100:] @ b[100:]
    verdict = compare(split, want, STRICT)
    assert verdict.ok
    assert verdict.ratio < 1


def test_a_sequential_sum_of_16k_terms_passes():
    torch.manual_seed(1)
    x = torch.rand(16, 16_384)
    total = torch.zeros(16)
    for column in range(x.shape[1]):
        total += x[:, column]
    assert compare(total, Expected.of("output", x.sum(-1), x.double().sum(-1)), STRICT).ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_maths_in_an_fp32_task_fails(product, dtype):
    a, b = product
    want = Expected.of("output", a @ b, a.double() @ b.double())
    verdict = compare((a.to(dtype) @ b.to(dtype)).float(), want, STRICT)
    assert not verdict.ok
    assert verdict.ratio > 1
    assert "more than rounding" in verdict.message


def test_tf32_inputs_in_an_fp32_task_fail(product):
    a, b = product
    # TF32 keeps ten mantissa bits of each operand
    cut = lambda t: (t.view(torch.int32) & ~0x1FFF).view(torch.float32)  # noqa: E731
    assert not compare(cut(a) @ cut(b), Expected.of("output", a @ b, a.double() @ b.double()), STRICT).ok


def test_rounding_a_bf16_output_passes_and_a_wrong_one_fails():
    torch.manual_seed(2)
    exact = torch.randn(4096, dtype=torch.float64)
    want = expected(exact, torch.bfloat16)
    assert compare(exact.float().bfloat16(), want, STRICT).ok
    assert not compare((exact * 1.1).bfloat16(), want, STRICT).ok


@pytest.mark.parametrize("null", [lambda x: torch.zeros_like(x), lambda x: x.mean().expand_as(x), lambda x: -x])
def test_null_answers_fail(null):
    torch.manual_seed(3)
    exact = torch.randn(1000, dtype=torch.float64)
    assert not compare(null(exact).float(), expected(exact), STRICT).ok


def test_one_wrong_element_fails():
    exact = torch.linspace(-1, 1, 1000, dtype=torch.float64)
    got = exact.float()
    got[500] += 0.01
    verdict = compare(got, expected(exact), STRICT)
    assert not verdict.ok
    assert "0.10%" in verdict.message


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_special_values_only_where_the_reference_has_them(value):
    exact = torch.ones(10, dtype=torch.float64)
    exact[3] = value
    want = expected(exact)
    assert compare(exact.float(), want, STRICT).ok
    elsewhere = torch.ones(10)
    elsewhere[4] = value
    assert not compare(elsewhere, want, STRICT).ok
    assert not compare(torch.ones(10), want, STRICT).ok
    assert not compare(torch.full((10,), value), want, STRICT).ok


def test_infinity_does_not_cover_a_tensor():
    exact = torch.randn(100, dtype=torch.float64)
    assert not compare(torch.full((100,), math.inf), expected(exact), STRICT).ok


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.uint8])
def test_integers_must_be_equal(dtype):
    reference = torch.tensor([0, 1, 1, 0]).to(dtype)
    want = Expected.of("output", reference, None)
    assert compare(reference.clone(), want, STRICT).ok
    verdict = compare(torch.tensor([0, 1, 0, 0]).to(dtype), want, STRICT)
    assert not verdict.ok
    assert math.isinf(verdict.ratio)
    assert "25.00%" in verdict.message


def test_without_an_oracle_the_reference_is_the_measure():
    reference = torch.linspace(1, 2, 100)
    want = Expected.of("output", reference, None)
    assert compare(reference * (1 + 1e-6), want, STRICT).ok
    assert not compare(reference * (1 + 1e-3), want, STRICT).ok


def test_complex_outputs():
    exact = torch.randn(64, dtype=torch.complex128)
    want = Expected.of("output", exact.to(torch.complex64), exact)
    assert compare(exact.to(torch.complex64), want, STRICT).ok
    assert not compare(exact.conj().resolve_conj().to(torch.complex64), want, STRICT).ok


def test_empty_and_scalar_outputs():
    assert compare(torch.empty(0), expected(torch.empty(0, dtype=torch.float64)), STRICT).ok
    assert compare(torch.tensor(2.0), expected(torch.tensor(2.0, dtype=torch.float64)), STRICT).ok


def test_the_first_wrong_output_is_named():
    good = expected(torch.ones(4, dtype=torch.float64))
    bad = Expected.of("output['loss']", torch.ones(4), torch.ones(4, dtype=torch.float64))
    verdict = compare_all([torch.ones(4), torch.zeros(4)], [good, bad], STRICT)
    assert not verdict.ok
    assert "output['loss']" in verdict.message


def test_messages_hold_no_values():
    exact = torch.full((100,), 0.123456789, dtype=torch.float64)
    verdict = compare(torch.zeros(100), expected(exact), STRICT)
    assert "123456" not in verdict.message
