import pytest
import torch

from kernelgym_env.evaluation.denied import GEMM, SMALL, Denied, computes

BIG = torch.ones(SMALL + 1)
TINY = torch.ones(SMALL)


def used(call, **options):
    mode = Denied(refuse=False, **options)
    with mode:
        call()
    return list(mode.found)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: BIG.relu(), "relu"),
        (lambda: BIG + 1, "add"),
        (lambda: BIG.sum(), "sum"),
        (lambda: BIG.sort(), "sort"),
        (lambda: torch.arange(SMALL + 1), "arange"),
        (lambda: torch.rand(SMALL + 1), "rand"),
        (lambda: BIG.add_(0), "add_"),
        (lambda: BIG.view(-1, 5).mm(torch.ones(5, 9)), "mm"),
    ],
)
def test_operators_that_compute_are_found(call, name):
    assert used(call) == [name]


@pytest.mark.parametrize(
    "call",
    [
        lambda: TINY.relu(),
        lambda: torch.empty_like(BIG).fill_(2),
        lambda: BIG.double().clone().view(5, -1).t().contiguous(),
        lambda: torch.cat([BIG, BIG]),
        lambda: torch.nn.functional.pad(BIG, (1, 1)),
        lambda: BIG[3].item(),
        lambda: torch.zeros(5000)[None].expand(4, -1).unbind(),
    ],
)
def test_bookkeeping_is_not(call):
    assert used(call) == []


def test_a_denied_operator_raises_and_is_noted_once():
    mode = Denied()
    with mode:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="relu is not available"):
                BIG.relu()
    assert list(mode.found) == ["relu"]


def test_what_is_allowed_runs():
    mode = Denied(GEMM)
    with mode:
        BIG.view(-1, 5).mm(torch.ones(5, 9))
    assert list(mode.found) == []


def test_operators_of_a_submission_s_own_library_do_not_count():
    assert not computes("scan", "my_kernels", (BIG,), BIG)
    assert computes("relu", "aten", (BIG,), BIG)
