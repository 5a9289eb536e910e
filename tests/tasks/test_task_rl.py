"""The suite `rl`: its references as tasks, and what its draws hold. Conventions are tested in test_rl_conventions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import pytest

import kernelgym_env  # registers the environments
from kernelgym_env.cli import main
from kernelgym_env.errors import UnknownNameError
from kernelgym_env.evaluation.correctness import Expected, compare
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.reference import Case, Reference
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.tasks import load_task, load_tasks, rl

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
STRICT = get_protocol("strict")
WITH_GRADIENT = [task_id for task_id in rl.IDS if "gradient" in rl.load(task_id).tags]


def reference(task_id: str) -> Reference:
    found = Reference(load_task(task_id).for_device("cpu"), "cpu", 5, STRICT)
    found.construct()
    return found


def expected(found: Reference, seed: int) -> Case:
    found.probe(seed)
    case = found.case(seed + 1)
    found.expect(case)
    return case


def passes(answer, wanted: Expected) -> bool:
    return compare(answer, wanted, STRICT).ok


@pytest.mark.parametrize("task_id", rl.IDS)
def test_reference_is_fit_to_judge_by(task_id: str) -> None:
    """Deterministic, finite, exact in float64, sensitive to its inputs, with no output for nothing; within a second."""
    found = reference(task_id)
    case = expected(found, 3)  # raises for what is not deterministic or has a null answer
    assert not found.mutates
    start = time.perf_counter()
    found.run(case.inputs)
    assert time.perf_counter() - start < 1.0
    again = [wanted.reference for wanted in expected(reference(task_id), 3).expected]
    other = [wanted.reference for wanted in expected(found, 30).expected]
    for wanted, same, elsewhere in zip(case.expected, again, other, strict=True):
        assert torch.equal(wanted.reference, same)
        assert not passes(elsewhere, wanted), "another input gives nearly the same"
        assert not passes(torch.zeros_like(wanted.reference), wanted)
        if wanted.reference.is_floating_point():
            assert torch.isfinite(wanted.reference).all()
            assert wanted.oracle is not None, "the reference has no float64 form"


@pytest.mark.parametrize("task_id", WITH_GRADIENT)
def test_part_of_a_gradient_is_not_enough(task_id: str) -> None:
    """A gradient that lacks a row, or all but the greatest entry of each row, is wrong."""
    gradients = [wanted for wanted in expected(reference(task_id), 1).expected if wanted.reference.dim() > 1]
    assert gradients
    for wanted in gradients:
        rows = wanted.reference.flatten(0, -2)
        sizes = rows.abs().amax(-1)
        # rows without a gradient of note: masked, clipped, or of two policies that agree
        least = (0.1 if rows.dtype == torch.bfloat16 else 1e-3) * sizes.max()
        notable = [row for row in sizes.argsort().tolist() if sizes[row] > least]
        assert len(notable) > 0.3 * len(rows)
        for row in (*notable[:3], notable[-1]):
            without = rows.clone()
            without[row] = 0
            assert not passes(without.view_as(wanted.reference), wanted), row
        greatest = torch.where(rows.abs() == sizes[:, None], rows, 0)
        assert not passes(greatest.view_as(wanted.reference), wanted)
        assert not passes((1.1 * rows).view_as(wanted.reference), wanted)


ZERO_GRADIENT = """

