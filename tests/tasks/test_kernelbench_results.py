"""KernelBench's files of results: runs and baseline times."""

from __future__ import annotations

import json
import math

import pytest

from kernelgym_env.errors import InvalidOptionError, MissingDataError, UnknownNameError
from kernelgym_env.evaluation.result import Evaluation, Status, Timing
from kernelgym_env.tasks.kernelbench.baselines import BaselineTime, read_baselines, write_baselines
from kernelgym_env.tasks.kernelbench.runs import RESULTS, Sample, read_run, to_result, write_run

RECORD = {"compiled": True, "correctness": True, "metadata": {"hardware": "H100"}, "runtime": 1.5, "runtime_stats": {}}


def with_id(record, sample=0):
    return {**record, "sample_id": sample}


def test_a_run_is_read_as_it_was_written(tmp_path):
    samples = [
        Sample(2, 1, 0, "class ModelNew: 'a'\n", "write a", with_id(RECORD)),
        Sample(2, 1, 1, "class ModelNew: 'b'\n", "", with_id(RECORD, 1)),
        Sample(2, 10, 0, "class ModelNew: 'ü'\n"),
    ]
    write_run(tmp_path / "runs" / "one", reversed(samples))
    assert sorted(path.name for path in (tmp_path / "runs" / "one").iterdir()) == [
        RESULTS,
        "level_2_problem_10_sample_0_kernel.py",
        "level_2_problem_1_sample_0_kernel.py",
        "level_2_problem_1_sample_0_prompt.txt",
        "level_2_problem_1_sample_1_kernel.py",
    ]
    assert read_run(tmp_path / "runs" / "one") == samples
    assert [sample.task_id for sample in samples[1:]] == ["KernelBench/L2-001", "KernelBench/L2-010"]
    data = json.loads((tmp_path / "runs" / "one" / RESULTS).read_text())
    assert [record["sample_id"] for record in data["1"]] == [0, 1]


def test_the_older_form(tmp_path):
    write_run(tmp_path, [Sample(1, 3, 0, "x", result=RECORD)], form="dict")
    assert json.loads((tmp_path / RESULTS).read_text()) == {"3": with_id(RECORD)}
    assert read_run(tmp_path) == [Sample(1, 3, 0, "x", result=with_id(RECORD))]
    (tmp_path / RESULTS).write_text(json.dumps({"3": RECORD, "4": [with_id(RECORD, 2)]}))
    assert [(sample.problem, sample.sample, sample.source) for sample in read_run(tmp_path)] == [
        (3, 0, "x"),
        (4, 2, ""),
    ]
    two = [Sample(1, 3, number, "x", result=RECORD) for number in (0, 1)]
    with pytest.raises(InvalidOptionError, match="one sample a problem, and problem 3 has 2"):
        write_run(tmp_path, two, form="dict")
    with pytest.raises(UnknownNameError, match="'lists'. Did you mean 'list'"):
        write_run(tmp_path, two, form="lists")


def test_a_kernel_never_gets_what_was_another_s(tmp_path):
    old = [Sample(1, 1, 0, "A", "write A", RECORD), Sample(1, 1, 1, "C", "", RECORD), Sample(1, 2, 0, "D", "", RECORD)]
    write_run(tmp_path, old)
    write_run(tmp_path, [Sample(1, 1, 0, "B")])
    first, *others = read_run(tmp_path)
    assert first == Sample(1, 1, 0, "B") and [sample.result for sample in others] == [
        with_id(RECORD, 1),
        with_id(RECORD),
    ]
    write_run(tmp_path, [Sample(2, 1, 1, "other level")])
    assert read_run(tmp_path, level=1)[1].result == with_id(RECORD, 1)
    (tmp_path / "level_2_problem_1_sample_1_kernel.py").unlink()
    write_run(tmp_path, [Sample(1, 1, 1, "E"), Sample(1, 2, 0, "F")])
    assert not (tmp_path / RESULTS).exists()
    write_run(tmp_path, [Sample(1, 2, 0, "", "", RECORD)])
    assert read_run(tmp_path)[-1] == Sample(1, 2, 0, "", "", with_id(RECORD))
    (tmp_path / RESULTS).write_text(json.dumps({"1": RECORD, "2": RECORD}))
    write_run(tmp_path, [Sample(1, 1, 0, "G")])
    assert json.loads((tmp_path / RESULTS).read_text()) == {"2": RECORD}


