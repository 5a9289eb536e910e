"""The presets, and what they change in an evaluation: whole ones, on the CPU."""

from __future__ import annotations

import json

import pytest
import torch
from programs import QUICK, copy_of, task

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.presets import PRESETS
from kernelgym_env.evaluation.protocols import Allclose, Protocol, get_protocol, protocol_names
from kernelgym_env.evaluation.reference import Reference, derive_seed
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.prompts import task_prompt

NAMES = protocol_names()
STRICT = get_protocol("strict")
SINE = task("        return torch.sin(args[0])", "[torch.randn(64, 64)]")


def test_names():
    assert NAMES == [
        "strict",
        "cuda_agent",
        "cuda_l1",
        "kernelbench",
        "kernelbench_v0",
        "kernelgym",
        "kevin",
        "makora",
        "tritonrl",
    ]
    assert set(NAMES) == set(PRESETS)


@pytest.mark.parametrize(
    ("typo", "meant"), [("stirct", "strict"), ("kernelbench_v1", "kernelbench_v0"), ("cuda-agent", "cuda_agent")]
)
def test_a_typo_is_told(typo, meant):
    with pytest.raises(UnknownNameError, match=f"Did you mean '{meant}'"):
        get_protocol(typo)


@pytest.mark.parametrize("name", NAMES)
def test_json_gives_it_back(name):
    protocol = get_protocol(name)
    again = Protocol.from_dict(json.loads(json.dumps(protocol.to_dict(), allow_nan=False)))
    assert again == protocol
    assert hash(again) == hash(protocol)
    submission = Submission(SINE, "class ModelNew: ...", protocol=protocol.replace(warmup=1))
    assert Submission.from_dict(json.loads(json.dumps(submission.to_dict()))).protocol == submission.protocol


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_differs_in_correctness_alone(name):
    free = {
        "name",
        "summary",
        "source",
        "allclose",
        "input_sets",
        "inputs_on",
        "precision",
        "train_mode",
        "library_ops",
    }
    changed = {key for key, value in get_protocol(name).to_dict().items() if value != STRICT.to_dict()[key]}
    assert changed <= free | {"warmup"}
    assert get_protocol(name).summary.endswith(".")
    assert get_protocol(name).source.endswith(".")


def test_the_oracle_decides_in_strict_alone():
    assert [name for name in NAMES if get_protocol(name).allclose is None] == ["strict"]


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"precision": "tf23"}, UnknownNameError, "Did you mean 'tf32'"),
        ({"inputs_on": "gpu"}, UnknownNameError, "cpu, device"),
        ({"input_sets": 0}, InvalidOptionError, "input_sets"),
        ({"allclose": 1e-2}, InvalidOptionError, "Allclose"),
        ({"tf32": True}, UnknownNameError, "protocol constant"),
    ],
)
def test_what_a_protocol_refuses(changes, error, match):
    with pytest.raises(error, match=match):
        STRICT.replace(**changes)


@pytest.mark.parametrize("values", [(-1.0, 0.0), (0.0, float("nan")), (float("inf"), 0.0), (True, 0.0), ("1", 0.0)])
def test_what_a_tolerance_refuses(values):
    with pytest.raises(InvalidOptionError, match="at least 0"):
        Allclose(*values)
    with pytest.raises(InvalidOptionError):
        Allclose(1e-2, 1e-2, half=values)
    with pytest.raises(InvalidOptionError, match="pair"):
        Allclose(1e-2, 1e-2, half=(1e-2,))  # type: ignore[arg-type]


def test_precisions():
    assert {name: STRICT.replace(precision=name).tf32 for name in ("fp32", "tf32", "torch")} == {
        "fp32": (False, False),
        "tf32": (True, True),
        "torch": (False, True),
    }
    # which is what a new process of PyTorch has, if nobody asked for anything else
    assert not torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32


def test_the_prompt_tells_the_tolerance_and_the_mode():
    prompts = {name: task_prompt(SINE, kind="cuda", protocol=name) for name in ("strict", "kernelbench", "cuda_agent")}
    assert "explained by rounding" in prompts["strict"]
    assert "mode." not in prompts["strict"]
    assert "atol 0.0001" in prompts["kernelbench"]
    assert "explained by rounding" not in prompts["kernelbench"]
    assert "Both modules are in eval mode." in prompts["cuda_agent"]


# --- inputs

WHERE = task("        return args[0] * 2", "[torch.rand(4), torch.rand(1).device.type]")