class ModelNew(Model):
    def forward(self, *inputs):
        result = super().forward(*inputs)
        outputs = list(result) if isinstance(result, tuple) else [result]
        for place, output in enumerate(outputs):
            if output.dim() > 1:
                outputs[place] = CHANGED
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]
"""
ALL = "torch.zeros_like(output)"
SOME_ROWS = "torch.cat([torch.zeros_like(output[: len(output) // 3]), output[len(output) // 3 :]])"
NOTHING = "output.clone()"


def verdict(local_pool, task_id: str, changed: str):
    task = load_task(task_id)
    source = task.for_device("cpu").source + ZERO_GRADIENT.replace("CHANGED", changed)
    return local_pool.submit(Submission(task, source, device="cpu", library_ops="allow")).result(timeout=120)


@pytest.mark.parametrize("task_id", ["KernelRL/PpoClipLogits", "KernelRL/ValueLossClip"])
def test_a_gradient_of_zeros_is_wrong(local_pool, task_id: str) -> None:
    quick = {changed: verdict(local_pool, task_id, changed) for changed in (ALL, SOME_ROWS)}
    for changed, evaluation in quick.items():
        assert evaluation.status.value == "wrong", (changed, evaluation.feedback)
        assert "output[" in evaluation.feedback


@pytest.mark.slow
@pytest.mark.parametrize("task_id", WITH_GRADIENT)
def test_every_gradient_of_zeros_is_wrong(local_pool, task_id: str) -> None:
    assert verdict(local_pool, task_id, ALL).status.value == "wrong"
    assert verdict(local_pool, task_id, SOME_ROWS).status.value == "wrong"
    assert verdict(local_pool, task_id, NOTHING).status.value == "correct"


# --- what is drawn


def drawn(task_id: str, seed: int) -> tuple[list, dict]:
    found = reference(task_id)
    return found.draw(seed), found.task.constants()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("task_id", "place", "full"),
    [
        ("GspoLogits", 3, "LENGTH"),
        ("DpoLogits", 2, "LENGTH"),
        ("TopEntropyMask", 1, "LENGTH"),
        ("TurnReturns", 3, "LENGTH"),
        ("GrpoElementwise", 4, "LENGTH"),
        ("RewardToLoss", 5, "LENGTH"),
        ("RewardPipeline", 4, "TURNS"),
    ],
)
def test_lengths_none_one_and_full_in_every_draw(task_id: str, place: int, full: str, seed: int) -> None:
    inputs, sizes = drawn(f"KernelRL/{task_id}", seed)
    lengths = inputs[place].tolist()
    assert {0, 1, sizes[full]} <= set(lengths) and min(lengths) >= 0 and max(lengths) <= sizes[full]


@pytest.mark.parametrize("seed", range(5))
def test_sizes_of_groups_and_sequences(seed: int) -> None:
    for task_id, place, most in (("GroupAdvantage", 1, 32), ("GaeRagged", 2, 900)):
        inputs, _ = drawn(f"KernelRL/{task_id}", seed)
        bounds = inputs[place]
        sizes = bounds.diff().tolist()
        assert {0, 1} <= set(sizes) and min(sizes) >= 0 and max(sizes) <= most
        assert bounds[0] == 0 and bounds[-1] == len(inputs[0])
    lengths = drawn("KernelRL/RlooTrloo", seed)[0][1]
    reached = (lengths > 0).sum(1)
    assert (reached == 0).any() and (reached == 1).any()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("task_id", "place", "axis"),
    [("Gae", 2, 1), ("GaeBig", 2, 0), ("GaeLong", 2, 1), ("Vtrace", 4, 1), ("Retrace", 5, 1), ("GaeTruncated", 3, 1)],
)
def test_ends_at_both_ends_and_rows_without_any(task_id: str, place: int, axis: int, seed: int) -> None:
    inputs, _ = drawn(f"KernelRL/{task_id}", seed)
    done = inputs[place] if axis else inputs[place].T
    after = inputs[4] if task_id == "GaeBig" else done[:, -1]
    assert done[:, 0].any() and after.any() and (~done).all(1).any()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("task_id", "weight"),
    [("PpoClipLogits", 5), ("GrpoKlEntropy", 5), ("CispoLogits", 4), ("FullKl", 2), ("JsdDistill", 2)],
)
def test_rows_of_weight_zero_have_no_gradient(task_id: str, weight: int, seed: int) -> None:
    found = reference(f"KernelRL/{task_id}")
    inputs = found.draw(seed)
    masked = inputs[weight] == 0
    assert 0 < int(masked.sum()) < len(masked)
    outputs = found.run(inputs)
    assert not outputs[-1][masked].any()
    assert outputs[-1][~masked].any()


@pytest.mark.parametrize("seed", range(5))
def test_masks_with_empty_and_full_rows(seed: int) -> None:
    for task_id, place in (("MaskedWhiten", 1), ("ValueLossClip", 3)):
        mask = drawn(f"KernelRL/{task_id}", seed)[0][place]
        assert (~mask).all(1).any() and mask.all(1).any()


@pytest.mark.parametrize("seed", range(5))
def test_ratios_far_beyond_the_clamp(seed: int) -> None:
    inputs, _ = drawn("KernelRL/PpoClipLogits", seed)
    logits, ids, temperature, old_logp, advantage, _ = inputs
    logp = torch.log_softmax(logits.float() / temperature[:, None], -1).gather(1, ids[:, None])[:, 0]
    apart = logp - old_logp
    assert (apart > 20).any() and (apart < -20).any() and (advantage == 0).any()


def test_edge_cases_stand_at_random_places() -> None:
    places = {int((drawn("KernelRL/GrpoElementwise", seed)[0][4] == 0).nonzero()[0]) for seed in range(8)}
    assert len(places) > 2


# --- the suite


def test_index() -> None:
    tasks = load_tasks("rl")
    assert [task.id for task in tasks] == list(rl.IDS)
    assert len(tasks) == 32
    folder = Path(rl.__file__).parent
    files = {entry.file for entry in rl.INDEX}
    assert {path.stem for path in (folder / "references").glob("*.py")} == files
    assert {path.stem for path in (folder / "experts").glob("*.py")} <= files
    for task in tasks:
        assert task.title and task.description.endswith(".") and task.origin and task.licence
        assert set(task.sizes) == {"cpu", "cuda"}
        assert task.for_device("cuda").source == task.source
        assert all(size <= task.sizes["cuda"][name] for name, size in task.sizes["cpu"].items())
        assert task.source.startswith('"""') and "onventions" in task.source