@pytest.mark.parametrize(
    ("sample", "complaint"),
    [
        (
            Sample(1, 1, 0, "B", "", {"runtime": float("nan")}),
            "sample 0 of KernelBench/L1-001 cannot be written as JSON",
        ),
        (Sample(1, 1, 0, "B", "", {"runtime": object()}), "cannot be written as JSON.*object"),
        (Sample(1, 1, 0, "B\ud800"), "sample_0_kernel.py cannot be written as UTF-8"),
    ],
)
def test_what_cannot_be_written_leaves_the_folder_as_it_was(tmp_path, sample, complaint):
    write_run(tmp_path, [Sample(1, 1, 0, "A", "", RECORD)])
    with pytest.raises(InvalidOptionError, match=complaint):
        write_run(tmp_path, [sample])
    assert read_run(tmp_path) == [Sample(1, 1, 0, "A", "", with_id(RECORD))]


def test_kernels_that_are_no_files(tmp_path):
    kernel = tmp_path / "level_1_problem_1_sample_0_kernel.py"
    kernel.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidOptionError, match="kernel.py cannot be read: it is a link"):
        read_run(tmp_path)
    kernel.unlink()
    kernel.mkdir()
    with pytest.raises(InvalidOptionError, match="kernel.py cannot be read: it is a folder"):
        read_run(tmp_path)


def test_samples_of_another_form():
    for options in ({"source": None}, {"prompt": 5}, {"result": [1]}):
        with pytest.raises(InvalidOptionError, match=f"The {next(iter(options))} of a sample must be"):
            Sample(1, 1, 0, **options)


def test_results_without_a_level(tmp_path):
    (tmp_path / RESULTS).write_text(json.dumps({"3": [with_id(RECORD)]}))
    with pytest.raises(InvalidOptionError, match="no kernels: give it, as level=1"):
        read_run(tmp_path)
    assert read_run(tmp_path, level=3)[0].task_id == "KernelBench/L3-003"
    for level in (1, 2):
        (tmp_path / f"level_{level}_problem_3_sample_0_kernel.py").write_text("x")
    with pytest.raises(InvalidOptionError, match="kernels of levels 1, 2"):
        read_run(tmp_path)
    assert [sample.result is None for sample in read_run(tmp_path, level=2)] == [True, False]
    with pytest.raises(InvalidOptionError, match="results of one level; got levels 1, 2"):
        write_run(tmp_path, [Sample(level, 3, result=RECORD) for level in (1, 2)])
    with pytest.raises(InvalidOptionError, match="Sample 0 of KernelBench/L1-003 comes 2 times"):
        write_run(tmp_path, [Sample(1, 3), Sample(1, 3)])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[", "is not JSON"),
        ("[]", "needs an object with the problems' numbers, got list"),
        ('{"ReLU": {}}', "'ReLU' where a problem's number belongs"),
        ('{"1": [3]}', "problem 1: a record is an object with sample_id, got 3"),
        ('{"1": [{"sample_id": 0}, {"sample_id": 0}]}', "sample 0 of problem 1 more than once"),
        ('{"101": []}', "holds no run"),
        ('{"101": {}}', "Level 1 of KernelBench has problems 1 to 100, not 101"),
    ],
)
def test_results_of_another_form(tmp_path, text, complaint):
    (tmp_path / RESULTS).write_text(text)
    with pytest.raises(InvalidOptionError, match=complaint):
        read_run(tmp_path, level=1)


def test_runs_that_are_none(tmp_path):
    with pytest.raises(MissingDataError, match="no folder"):
        read_run(tmp_path / "gone")
    with pytest.raises(InvalidOptionError, match="holds no run: needs files like"):
        read_run(tmp_path)
    with pytest.raises(UnknownNameError, match="Unknown level of KernelBench 5"):
        Sample(5, 1)
    with pytest.raises(InvalidOptionError, match="counted from 0, got -1"):
        Sample(1, 1, -1)


