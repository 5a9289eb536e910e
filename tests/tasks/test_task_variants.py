"""Other sizes and types of a task."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.tasks import Task, load_task, load_tasks
from kernelgym_env.tasks.dtypes import DTYPES, with_dtype
from kernelgym_env.tasks.shapes import free_constants, small, unseen_shapes, with_unseen_shapes
from kernelgym_env.tasks.trial import try_task

SOURCE = """import torch
from torch import nn

BATCH = 4096
height = width = 64
GROUPS, CHANNELS = 4, 32 * 2
EPS = 0.5
DIM = 1
LENGTH = BATCH // 2


class Model(nn.Module):
    def __init__(self, groups, channels):
        super(Model, self).__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.register_buffer("table", torch.arange(channels))

    def forward(self, x, where):
        return self.norm(x) + EPS, where.sum(dim=DIM), x > 0


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, height, width), torch.randint(0, LENGTH, (BATCH, 2)), 3][:2]


def get_init_inputs():
    return [GROUPS, CHANNELS]
"""


def made(source=SOURCE, **fields) -> Task:
    return Task("Demo/Norm", source, tags=("norm",), **fields)


def called(task):
    """The outputs of a task's reference, with real numbers."""
    namespace: dict = {}
    exec(task.source, namespace)
    torch.manual_seed(0)
    inputs = namespace["get_inputs"]()
    with torch.no_grad():
        outputs = namespace["Model"](*namespace["get_init_inputs"]())(*inputs)
    return inputs, outputs if isinstance(outputs, (tuple, list)) else [outputs]


# a trial


def test_a_trial_computes_nothing_and_counts():
    before = torch.random.get_rng_state()
    trial = try_task(made())
    assert trial.works and trial.error == ""
    assert trial.shapes == ((4096, 64, 64, 64), (4096, 2))
    image, weights = 4096 * 64**3, 3 * 64
    assert trial.elements == 3 * image + weights + 3 * 4096
    assert try_task(made(), call=False).elements == image + weights + 2 * 4096
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_trial_says_what_is_wrong():
    failed = try_task(made().with_sizes({"GROUPS": 5}))
    assert failed.state == "fails" and "num_channels" in failed.error and not failed.works
    assert try_task(made(SOURCE.replace("super(Model", "supper(Model"))).error.startswith("NameError")
    ends = try_task(made(SOURCE.replace("return self.norm(x)", "raise SystemExit(0) #")))
    assert ends.state == "fails" and ends.error == "SystemExit: 0"


def test_a_trial_of_what_the_meta_device_cannot_run():
    source = SOURCE.replace("return self.norm(x)", "return self.norm(x) * x.sum().item()")
    assert try_task(made(source)).state == "unknown"
    assert try_task(made(source).with_sizes({"BATCH": 4, "height": 4})).works
    assert try_task(made(source).with_sizes({"BATCH": 4, "height": 4, "GROUPS": 5})).state == "fails"


# sizes


def test_free_constants_shape_inputs_and_nothing_else():
    assert free_constants(made()) == ["BATCH", "height"]
    inside = SOURCE.replace("where.sum(dim=DIM)", "where.sum(dim=DIM) + width")
    assert free_constants(made(inside)) == ["BATCH"]
    helper = SOURCE.replace(
        "def get_inputs():", "def shape():\n    return BATCH, CHANNELS, height, width\n\n\ndef get_inputs():"
    )
    assert free_constants(
        made(helper.replace("torch.randn(BATCH, CHANNELS, height, width)", "torch.randn(*shape())"))
    ) == [
        "BATCH",
        "height",
    ]
    assert free_constants(made(SOURCE.replace("[GROUPS, CHANNELS]", "[GROUPS, CHANNELS + 0 * LENGTH]"))) == ["height"]


def test_a_small_task_is_small_and_works():
    task = small(made(sizes={"cpu": {"BATCH": 8}}), elements=1 << 14)
    assert task.id == "Demo/Norm:small" and task.tags == ("norm", "small") and task.sizes == {}
    assert try_task(task).elements <= 1 << 14
    _, outputs = called(task)
    assert torch.isfinite(outputs[0]).all()
    constants = task.constants()
    assert constants["CHANNELS"] == 64 and constants["GROUPS"] == 4  # the free ones suffice
    tiny = small(made(), elements=3200)
    assert tiny.constants()["CHANNELS"] == 16 and tiny.constants()["BATCH"] == 4
    assert called(tiny)[1][0].shape == (4, 16, 4, 4)


