"""The library: its combinations, and that what it renders is right, in C++ and in Triton's interpreter."""

import itertools
import json
import os
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_patterns import CORE, COVERED

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.source import check_format
from kernelgym_env.policies.template import changed
from kernelgym_env.tasks import load_task
from kernelgym_env.templates import BACKENDS, get_template, template_for, templates, templates_for

pytestmark = pytest.mark.slow  # it renders and runs many kernels

NAMES = [template.name for template in templates()]
SOFTMAX = load_task("KernelGym/RowSoftmax")

# Our own sources alone: they run in a process without a sandbox.
CHILD = """
import importlib.util, json, random, sys, warnings
import torch
from kernelgym_env.tasks import load_task
from kernelgym_env.tasks.shapes import small
from kernelgym_env.templates import template_for
warnings.simplefilter("ignore")
torch.set_num_threads(1)
backend, ids, elements, count, folder = json.load(sys.stdin)
rng, failed = random.Random(7), []
for task_id in ids:
    task = load_task(task_id)
    task = small(task.for_device("cpu"), elements=elements)
    names = {}
    exec(compile(task.source, task_id, "exec"), names)
    torch.manual_seed(0)
    init = names["get_init_inputs"]()
    model, inputs = names["Model"](*init), names["get_inputs"]()
    template = template_for(task, backend)
    with torch.no_grad():
        want = model(*inputs)
    for number in range(count):
        choices = template.draw(rng)
        if choices.get("math") == "fast":
            choices["math"] = "exact"
        path = f"{folder}/k{len(failed)}_{task_id.replace('/', '_').replace('-', '_')}_{number}.py"
        open(path, "w").write(template.render(task, choices))
        spec = importlib.util.spec_from_file_location(path.rpartition("/")[2][:-3], path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made = module.ModelNew(*init)
        made.load_state_dict(model.state_dict())
        with torch.no_grad():
            got = made(*inputs)
        pairs = list(zip(got, want)) if isinstance(want, tuple) else [(got, want)]
        for one, two in pairs:
            scale = two.double().square().mean().sqrt().item() or 1.0
            if one.shape != two.shape or not (one.double() - two.double()).abs().max().item() <= 3e-5 * scale:
                failed.append([task_id, choices])
print(json.dumps(failed))
"""


def wrong(backend, ids, folder, elements=1 << 13, count=2):
    """The tasks on which a rendered kernel differs from the reference, in a process of their own."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([backend, ids, elements, count, str(folder)]),
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("backend", ["cpp", "triton"])
def test_kernels_of_the_core_suite_are_right(backend, tmp_path):
    ids = ["KernelGym/ElementwiseChain", "KernelGym/RowSum", "KernelGym/ColumnMax", "KernelGym/LayerNorm"]
    ids += ["KernelGym/MatmulBiasGelu", "KernelRL/Gae"]
    assert wrong(backend, ids, tmp_path, count=1) == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpp", "triton"])
def test_all_kernels_of_the_core_suite_are_right(backend, tmp_path):
    assert wrong(backend, [f"KernelGym/{name}" for name in CORE], tmp_path, count=3) == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpp", "triton"])
@pytest.mark.parametrize("family", COVERED)
def test_kernels_for_kernelbench_are_right(backend, family, tmp_path, shared_data, monkeypatch):
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    ids = [f"KernelBench/L1-{number:03d}" for number in COVERED[family]]
    assert wrong(backend, ids, tmp_path, elements=1 << 16) == []


@pytest.mark.parametrize("name", NAMES)
def test_knobs_are_all_used(name):
    template = get_template(name)
    task = {
        "elementwise": "KernelGym/ElementwiseChain",
        "rows": "KernelGym/RowSoftmax",
        "columns": "KernelGym/ColumnMax",
        "matmul": "KernelGym/Matmul",
        "gae": "KernelRL/Gae",
    }[template.kind]
    task = load_task(task)
    sources = [template.render(task, choices) for choices in template.configurations()]
    assert check_format(sources[0]) is None or not getattr(check_format(sources[0]), "detail", "")
    first = next(template.configurations())
    for knob, values in template.knobs.items():
        others = {**first, **({"variant": "loop"} if "variant" in first and knob != "variant" else {})}
        assert len({template.render(task, {**others, knob: value}) for value in values}) == len(values), knob


def test_every_backend_has_each_kind_but_columns_in_cupy():
    kinds = {backend: {template.kind for template in templates(backend)} for backend in BACKENDS}
    assert kinds["cpp"] == kinds["triton"] == kinds["cupy"] | {"columns"}


@given(st.sampled_from(NAMES), st.integers(0, 10_000))
def test_draws_and_changes_are_allowed(name, seed):
    template, rng = get_template(name), random.Random(seed)
    choices = template.draw(rng)
    assert template.check(choices) == choices and not template.forbids(choices)
    new = changed(template, choices, rng)
    assert 1 <= sum(new[knob] != choices[knob] for knob in new) <= 2
    assert template.check(new) == new and not template.forbids(new)


@pytest.mark.parametrize("name", NAMES)
def test_configurations_are_all_and_each_once(name):
    template = get_template(name)
    found = [tuple(choices.values()) for choices in template.configurations()]
    assert len(found) == len(set(found)) <= template.size
    assert template.size - len(found) == sum(
        template.forbids(dict(zip(template.knobs, values, strict=True)))
        for values in itertools.product(*template.knobs.values())
    )


def test_restricted_values():
    template = get_template("triton/rows").restricted(block=[512, 1024], warps=[1])
    assert template.size == 3 * 2 * 3 and template.forbidden == ()
    with pytest.raises(InvalidOptionError, match="give some of these"):
        template.restricted(block=[8192])
    with pytest.raises(UnknownNameError, match="Did you mean 'block'"):
        template.restricted(blok=[1])


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"math": "exact", "chunk": 256, "unroll": 1}, "needs a value for threads"),
        ({"math": "exact", "chunk": 3, "unroll": 1, "threads": 0}, r"has chunk in \[256, 1024, 4096\], got 3"),
        ({"math": "exact", "chunk": 256, "unroll": 1, "threads": 0, "warps": 4}, "Unknown knob"),
    ],
)
def test_choices_that_do_not_fit(choices, said):
    with pytest.raises((InvalidOptionError, UnknownNameError), match=said):
        get_template("cpp/rows").render(SOFTMAX, choices)


def test_tasks_that_do_not_fit():
    with pytest.raises(InvalidOptionError, match="it needs one for rows"):
        get_template("cpp/matmul").check_fit(SOFTMAX)
    with pytest.raises(InvalidOptionError, match="cumsum"):
        template_for(load_task("KernelGym/RowCumsum"), "cpp")
    with pytest.raises(InvalidOptionError, match="none in cupy for its kind"):
        template_for(load_task("KernelGym/ColumnMax"), "cupy")
    assert [template.backend for template in templates_for(SOFTMAX)] == list(BACKENDS)


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="Did you mean 'cpp/rows'"):
        get_template("cpp/row")
    with pytest.raises(UnknownNameError, match="backend of templates"):
        templates("fortran")


def test_values_that_leave_nothing_are_refused():
    with pytest.raises(InvalidOptionError, match="Every combination"):
        get_template("triton/rows").restricted(block=[8192], warps=[1, 2])
