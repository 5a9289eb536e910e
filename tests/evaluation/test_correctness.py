import math

import pytest
import torch

from kernelgym_env.evaluation.correctness import Expected, compare, compare_all
from kernelgym_env.evaluation.protocols import Allclose, get_protocol

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


# a published tolerance in place of the oracle


def allclose(atol, rtol, half=None):
    return STRICT.replace(allclose=Allclose(atol, rtol, half))


def off_by(reference, error):
    """The reference with one element off."""
    got = reference.clone()
    got.view(-1)[1] += error
    return got


@pytest.mark.parametrize(
    ("atol", "rtol", "error", "ok"),
    [
        # the element is 4: the limit is atol + 4 * rtol, and it belongs to what is allowed
        (0.5, 0.0, 0.5, True),
        (0.5, 0.0, 0.5078125, False),
        (0.0, 0.125, 0.5, True),
        (0.0, 0.125, -0.5, True),
        (0.0, 0.125, 0.5078125, False),
        (0.25, 0.0625, 0.5, True),
        (0.25, 0.0625, -0.5078125, False),
        (0.0, 0.0, 0.0, True),
        (0.0, 0.0, 2.0**-21, False),
    ],
)
def test_edges_of_allclose(atol, rtol, error, ok):
    reference = torch.tensor([[1.0, 4.0], [-2.0, 0.0]])
    got = off_by(reference, error)
    want = Expected.of("output", reference, reference.double())
    assert compare(got, want, allclose(atol, rtol)).ok is ok
    assert torch.allclose(got, reference, atol=atol, rtol=rtol) is ok


def test_allclose_compares_with_the_reference_and_the_ratio_with_the_oracle():
    exact = torch.linspace(1, 2, 64, dtype=torch.float64)
    reference = (exact + 0.05).float()  # a reference that is off, as in TF32
    want = Expected.of("output", reference, exact)
    verdict = compare(reference, want, allclose(0.0, 0.0))
    assert verdict.ok
    assert verdict.ratio == pytest.approx(1 / 8, rel=1e-2)
    assert verdict.ratio == compare(reference, want, STRICT).ratio
    assert not compare(exact.float(), want, allclose(1e-2, 1e-2)).ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_has_a_tolerance_of_its_own(dtype):
    reference = torch.full((8,), 1.0, dtype=dtype)
    got = off_by(reference, 2**-6)
    want = Expected.of("output", reference, None)
    assert not compare(got, want, allclose(1e-4, 1e-4)).ok
    assert compare(got, want, allclose(1e-4, 1e-4, half=(1e-2, 1e-2))).ok
    single = Expected.of("output", reference.float(), None)
    assert not compare(got.float(), single, allclose(1e-4, 1e-4, half=(1e-2, 1e-2))).ok


def test_no_tolerance_covers_special_values_or_integers():
    loose = allclose(1e9, 1e9)
    reference = torch.tensor([1.0, math.nan, math.inf])
    want = Expected.of("output", reference, reference.double())
    assert compare(reference.clone(), want, loose).ok
    for other in ([1.0, 0.0, math.inf], [1.0, math.nan, -math.inf], [math.nan, math.nan, math.inf]):
        verdict = compare(torch.tensor(other), want, loose)
        assert not verdict.ok
        assert math.isinf(verdict.ratio)
    assert not compare(torch.tensor([3]), Expected.of("output", torch.tensor([2]), None), loose).ok


def test_a_message_says_which_tolerance():
    reference = torch.full((10,), 3.14159)
    verdict = compare(off_by(reference, 0.5), Expected.of("output", reference, None), allclose(1e-2, 1e-3))
    assert "10.00% of the float32 elements are off by more than the tolerance (absolute 0.01, relative 0.001)" in (
        verdict.message
    )
    assert "3.14" not in verdict.message


# what a wrong float32 output looks like


def test_lower_precision_is_named(product):
    a, b = product
    want = Expected.of("output", a @ b, a.double() @ b.double())
    tf32 = lambda t: (t.view(torch.int32) & ~0x1FFF).view(torch.float32)  # noqa: E731
    half = lambda t: t.half().float()  # noqa: E731
    for cut in (tf32, half, lambda t: t.bfloat16().float()):
        assert "look like TF32 or half-precision maths" in compare(cut(a) @ cut(b), want, STRICT).message
    assert "look like TF32" in compare(tf32(a) @ tf32(b), want, allclose(1e-4, 1e-4)).message
    rounded = compare((a @ b).bfloat16().float(), want, STRICT).message
    assert "All of its values are bfloat16 numbers: keep it in float32." in rounded
    assert "float16 numbers" in compare((a @ b).half().float(), want, STRICT).message


def test_other_errors_are_not_named_so(product):
    a, b = product
    good = a @ b
    want = Expected.of("output", good, a.double() @ b.double())
    one = good.clone()
    one[0, 0] += 0.1
    for wrong in (one, good * 1.1, torch.zeros_like(good), good[torch.randperm(len(good))]):
        message = compare(wrong, want, STRICT).message
        assert message
        assert "maths" not in message
        assert "numbers" not in message
    half = Expected.of("output", good.half(), a.double() @ b.double())
    assert "maths" not in compare((good * 1.05).half(), half, STRICT).message
