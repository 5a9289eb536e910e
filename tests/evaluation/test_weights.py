import pytest
import torch
from torch import nn

from kernelgym_env.evaluation.weights import describe_tensors, fingerprint, is_constant, match, redraw, tensors_of


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_parameters_and_statistics_are_found_once():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model.append(model[0])  # tied
    model.register_buffer("mask", torch.ones(3))
    assert set(tensors_of(model)) == {"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"}
    assert tensors_of(lambda x: x) == {}


def test_the_fingerprint_sees_values_and_not_the_shape():
    x = torch.randn(100, 60)
    assert fingerprint(x) == fingerprint(x.reshape(-1)) == fingerprint(x.clone())
    assert fingerprint(x) != fingerprint(x.t().contiguous())
    assert fingerprint(x) != fingerprint(x.double())
    y = x.clone()
    y[0, 0] += 1
    assert fingerprint(x) != fingerprint(y)


def test_matching_by_name_then_by_value():
    torch.manual_seed(0)
    reference = {"a": torch.randn(8), "b": torch.randn(8), "c": torch.ones(4), "d": torch.ones(4)}
    other = nn.Module()
    other.a = nn.Parameter(reference["a"].clone())
    other.renamed = nn.Parameter(reference["b"].reshape(2, 4).clone())
    other.d = nn.Parameter(torch.ones(4))
    other.b = nn.Parameter(torch.randn(8))  # the old name, other values
    assert match(reference, describe_tensors(other)) == {"a": "a", "b": "renamed", "d": "d"}


@pytest.mark.parametrize(
    "report", [None, "x", [3], [{"name": 5}], [{"name": "a", "print": []}], [{"name": "a", "numel": {}}]]
)
def test_a_report_that_is_nonsense_matches_nothing(report):
    assert match({"a": torch.ones(3)}, report) == {}


def test_redrawn_values_keep_their_kind():
    positive = torch.rand(1000) + 0.1
    assert (redraw(positive, generator()) > 0).all()
    assert redraw(torch.zeros(50), generator()).abs().max() > 0
    ones = redraw(torch.ones(1000), generator())
    assert 0.5 <= ones.min() < ones.max() <= 1.5
    signed = torch.randn(10_000)
    new = redraw(signed, generator())
    assert abs((new < 0).float().mean() - (signed < 0).float().mean()) < 0.01
    assert torch.equal(new, redraw(signed, generator()))
    assert not torch.equal(new, redraw(signed, generator(1)))
    assert redraw(torch.randn(4, 5).bfloat16(), generator()).dtype is torch.bfloat16


def test_constants():
    assert is_constant(torch.ones(5, 5))
    assert not is_constant(torch.tensor([1.0, 1.0, 2.0]))