@pytest.mark.parametrize(("where", "found"), [("device", "meta"), ("cpu", "cpu")])
def test_where_inputs_are_drawn(where, found):
    reference = Reference(WHERE, "meta", 0, STRICT.replace(inputs_on=where))
    inputs = reference.draw(3)
    assert inputs[0].device.type == "meta"
    assert inputs[1] == found


def test_inputs_on_the_cpu_are_those_of_kernelbench_for_the_same_seed():
    seed = derive_seed(b"secret", "a task", 1)
    reference = Reference(SINE, "cpu", 0, get_protocol("kernelbench"))
    torch.manual_seed(seed)
    assert torch.equal(reference.draw(seed)[0], torch.randn(64, 64))


# --- evaluations


@pytest.fixture
def judge(local_pool):
    def run(source, on=SINE, protocol="strict", **changes):
        own = get_protocol(protocol)
        kept = {key: getattr(own, key) for key in ("allclose", "input_sets", "inputs_on", "precision", "train_mode")}
        submission = Submission(on, source, device="cpu", protocol=QUICK.replace(**{**kept, **changes}))
        return local_pool.submit(submission).result(timeout=120)

    return run


def test_an_error_of_5e_3(judge):
    shifted = copy_of(SINE).replace("torch.sin(args[0])", "torch.sin(args[0]) + 5e-3")
    found = {name: judge(shifted, protocol=name) for name in ("strict", "kernelbench", "kernelbench_v0", "makora")}
    assert {name: evaluation.status for name, evaluation in found.items()} == {
        "strict": Status.WRONG,
        "kernelbench": Status.WRONG,
        "kernelbench_v0": Status.CORRECT,
        "makora": Status.WRONG,
    }
    assert "absolute 0.0001, relative 0.0001" in found["kernelbench"].feedback
    # the greatest of all calls, where the others end with the first
    assert found["kernelbench_v0"].error_ratio > 0.9 * found["strict"].error_ratio
    assert found["kernelbench_v0"].error_ratio > 100
    assert found["kernelbench_v0"].provenance["protocol"]["allclose"] == {"atol": 0.01, "rtol": 0.01, "half": None}


def test_an_error_of_5e_5_is_right_in_kernelbench_and_not_in_strict(judge):
    shifted = copy_of(SINE).replace("torch.sin(args[0])", "torch.sin(args[0]) + 5e-5")
    assert judge(shifted, protocol="kernelbench").status is Status.CORRECT
    assert judge(shifted).status is Status.WRONG


def test_every_set_of_inputs_is_checked(judge):
    """A submission that is wrong from its sixth set of inputs on."""
    source = copy_of(SINE).replace(
        "        return torch.sin(args[0])",
        "        self.seen = getattr(self, 'seen', set()) | {float(args[0].flatten()[0])}\n"
        "        return torch.sin(args[0]) + float(len(self.seen) > 5)",
    )
    assert judge(source, protocol="kernelbench", law_trials=0).status is Status.CORRECT
    assert judge(source, protocol="kernelbench", law_trials=0, input_sets=6).status is Status.WRONG
    assert judge(source, protocol="cuda_l1").status is Status.WRONG


def test_sets_of_several_sizes(judge):
    longer = task("        return torch.sin(args[0]).sum(0)", "[torch.randn(int(torch.randint(1, 2000, ())), 32)]")
    assert judge(copy_of(longer), on=longer, protocol="cuda_l1").status is Status.CORRECT


def test_a_task_may_be_judged_by_one_protocol_and_not_by_another(judge):
    """Outputs around 1e-3: zeros pass where 1e-2 is allowed, so such a protocol asks for nothing."""
    small = task("        return 1e-3 * torch.sin(args[0])", "[torch.randn(64, 64)]")
    assert judge(copy_of(small), on=small).status is Status.CORRECT
    assert judge(copy_of(small), on=small, protocol="kernelgym").status is Status.TASK_INVALID
    assert judge(copy_of(small), on=small, protocol="kernelbench").status is Status.CORRECT


def test_mode_of_a_preset(judge):
    norm = task(
        "        return torch.relu(self.n(args[0]))",
        "[3 + 2 * torch.randn(64, 16)]",
        "        self.n = nn.BatchNorm1d(16)",
    )
    folded = copy_of(norm).replace("self.n(args[0])", "nn.functional.batch_norm(args[0], self.n.running_mean, "
        "self.n.running_var, self.n.weight, self.n.bias)")  # fmt: skip
    assert judge(folded, on=norm, protocol="cuda_agent").status is Status.CORRECT
    assert judge(folded, on=norm, protocol="kernelbench").status is Status.WRONG
