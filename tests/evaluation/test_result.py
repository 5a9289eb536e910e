import json
import math

import pytest

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import SCHEMA, STAGES, TIMES, Evaluation, Finding, Status, Timing


def test_statuses_are_the_closed_set_of_the_contract():
    assert [status.value for status in Status] == [
        "format",
        "compile_error",
        "runtime_error",
        "timeout",
        "crash",
        "wrong",
        "policy",
        "integrity",
        "task_invalid",
        "fault",
        "correct",
    ]


@pytest.mark.parametrize("status", list(Status))
def test_only_correct_is_credited_and_only_fault_is_invalid(status):
    evaluation = Evaluation("a/b", status)
    assert evaluation.credited is (status is Status.CORRECT)
    assert evaluation.valid is (status is not Status.FAULT)


def test_round_trip_through_json_keeps_everything():
    evaluation = Evaluation(
        "KernelGym/RowSum",
        Status.CORRECT,
        speedup=1.5,
        speedup_low=1.4,
        speedup_high=1.6,
        times={"eager": Timing(10.0, 9.0, 11.0, 40, "perf_counter")},
        findings=(Finding("A2", "soft", "looks like the reference"),),
        stages_s={"total": 2.0, "build": 0.5},
        provenance={"package": "x"},
    )
    again = Evaluation.from_dict(json.loads(json.dumps(evaluation.to_dict())))
    assert again.times["eager"] == evaluation.times["eager"]
    assert again.findings == evaluation.findings
    assert again.stages_s == evaluation.stages_s
    assert (again.speedup, again.speedup_low, again.speedup_high) == (1.5, 1.4, 1.6)
    assert math.isnan(again.coverage)


def test_schema_is_constant_over_outcomes():
    shapes = []
    for status in Status:
        data = Evaluation("a/b", status).to_dict()
        assert set(data["stages_s"]) == set(STAGES)
        assert set(data["times"]) == set(TIMES)
        shapes.append({key: type(value) for key, value in data.items()})
    assert all(shape == shapes[0] for shape in shapes)


def test_records_of_a_newer_schema_are_refused():
    data = Evaluation("a/b", Status.WRONG).to_dict()
    with pytest.raises(InvalidOptionError, match="newer"):
        Evaluation.from_dict({**data, "schema": SCHEMA + 1})


def test_a_dict_that_is_no_record_is_named_so():
    with pytest.raises(InvalidOptionError, match="status missing"):
        Evaluation.from_dict({"task_id": "a/b"})


def test_finding_severity_is_checked():
    with pytest.raises(InvalidOptionError, match="'loud'"):
        Finding("A1", "loud", "x")


def test_overhead_leaves_out_queue_build_and_timing():
    stages = {"total": 10.0, "queue": 1.0, "build": 4.0, "timing": 3.0}
    assert Evaluation("a/b", Status.CORRECT, stages_s=stages).overhead_s == pytest.approx(2.0)
