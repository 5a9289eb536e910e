"""Every reference of the suite `core`, run once on the CPU and once without data at the GPU's sizes."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from kernelgym_env.tasks import Task, core, load_task, load_tasks

torch = pytest.importorskip("torch")

IDS = core.IDS
# Relative difference (root mean square, against the output's) from which on a wrong answer is clearly one.
CLEAR = 0.1


def namespace(task: Task) -> dict:
    space: dict = {"__name__": "reference"}
    exec(compile(task.source, task.id, "exec"), space)
    return space


def leaves(output) -> list:
    if isinstance(output, torch.Tensor):
        return [output]
    return [leaf for part in (output.values() if isinstance(output, dict) else output) for leaf in leaves(part)]


def call(space: dict, inputs_seed: int, weights_seed: int = 0, dtype=None):
    """Inputs as they were, inputs after the call, outputs, seconds."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(weights_seed)
        model = space["Model"](*space["get_init_inputs"]())
        torch.manual_seed(inputs_seed)
        inputs = space["get_inputs"]()
        if dtype is not None:
            model = model.to(dtype)
            inputs = [value.to(dtype) if value.is_floating_point() else value for value in inputs]
        before = [value.clone() for value in inputs]
        start = time.perf_counter()
        output = model(*inputs)
        seconds = time.perf_counter() - start
        return before, inputs, leaves(output), seconds


def difference(answer, expected) -> float:
    answer, expected = answer.double(), expected.double()
    return float((answer - expected).square().mean().sqrt() / expected.square().mean().sqrt())


@pytest.mark.parametrize("task_id", IDS)
def test_reference_is_sound_on_the_cpu(task_id):
    task = load_task(task_id)
    space = namespace(task.for_device("cpu"))
    before, after, expected, seconds = call(space, 1)
    _, _, again, seconds_again = call(space, 1)
    _, _, other, _ = call(space, 2)
    _, _, reweighted, _ = call(space, 1, weights_seed=1)
    assert min(seconds, seconds_again) < 1.0

    for leaf, same in zip(expected, again, strict=True):
        assert torch.isfinite(leaf.double()).all()
        assert torch.equal(leaf, same)
    changed = [not torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    assert any(changed) == ("in-place" in task.tags)

    for leaf, elsewhere in zip(expected, other, strict=True):
        assert difference(elsewhere, leaf) > CLEAR, "another input gives nearly the same"
        assert difference(torch.zeros_like(leaf), leaf) > CLEAR
        if leaf.numel() > 1:
            assert difference(torch.full_like(leaf.double(), leaf.double().mean()), leaf) > CLEAR
        for value in before:
            if value.shape == leaf.shape:
                assert difference(value, leaf) > CLEAR, "the input itself is nearly right"
    weights_matter = max(difference(new, old) for new, old in zip(reweighted, expected, strict=True)) > CLEAR
    assert weights_matter == ("weights" in task.tags or bool(list_parameters(space)))


def list_parameters(space: dict) -> list:
    return list(space["Model"](*space["get_init_inputs"]()).parameters())


@pytest.mark.parametrize("task_id", IDS)
def test_reference_runs_in_float64(task_id):
    """An oracle of higher precision exists: nothing in a reference forces a dtype."""
    task = load_task(task_id)
    space = namespace(task.for_device("cpu"))
    before, _, expected, _ = call(space, 1)
    _, _, exact, _ = call(space, 1, dtype=torch.float64)
    half = any(value.dtype in (torch.float16, torch.bfloat16) for value in before)
    for leaf, oracle in zip(expected, exact, strict=True):
        if leaf.is_floating_point():
            assert oracle.dtype == torch.float64
            assert difference(leaf, oracle) < (2e-2 if half else 1e-5)
        else:
            assert torch.equal(leaf, oracle)


@pytest.mark.parametrize("task_id", IDS)
def test_gpu_sizes_fit_the_memory(task_id):
    """At the sizes for a GPU, inputs, weights and outputs have between 4 MiB and 2 GiB together."""
    space = namespace(load_task(task_id).for_device("cuda"))
    with torch.device("meta"), torch.no_grad():
        model = space["Model"](*space["get_init_inputs"]())
        inputs = space["get_inputs"]()
        output = leaves(model(*inputs))
    tensors = [*inputs, *model.parameters(), *output]
    size = sum(value.numel() * value.element_size() for value in tensors)
    assert 2**22 <= size <= 2**31


def test_index():
    tasks = load_tasks("core")
    assert len(tasks) >= 26
    assert {task.level for task in tasks} == {1, 2, 3}
    stems = {path.stem for path in (Path(core.__file__).parent / "references").glob("*.py")}
    assert stems == {entry.file for entry in core.INDEX}
    for task in tasks:
        assert task.title and task.description.endswith(".") and task.origin and task.licence
        assert set(task.sizes) == {"cpu", "cuda"}
        assert task.for_device("cuda").source == task.source
        assert all(math.log2(task.sizes["cuda"][name] / size) >= 0 for name, size in task.sizes["cpu"].items()), (
            "a CPU size is greater than the GPU's"
        )
        assert task.source.startswith('"""')
    assert load_task("KernelGym/ElementwiseChain").tags