def test_a_small_task_that_cannot_be():
    with pytest.raises(InvalidOptionError, match=r"Demo/Norm cannot be made smaller than \d+ elements .* were 10\."):
        small(made(), elements=10)
    with pytest.raises(InvalidOptionError, match="reference of Demo/Norm:small does not work here: .*num_channels"):
        small(made().with_sizes({"GROUPS": 5}))
    with pytest.raises(InvalidOptionError, match="at least 1, got 0"):
        small(made(), elements=0)


def test_unseen_shapes_differ_and_are_no_larger():
    task = made()
    shapes = unseen_shapes(task, 4)
    assert shapes[0] == {"BATCH": 4095, "height": 63} and len(shapes) == 4
    assert shapes == unseen_shapes(task, 4) and shapes[:2] == unseen_shapes(task, 2)
    assert shapes != unseen_shapes(task, 4, seed=1)
    seen = {try_task(task).shapes}
    for shape in shapes:
        trial = try_task(task.with_sizes(shape))
        assert trial.works and trial.shapes not in seen
        assert all(task.constants()[name] // 2 <= value <= task.constants()[name] for name, value in shape.items())
        seen.add(trial.shapes)


def test_unseen_shapes_keep_what_the_reference_asks_for():
    source = SOURCE.replace("return self.norm(x)", "assert x.shape[2] % 8 == 0\n        return self.norm(x)")
    shapes = unseen_shapes(made(source), 5)
    assert len(shapes) == 5 and all(shape.get("height", 64) % 8 == 0 for shape in shapes)
    fixed = source.replace("% 8 == 0", "== 64").replace("(BATCH, 2)", "(7, 2)").replace("randn(BATCH,", "randn(7,")
    assert free_constants(made(fixed)) == ["BATCH", "height"]  # the first bounds values, the second may not change
    assert unseen_shapes(made(fixed)) == ()
    with pytest.raises(InvalidOptionError, match="at least 1, got True"):
        unseen_shapes(made(), True)
    with pytest.raises(InvalidOptionError, match="reference of Demo/Norm does not work"):
        unseen_shapes(made().with_sizes({"GROUPS": 5}))


def test_shapes_are_a_part_of_the_task():
    task = made()
    shaped = with_unseen_shapes(task, 2)
    assert task.shapes == () and len(shaped.shapes) == 2
    copied = json.dumps([sorted(shape.items()) for shape in shaped.shapes])
    assert dataclasses.replace(task, source=task.source + copied).hash != shaped.hash
    assert shaped.source == task.source and shaped.hash != task.hash != with_unseen_shapes(task, 1).hash
    assert [at.constants()["BATCH"] for at in shaped.at_shapes()] == [
        shape.get("BATCH", 4096) for shape in shaped.shapes
    ]
    assert all(at.shapes == () for at in shaped.at_shapes())
    data = json.loads(json.dumps(shaped.to_dict()))
    assert Task.from_dict(data) == shaped and Task.from_dict(data).hash == shaped.hash
    assert hash(shaped) is not None and repr(shaped.shapes) not in repr(shaped)
    assert shaped.for_device("cuda").shapes == shaped.shapes
    assert shaped.with_sizes({"BATCH": 2}).shapes == ()
    assert dataclasses.replace(shaped, sizes={"cpu": {"BATCH": 2}}).for_device("cpu").shapes == ()
    assert made(shapes=[{"BATCH": np.int64(3)}]).shapes == ({"BATCH": 3},)


@pytest.mark.parametrize("shapes", [3, [3], [{}], [{"BATHC": 3}], [{"BATCH": 0.5}], {"BATCH": 3}])
def test_shapes_of_another_form(shapes):
    with pytest.raises(InvalidOptionError, match=r"Demo/Norm"):
        made(shapes=shapes)


def test_rows_of_an_earlier_version_have_no_shapes(tmp_path):
    data = made().to_dict()
    del data["shapes"]
    (tmp_path / "x.jsonl").write_text(json.dumps(data))
    assert load_tasks(tmp_path / "x.jsonl") == [made()]
    shaped = with_unseen_shapes(made(), 1)
    (tmp_path / "y.jsonl").write_text(json.dumps(shaped.to_dict()))
    assert load_tasks(tmp_path / "y.jsonl") == [shaped]


# types


@pytest.mark.parametrize("name", DTYPES)
def test_a_task_in_another_type(name):
    task = made().with_sizes({"BATCH": 2, "height": 4})
    variant = with_dtype(task, name)
    assert variant.id == f"Demo/Norm:{name}" and variant.tags == ("norm", name)
    inputs, outputs = called(variant)
    dtype = getattr(torch, DTYPES[name])
    assert [value.dtype for value in inputs] == [dtype, torch.int64]
    assert [value.dtype for value in outputs] == [dtype, torch.int64, torch.bool]
    namespace: dict = {}
    exec(variant.source, namespace)
    model = namespace["Model"](4, 64)
    assert {value.dtype for value in model.parameters()} == {dtype}
    assert model.table.dtype == torch.int64
    torch.testing.assert_close(outputs[0].float(), called(task)[1][0], atol=0.05, rtol=0.05)
    assert variant.constants() == task.constants()


def test_inputs_inside_others_follow():
    source = SOURCE.replace("forward(self, x, where)", "forward(self, parts, where)").replace(
        "return self.norm(x)", 'x = parts["x"][0]\n        return self.norm(x)'
    )
    nested = source.replace(
        "[torch.randn(BATCH, CHANNELS, height, width), ", '[{"x": (torch.randn(BATCH, CHANNELS), [2])}, '
    )
    (parts, where), outputs = called(with_dtype(made(nested), "bf16"))
    assert parts["x"][0].dtype == torch.bfloat16 and parts["x"][1] == [2] and where.dtype == torch.int64
    assert outputs[0].dtype == torch.bfloat16
    # where no argument holds others the text is short
    assert "def inputs_as" not in with_dtype(made(), "bf16").source


def test_only_the_module_s_own_names_are_changed():
    source = SOURCE.replace(
        "return self.norm(x)", 'self.Model = "Model"; nn.Module.get_inputs = None  # Model\n        return self.norm(x)'
    )
    text = with_dtype(made(source), "fp16").source
    assert 'self.Model = "Model"; nn.Module.get_inputs = None  # Model' in text
    assert "class ModelAsGiven(nn.Module)" in text and "super(ModelAsGiven, self)" in text
    assert "def get_inputs_as_given()" in text


def test_types_that_cannot_be():
    with pytest.raises(UnknownNameError, match="floating-point type 'fp15'. Did you mean 'fp16'"):
        with_dtype(made(), "fp15")
    with pytest.raises(InvalidOptionError, match="is a variant of another task; start there"):
        with_dtype(with_dtype(made(), "fp16"), "bf16")
    picky = SOURCE.replace("return self.norm(x)", "assert x.dtype == torch.float32\n        return self.norm(x)")
    with pytest.raises(InvalidOptionError, match="reference of Demo/Norm does not work in bf16: AssertionError"):
        with_dtype(made(picky), "bf16")
    assert with_dtype(made(picky), "fp32").source.startswith("import torch")
    with pytest.raises(InvalidOptionError, match="import from __future__"):
        with_dtype(made("from __future__ import annotations\n" + SOURCE), "fp16")


# every task


@pytest.mark.parametrize(
    "name", ["KernelGym/RowHistogram", "KernelGym/BandMask", "KernelGym/MeanVariance", "KernelGym/RowArgmax"]
)
def test_integers_booleans_and_several_outputs(name):
    task = load_task(name)
    for variant in (small(task), with_dtype(small(task), "bf16"), *with_unseen_shapes(small(task)).at_shapes()):
        _, outputs = called(variant)
        for value in outputs if not isinstance(outputs, dict) else outputs.values():
            assert torch.isfinite(value.float()).all() or value.dtype == torch.bool


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:input's size at dim=1 does not match num_features")  # a problem's own
@pytest.mark.parametrize("part", ["KernelBench/L1", "KernelBench/L2"])
def test_every_problem_runs_at_small_sizes(shared_data, monkeypatch, part):
    """Also those with integer, boolean and several outputs."""
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    refused = []
    for task in load_tasks(part):
        try:
            tiny = small(task, elements=1 << 21)
        except InvalidOptionError:
            refused.append(task.id)
            continue
        _, outputs = called(tiny)
        assert all(torch.isfinite(value).all() for value in outputs if value.is_floating_point()), task.id
        assert len(unseen_shapes(task)) == 3, task.id
    # its reference asks for two sizes to be equal, one of which is a number inside a tuple
    assert refused == (["KernelBench/L1-100"] if part == "KernelBench/L1" else [])
