from __future__ import annotations

import json

import pytest

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.protocols import Deadlines, Protocol, get_protocol
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.fake import fake_evaluation
from kernelgym_env.tasks import load_task


def test_a_protocol_stands_for_itself() -> None:
    protocol = get_protocol("strict").replace(deadlines=Deadlines(run_s=1.5))
    assert get_protocol(protocol) is protocol
    assert get_protocol("strict").deadlines.run_s != 1.5


@pytest.mark.parametrize("name", ["stirct", None, 3, ["strict"], {}])
def test_anything_else_is_an_unknown_name(name: object) -> None:
    with pytest.raises(UnknownNameError, match="strict"):
        get_protocol(name)  # type: ignore[arg-type]


def test_a_submission_carries_it_through_json() -> None:
    protocol = get_protocol("strict").replace(trials=1, deadlines=Deadlines(build_s=7))
    submission = Submission(load_task("KernelGym/RowSum"), "class ModelNew: ...", protocol=protocol)
    again = Submission.from_dict(json.loads(json.dumps(submission.to_dict())))
    assert again.to_dict() == submission.to_dict()
    assert again.protocol == protocol
    assert isinstance(again.protocol, Protocol)
    assert again.protocol.deadlines.build_s == 7
    assert fake_evaluation(submission).protocol == "strict+custom"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e9, "60", None, True])
def test_deadlines_are_positive_numbers(seconds: object) -> None:
    with pytest.raises(InvalidOptionError, match="run_s"):
        Deadlines(run_s=seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [-1, 0.5, "2", None, True])
def test_the_number_of_laws_is_a_whole_number(count: object) -> None:
    with pytest.raises(InvalidOptionError, match="law_trials"):
        get_protocol("strict").replace(law_trials=count)


def test_an_unknown_constant_is_named() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'trials'"):
        get_protocol("strict").replace(trails=1)
