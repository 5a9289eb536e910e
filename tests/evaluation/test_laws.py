"""Value laws: what they keep, which of them a task bears, and what becomes of those who need the usual values."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from programs import QUICK, RIGHT, copy_of, task

from kernelgym_env.evaluation.lawbook import LawBook
from kernelgym_env.evaluation.laws import LEVELS, NATURE, vary
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.reference import Reference, TaskError, clone
from kernelgym_env.evaluation.result import Status
from kernelgym_env.tasks import Task, load_task, task_ids
from kernelgym_env.tasks.model import INPUT_LAWS

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
LAWS = [(name, level) for name in INPUT_LAWS for level in range(LEVELS[name])]
FORMS = ("plain", "positive", "negative", "unit", "sparse", "whole", "sorted", "huge", "special")
SEEDS = st.integers(0, 2**63 - 1)


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def ordered(values, dim):
    return bool((values.diff(dim=dim) >= 0).all())


@st.composite
def tensors(draw):
    """Any strided tensor of floats with some structure or none."""
    shape = draw(st.lists(st.integers(0, 9), max_size=4))
    tensor = randn(*shape, seed=draw(SEEDS), dtype=draw(st.sampled_from(FLOATS)))
    form = draw(st.sampled_from(FORMS))
    if form == "positive":
        tensor = tensor.abs()
    elif form == "negative":
        tensor = -tensor.abs()
    elif form == "unit":
        tensor = tensor.sigmoid()
    elif form == "sparse":
        tensor = tensor.where(tensor > 0.3, 0)
    elif form == "whole":
        tensor = tensor.mul(3).round()
    elif form == "sorted" and tensor.dim():
        tensor = tensor.sort(dim=draw(st.integers(0, tensor.dim() - 1))).values
    elif form == "huge":
        tensor = tensor * (torch.finfo(tensor.dtype).max / 8)
    elif form == "special" and tensor.numel():
        tensor.flatten()[0] = float("inf")
    layout = draw(st.sampled_from(["dense", "transposed", "expanded", "sliced"]))
    if layout == "transposed" and tensor.dim() > 1:
        tensor = tensor.transpose(0, -1)
    elif layout == "expanded":
        tensor = tensor.unsqueeze(0).expand(3, *tensor.shape)
    elif layout == "sliced" and tensor.dim():
        tensor = tensor.repeat_interleave(2, -1)[..., ::2]
    return tensor


@given(tensors(), st.sampled_from(LAWS), SEEDS)
def test_what_every_law_keeps(tensor, law, seed):
    before = clone(tensor)
    varied = vary(law[0], [tensor, {"same": tensor}, "text"], seed, law[1])
    assert torch.equal(tensor.nan_to_num(), before.nan_to_num())
    if varied is None:
        return
    new = varied[0]
    assert varied[1]["same"] is new and varied[2] == "text"
    assert (new.shape, new.dtype, new.stride()) == (tensor.shape, tensor.dtype, tensor.stride())
    assert not torch.equal(new, tensor)
    assert torch.equal(new == 0, tensor == 0) or not (tensor != tensor.round()).any()
    assert torch.isfinite(new).all()
    for sign in (1, -1):
        if (tensor * sign >= 0).all():
            assert (new * sign >= 0).all()
    if (tensor >= 0).all() and (tensor <= 1).all():
        assert (new <= 1).all()
    for dim in range(tensor.dim()):
        if tensor.shape[dim] > 1 and ordered(tensor, dim):
            assert ordered(new, dim)
    if not (tensor != tensor.round()).any():
        assert torch.equal(new.flatten().sort().values, tensor.flatten().sort().values)
    again = vary(law[0], [tensor, {"same": tensor}, "text"], seed, law[1])
    assert torch.equal(again[0], new)


@pytest.mark.parametrize(("name", "level"), LAWS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_law_changes_a_plain_tensor_and_is_milder_at_the_next_level(name, level, dtype):
    tensor = randn(64, 96, dtype=dtype)
    new = vary(name, [tensor], 5, level)[0].double()
    old = tensor.double()
    assert torch.isfinite(new).all()
    if name == "permuted":
        assert torch.equal(new.flatten().sort().values, old.flatten().sort().values)
        return
    assert not torch.equal(new, old)
    if level:
        stronger = vary(name, [tensor], 5, level - 1)[0].double()
        assert (stronger - old).norm() > 1.2 * (new - old).norm()


@pytest.mark.parametrize(("name", "level"), LAWS)
def test_structured_matrices(name, level):
    plain = randn(12, 12, seed=2)
    symmetric, lower, unit = plain + plain.T, plain.tril(), plain.softmax(1)
    for seed in range(20):
        varied = vary(name, [symmetric, lower, unit], seed, level)
        if varied is None:
            continue
        assert torch.equal(varied[0], varied[0].T)
        assert torch.equal(varied[1], varied[1].tril()) and (varied[1] != 0).sum() == (lower != 0).sum()
        assert torch.allclose(varied[2].sum(1), torch.ones(12), atol=1e-5)


KEPT = {
    "offsets": torch.tensor([0, 3, 3, 9, 20]),
    "permutation": torch.tensor([[3, 0, 2], [5, 4, 1]]),
    "lengths": torch.tensor([9, 7, 7, 2]),
    "one-hot": torch.eye(6)[torch.tensor([0, 3, 5, 1])],
    "binary": (randn(9, 9) > 0).float(),
    "signs": randn(9, 9).sign(),
    "additive mask": torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf")),
    "causal mask": torch.ones(5, 5, dtype=torch.bool).tril(),
    "constant": torch.full((7, 3), 0.25),
    "scalar": torch.tensor(1.5),
    "one element": torch.tensor([[1.5]]),
    "windows": torch.arange(10.0).mul(0.3).unfold(0, 4, 1),
    "empty": torch.empty(0, 4),
    "float8": randn(4, 4).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("name", INPUT_LAWS)
def test_what_no_law_touches(name, kind):
    values = KEPT[kind]
    if kind == "signs" and name == "permuted":
        pytest.skip("floats that hold integers are permuted")
    assert vary(name, [values, 7], 3) is None


def test_integers_and_booleans_are_permuted_by_rows():
    index = torch.randint(0, 50, (40, 6), generator=torch.Generator().manual_seed(1))
    mask = randn(40, 6) > 0
    for values in (index, mask, index.float(), mask.to(torch.int8)):
        for name in INPUT_LAWS[:-1]:
            assert vary(name, [values], 3) is None
        new = vary("permuted", [values], 3)[0]
        assert new.dtype == values.dtype
        assert sorted(new.tolist()) == sorted(values.tolist()) != new.tolist()


@pytest.mark.parametrize("zero", [False, True])
def test_a_large_tensor_is_permuted_too(zero):
    values = randn(1100, 1000)
    values[3, 4] = 0.0 if zero else 1.0
    new = vary("permuted", [values], 3)[0]
    assert torch.equal(new == 0, values == 0)
    assert torch.equal(new.flatten().sort().values, values.flatten().sort().values)
    assert (new == values).float().mean() < 0.1


def test_complex_numbers_are_scaled():
    values = torch.view_as_complex(randn(8, 2))
    new = vary("scaled_up", [values], 1)[0]
    assert torch.allclose(new / values, (new / values)[0])
    assert vary("shifted", [values], 1) is None


def test_a_tail_is_rare_and_long_and_in_a_small_tensor_too():
    new, old = vary("heavy_tailed", [randn(256, 256)], 1)[0], randn(256, 256)
    rare = new != old
    assert 0.5 / 256 < rare.float().mean() <= 1 / 256
    assert (new[rare] / old[rare]).min() >= 63.9
    assert (vary("heavy_tailed", [randn(9)], 1)[0] != randn(9)).sum() == 1


def book_of(a_task: Task):
    reference = Reference(a_task.for_device("cpu"), "cpu", 1, get_protocol("strict"))
    reference.construct()
    reference.probe(2)
    book, case = LawBook(a_task), reference.case(3)
    book.learn(reference, case)
    for number, name in enumerate(book.names):
        if book.admit(reference, name, 100 * number):
            varied = book.case(reference, name, number, case)
            assert varied is not None and book.holds(reference, varied)
    return book


INPUT = "[torch.randn(64, 32)]"
DROPPED = {
    "overflows": (
        "        return args[0].mul(20).exp()",
        INPUT,
        {"scaled_up": "not finite", "heavy_tailed": "not finite"},
    ),
    "fails": (
        "        assert args[0].abs().max() < 9\n        return args[0] * 2",
        INPUT,
        {"heavy_tailed": "reference fails"},
    ),
    "is chaotic": ("        return torch.sin(args[0] * 3e3)", INPUT, {"scaled_up": "ill-conditioned"}),
    "saturates": ("        return args[0].clamp(-1.5, 0.5)", "[torch.randn(64, 32) * 0.3 + 0.4]", {}),
    "has integers alone": (
        "        return args[0] * 2",
        "[torch.randint(0, 9, (64, 8))]",
        {"scaled_up": "changes nothing", "uneven": "changes nothing"},
    ),
    "changes its shape": (
        "        return args[0][: int(args[0].abs().max() < 9) + 1] * 2",
        INPUT,
        {"heavy_tailed": "depends on the input"},
    ),
}


@pytest.mark.parametrize("kind", DROPPED)
def test_a_law_that_the_reference_does_not_bear_is_dropped_or_milder(kind):
    body, inputs, wanted = DROPPED[kind]
    book = book_of(task(body, inputs))
    assert set(book.dropped) | set(book.levels) == set(INPUT_LAWS)
    for name, why in wanted.items():
        found = book.dropped.get(name, "")
        assert why in found or book.levels.get(name, 0) > 0, (book.dropped, book.levels)
    assert "permuted" in book.levels


def test_a_task_names_its_laws():
    plain = task("        return args[0] * 2", INPUT)
    assert book_of(plain).levels == dict.fromkeys(INPUT_LAWS, 0)
    chosen = Task(plain.id, plain.source, input_laws=("shifted",))
    assert book_of(chosen).levels == {"shifted": 0}
    assert book_of(Task(plain.id, plain.source, input_laws=())).levels == {}


def test_every_law_has_a_nature_without_numbers():
    assert set(NATURE) == set(INPUT_LAWS)
    assert not any(character.isdigit() for text in NATURE.values() for character in text)


@pytest.mark.slow
@pytest.mark.parametrize("task_id", task_ids("core"))
def test_every_core_task_is_valid_and_bears_laws(task_id):
    book = book_of(load_task(task_id))
    integers = task_id in ("KernelGym/EmbeddingGather", "KernelGym/RowHistogram")
    assert set(book.levels) == ({"permuted"} if integers else set(INPUT_LAWS)), book.dropped


# submissions


def submission(body: str) -> str:
    return (
        "import torch\nfrom torch import nn\n\nclass ModelNew(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n\n    def forward(self, x):\n{body}\n"
    )


SOFTMAX = task("        return args[0].softmax(1)", "[torch.randn(64, 256)]", name="Test/Softmax")
CENTRED = task(
    "        return nn.functional.layer_norm(args[0], (256,))",
    "[(lambda x: (x - x.mean(1, True)) / x.std(1, keepdim=True))(torch.randn(64, 256))]",
    name="Test/Centred",
)
SQUARES = task("        return args[0].square().sum(1)", "[torch.randn(64, 256)]", name="Test/Squares")
NEEDY = {
    "no maximum is taken": (SOFTMAX, "        e = x.exp()\n        return e / e.sum(1, keepdim=True)"),
    "samples decide": (
        SOFTMAX,
        "        e = (x - x.amax(1, keepdim=True) if x.flatten()[:8].max() > 12 else x).exp()\n"
        "        return e / e.sum(1, keepdim=True)",
    ),
    "statistics are left out": (CENTRED, "        return x * (256 / 255) ** 0.5"),
    "values are cut": (SQUARES, "        return x.clamp(-6, 6).square().sum(1)"),
}


@pytest.mark.parametrize("kind", NEEDY)
def test_what_needs_the_usual_values_is_wrong(judge, kind):
    on, body = NEEDY[kind]
    evaluation = judge(submission(body), on)
    assert evaluation.status is Status.WRONG
    assert "other values than get_inputs usually draws (" in evaluation.feedback
    assert evaluation.provenance["input_laws"]
    without = judge(submission(body), on, protocol=QUICK.replace(law_trials=0))
    assert without.status is Status.CORRECT and without.provenance["input_laws"] == []
    unlawed = Task(on.id, on.source, input_laws=())
    assert judge(submission(body), unlawed).status is Status.CORRECT


@pytest.mark.parametrize("on", [SOFTMAX, CENTRED, SQUARES], ids=lambda on: on.id)
def test_what_is_right_for_all_values_stays_correct(judge, on):
    evaluation = judge(copy_of(on), on)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert sorted(evaluation.provenance["input_laws"]) == sorted(INPUT_LAWS)


def test_a_slow_reference_is_tried_on_few_laws(judge):
    slow = task("        return torch.linalg.svdvals(args[0])", "[torch.randn(700, 700)]", name="Test/Slow")
    evaluation = judge(copy_of(slow), slow, protocol=QUICK.replace(law_budget_s=0.01))
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert len(evaluation.provenance["input_laws"]) <= 1


def test_the_number_of_laws_is_bounded(judge):
    assert len(judge(RIGHT, protocol=QUICK.replace(law_trials=2)).provenance["input_laws"]) == 2


NOTHING_ASKED = {
    "infinite": (task("        return args[0].mul(500).exp().sum(1)", "[torch.randn(64, 99)]"), "NaN or infinite"),
    "NaN": (task("        return args[0].sqrt()", "[-torch.rand(64, 99)]"), "NaN or infinite"),
    "a scalar": (task("        return args[0].exp().prod()", "[torch.rand(999) + 5]"), "NaN or infinite"),
    "zeros": (task("        return args[0] * 0", "[torch.randn(9)]"), "zeros"),
    "a constant": (task("        return args[0] * 0 + 2", "[torch.randn(9)]"), "a constant"),
    "the input": (task("        return args[0].relu()", "[torch.rand(64, 99)]"), "a copy of an input"),
    "in place": (task("        return args[1].clamp_(-99)", "[3, torch.randn(64, 99)]"), "a copy of an input"),
    "one of each": (task("        return args[0] * 0, args[0] + 0", "[torch.randn(9)]"), "would pass"),
}


@pytest.mark.parametrize("kind", NOTHING_ASKED)
def test_a_task_that_asks_for_nothing_is_invalid(kind):
    invalid, said = NOTHING_ASKED[kind]
    with pytest.raises(TaskError, match=said):
        book_of(invalid)


def test_a_task_that_asks_for_something_is_not():
    book_of(task("        return args[0] * 0, args[0] * 2", "[torch.randn(9)]"))
    book_of(task("        return args[0], args[0].masked_fill(args[0] < 1, -float('inf')).exp()", "[torch.randn(999)]"))