def test_an_evaluation_as_a_result(tmp_path):
    times = {"candidate": Timing(1500.0, 1400.0, 1600.0, 30, "cuda_event")}
    right = Evaluation(
        "KernelBench/L1-001", Status.CORRECT, speedup=2.0, times=times, device="cuda:0", protocol="strict"
    )
    record = to_result(right)
    assert (record["compiled"], record["correctness"], record["runtime"]) == (True, True, 1.5)
    assert record["runtime_stats"]["mean"] == 1.5 and record["runtime_stats"]["num_trials"] == 30
    assert record["metadata"]["speedup"] == 2.0 and record["metadata"]["speedup_low"] is None
    outcomes = {status: to_result(Evaluation("KernelBench/L1-001", status)) for status in Status}
    assert outcomes.pop(Status.FAULT) is None
    assert [status for status, found in outcomes.items() if found["correctness"]] == [Status.CORRECT]
    built = {status for status, found in outcomes.items() if found["compiled"]}
    assert set(outcomes) - built == {Status.FORMAT, Status.COMPILE_ERROR}
    assert all(found["runtime"] == -1.0 and found["runtime_stats"] == {} for found in outcomes.values())
    write_run(tmp_path, [Sample(1, 1, 0, "x", result=record)])
    assert read_run(tmp_path)[0].result == with_id(record)


BASELINES = {
    "KernelBench/L1-019": BaselineTime(2.5, 0.1, 2.25, 3.0, 100, "H100", "cuda:0"),
    "KernelBench/L2-001": None,
}
NAMES = {"KernelBench/L1-019": "19_Some_Name_", "KernelBench/L2-001": "1_Other"}


@pytest.mark.parametrize("form", ["dict", "list"])
def test_baselines_are_read_as_they_were_written(tmp_path, form):
    path = tmp_path / "results" / "baseline.json"
    write_baselines(path, BASELINES, NAMES, form=form)
    assert read_baselines(path) == BASELINES
    entry = json.loads(path.read_text())["level1"]["19_Some_Name_.py"]
    assert (entry[0] if form == "list" else entry)["mean"] == 2.5


def test_baselines_that_say_little(tmp_path):
    path = tmp_path / "b.json"
    path.write_text(json.dumps({"level3": {"2_X.py": {"mean": 1}, "3_Y.py": [{"mean": 5}, {"mean": 4}], "4_Z.py": []}}))
    found = read_baselines(path)
    assert math.isnan(found["KernelBench/L3-002"].std) and found["KernelBench/L3-002"].num_trials == 0
    assert found["KernelBench/L3-003"].mean == 4.0 and found["KernelBench/L3-004"] is None
    write_baselines(path, {"KernelBench/L3-002": BaselineTime(1.0)}, {"KernelBench/L3-002": "2_X"})
    assert json.loads(path.read_text())["level3"]["2_X.py"]["std"] is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "needs an object of levels"),
        ('{"level1": []}', "needs an object of levels"),
        ('{"level1": {"ReLU.py": null}}', "'level1' with 'ReLU.py'; needs names like level1 and 19_ReLU.py"),
        ('{"level1": {"1_A.py": 3}}', "needs an object with a mean in milliseconds above 0, or null, got 3"),
        ('{"level1": {"1_A.py": {"mean": -1}}}', "a mean in milliseconds above 0"),
        ('{"level1": {"1_A.py": {"mean": "1"}}}', "a mean in milliseconds above 0"),
    ],
)
def test_baselines_of_another_form(tmp_path, text, complaint):
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(InvalidOptionError, match=complaint):
        read_baselines(tmp_path / "b.json")


def test_baselines_that_cannot_be_written(tmp_path):
    with pytest.raises(MissingDataError, match="no file"):
        read_baselines(tmp_path / "gone.json")
    with pytest.raises(InvalidOptionError, match="'KernelGym/RowSum' is no problem of KernelBench"):
        write_baselines(tmp_path / "b.json", {"KernelGym/RowSum": None}, {})
    with pytest.raises(InvalidOptionError, match="KernelBench/L1-019 has no name as published"):
        write_baselines(tmp_path / "b.json", {"KernelBench/L1-019": None}, {})
    with pytest.raises(InvalidOptionError, match="'dict' or 'list', got 'rows'"):
        write_baselines(tmp_path / "b.json", {}, {}, form="rows")
    assert not (tmp_path / "b.json").exists()