@pytest.mark.parametrize("task_id", rl.IDS)
def test_gpu_sizes_fit_the_memory(task_id: str) -> None:
    """At the sizes for a GPU, inputs, weights and outputs have at most 2 GiB together."""
    space: dict = {"__name__": "reference"}
    exec(compile(load_task(task_id).for_device("cuda").source, task_id, "exec"), space)
    with torch.device("meta"), torch.no_grad():
        model = space["Model"](*space["get_init_inputs"]())
        inputs = space["get_inputs"]()
        output = model(*inputs)
    tensors = [*inputs, *model.parameters(), *(output if isinstance(output, tuple) else [output])]
    assert sum(value.numel() * value.element_size() for value in tensors) <= 2**31


def test_environment_of_a_task() -> None:
    env = gym.make("KernelRL/Gae-v0", device="cpu", pool="fake")
    observation, info = env.reset(seed=0)
    assert info["task_id"] == "KernelRL/Gae"
    assert "Generalised advantages" in observation["prompt"]
    env.close()


def test_listed_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--suite", "rl", "--tag", "scan", "--json"]) == 0
    listed = {task["id"] for task in json.loads(capsys.readouterr().out)["tasks"]}
    assert {"KernelRL/Gae", "KernelRL/TurnReturns", "KernelRL/RewardToLoss"} <= listed
    assert all(task_id.startswith("KernelRL/") for task_id in listed)


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'KernelRL/Gae'"):
        rl.load("KernelRL/Gea")
    with pytest.raises(UnknownNameError, match="Did you mean 'KernelRL/Vtrace'"):
        rl.expert("KernelRL/VTrace")


# --- experts


@pytest.mark.parametrize("task_id", ["KernelRL/GrpoElementwise", "KernelRL/RewardPipeline", "KernelRL/TokenLogp"])
def test_some_experts_are_correct(local_pool, task_id: str) -> None:
    evaluation = local_pool.submit(Submission(load_task(task_id), rl.expert(task_id), device="cpu")).result(timeout=120)
    assert evaluation.credited, evaluation.feedback


@pytest.mark.slow
@pytest.mark.parametrize("task_id", rl.IDS)
def test_every_expert_is_correct(local_pool, task_id: str) -> None:
    source = rl.expert(f"{task_id}-v0")
    assert source is not None
    evaluation = local_pool.submit(Submission(load_task(task_id), source, device="cpu")).result(timeout=240)
    assert evaluation.credited, evaluation.feedback
    assert evaluation.protocol == "strict"


@pytest.mark.slow
def test_experts_compile_for_a_gpu(tmp_path: Path) -> None:
    """For compute capability 9.0, at the GPU's sizes, with no more shared memory than it has; nothing runs."""
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "tasks" / "compile_experts.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert list(report) == list(rl.IDS)
    for task_id, found in report.items():
        assert found["same_form"], task_id
        assert found["shared"] and max(found["shared"].values()) <= 227 * 1024, task_id


def test_the_table_of_the_docs() -> None:
    """It has every task with its sizes, and says of each whether there is an expert."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs" / "rl_suite.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| `KernelRL/")
    ]
    assert [row[0].strip("`") for row in rows] == list(rl.IDS)
    for row, task in zip(rows, load_tasks("rl"), strict=True):
        assert row[1] == ", ".join(f"{name} {size:,}" for name, size in task.sizes["cuda"].items())
        assert row[2] == ", ".join(f"{size:,}" for size in task.sizes["cpu"].values())
        assert row[3] and row[4] == ("yes" if rl.expert(task.id) else "no")


def test_package_root_knows_the_suite() -> None:
    assert kernelgym_env.load_task("KernelRL/Gae-v0") is rl.load("KernelRL/Gae")
