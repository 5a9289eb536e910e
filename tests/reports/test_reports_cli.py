"""`kernelgym run`, `report`, `compare` and `export`, from what is typed to what is printed."""

from __future__ import annotations

import html.parser
import json
import math
import re
from pathlib import Path

import pytest

from kernelgym_env.cli import main
from kernelgym_env.errors import InvalidOptionError, MissingDataError
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.reports.comparing import common_tasks, compare_published, compare_runs
from kernelgym_env.reports.page import as_html
from kernelgym_env.reports.published import published
from kernelgym_env.reports.report import Loaded, load, make_report
from kernelgym_env.reports.samples import Sample, TaskSamples, Turn
from kernelgym_env.store import Store, TurnRecord
from kernelgym_env.tasks.kernelbench.runs import Sample as KernelBenchSample
from kernelgym_env.tasks.kernelbench.runs import is_run, write_run

SCRIPT = "# fake: speedup={}\nclass ModelNew: ...\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with two scripts and a run of each on three tasks: of 1x then 2x, and of 3x."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, speedup in (("one", 1.0), ("two", 2.0), ("three", 3.0)):
        (tmp_path / f"{name}.py").write_text(SCRIPT.format(speedup))
    assert play("slow", "script:one.py,two.py") == 0
    assert play("fast", "script:three.py") == 0
    return tmp_path


def play(name: str, policy: str, *more: str) -> int:
    return main(["run", name, "--policy", policy, "--tasks", "core", "--limit", "3", *OPTIONS, *more])


OPTIONS = ("--turns", "2", "--samples", "2", "--pool", "fake")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in said
    return said


def value(found: dict, name: str, k: int = 1) -> float:
    (figure,) = [f for f in found["figures"] if (f["name"], f.get("k", k)) == (name, k)]
    return figure["value"]


# --- run and report


def test_a_run_says_what_it_reached(folder, capsys):
    found = printed(
        capsys, "run", "slow", "--policy", "script:one.py,two.py", "--tasks", "core", "--limit", "3", *OPTIONS
    )
    assert found["folder"] == "slow"
    assert found["faults"] == 0
    assert found["statuses"] == {"correct": 12}
    assert value(found, "mean_speedup") == 2.0
    report = printed(capsys, "report", "slow")
    assert report == {name: entry for name, entry in found.items() if name not in ("folder", "faults")}
    assert report["facts"]["judged on"] == "fake"
    assert report["facts"]["protocol"] == "strict"


@pytest.mark.parametrize(
    ("options", "fast"),
    [((), 1.0), (("--select", "last"), 1.0), (("--select", "1"), 0.0), (("--select", "1", "--at-least"), 1.0)],
)
def test_what_counts_can_be_chosen(folder, capsys, options, fast):
    assert value(printed(capsys, "report", "slow", *options), "fast_1") == fast


def test_the_table_for_people(folder, capsys):
    capsys.readouterr()
    assert main(["report", "slow"]) == 0
    out = capsys.readouterr().out
    assert "slow, select best" in out
    assert "2 [2, 2]" in out


class Page(html.parser.HTMLParser):
    """Checks that what is opened is closed, and collects tags and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        assert not any(name in ("src", "href") for name, _ in attrs)
        if tag not in ("meta", "line", "circle", "polyline", "polygon", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_is_whole_and_needs_nothing_else(folder, capsys):
    capsys.readouterr()
    assert main(["report", "slow", "--html", "new/page.html"]) == 0
    assert capsys.readouterr().out == ""
    page = Page()
    page.feed((folder / "new" / "page.html").read_text())
    assert page.open == []
    assert page.seen.count("svg") == 3
    assert "script" not in page.seen
    assert any("KernelGym/" in text for text in page.texts)


def test_names_on_a_page_are_escaped_and_absent_numbers_told():
    tasks = [TaskSamples("<b>&", 0, (Sample((Turn(status="wrong"),)),)), TaskSamples("x", 0, unfinished=1)]
    page = as_html(make_report(Loaded("<script>", tasks, {"a": "<i>"}), resamples=5))
    assert "<script>" not in page
    assert "<i>" not in page
    assert "&lt;b&gt;&amp;" in page
    assert "nan" not in page
    Page().feed(page)


def test_notes_say_what_is_missing():
    fault = TaskSamples("f", faults=2)
    untimed = TaskSamples("u", samples=(Sample((Turn(True, {}, "correct"),)), Sample((Turn(),))), unfinished=1)
    report = make_report(Loaded("run", [fault, untimed, TaskSamples("n", unfinished=1)], {}), resamples=5)
    notes = " ".join(report.notes)
    for part in ("1 of 3 tasks have no finished episode", "left out, as faults ended", "2 episodes ended in a fault"):
        assert part in notes
    assert "1 correct samples were not timed" in notes


def test_a_file_of_trajectories_is_a_run_too(folder, capsys):
    from_file = printed(capsys, "report", "slow/turns.jsonl")
    from_folder = printed(capsys, "report", "slow")
    assert from_file["figures"] == from_folder["figures"]
    assert from_file["levels"] == from_folder["levels"]


def test_levels_of_tasks_in_a_file(tmp_path):
    store = Store(tmp_path / "turns.jsonl")
    for name in ("KernelBench/L3-007", "KernelGym/RowSum", "own"):
        data = Evaluation(name, Status.WRONG).to_dict()
        store.append(TurnRecord("r", name, name, 1, "p", "x", data, terminated=True))
    assert {task.task_id: task.level for task in load(store.path).tasks} == {
        "KernelBench/L3-007": 3,
        "KernelGym/RowSum": 1,
        "own": 0,
    }


def test_what_is_no_run(folder, capsys):
    assert "no run at 'nowhere'" in refused(capsys, "report", "nowhere")
    (folder / "empty.jsonl").touch()
    assert "no trajectories" in refused(capsys, "report", "empty.jsonl")
    (folder / "other.jsonl").write_text('{"a": 1}\n')
    assert "Not a record of a turn" in refused(capsys, "report", "other.jsonl")
    with pytest.raises(MissingDataError):
        load(folder)


def test_a_folder_of_kernelbench_is_told_how_it_gets_figures(folder, capsys):
    write_run(folder / "kb", [KernelBenchSample(1, 19, source="class ModelNew: ...")])
    said = refused(capsys, "report", "kb")
    assert "from_kernelbench" in said
    assert "docs/runs.md" in said
    assert not is_run(folder / "slow")
    assert not is_run(folder / "nowhere")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("report", "slow", "--select", "first"), "got 'first'"),
        (("report", "slow", "--select", "0"), "got '0'"),
        (("report", "slow", "--html", "slow"), "'slow' cannot be written"),
        (("report", "slow", "--html", "one.py/page.html"), "cannot be written"),
        (("run", "one.py", "--policy", "sampler", "--tasks", "core", *OPTIONS), "cannot be made"),
        (("run", "new", "--policy", "smapler", "--tasks", "core", *OPTIONS), "Did you mean 'sampler'"),
        (("run", "new", "--policy", "sampler", "--tasks", "core", "--limit", "0", *OPTIONS), "--limit must be"),
        (("run", "new", "--policy", "sampler", "--tasks", "core", "--at-once", "0", *OPTIONS), "--at-once must be"),
        (("run", "new", "--policy", "sampler", "--tasks", "core", "--level", "9", *OPTIONS), "9"),
        (("run", "slow", "--policy", "sampler", "--tasks", "core", "--limit", "3", *OPTIONS), "policy 'script:one"),
        (("export", "slow", "sft", "one.py/rows.jsonl"), "cannot be written"),
        (("export", "slow", "store", "one.py/rows.parquet"), "cannot be written"),
        (("export", "slow", "store", "rows.jsonl"), "must end with .parquet"),
        (("export", "slow", "ppo", "rows.jsonl"), "ppo"),
        (("export", "nowhere", "sft", "rows.jsonl"), "no trajectories at 'nowhere'"),
        (("compare", "slow"), "Say what 'slow' is compared with: another run, or published figures by --published"),
        (("compare", "slow", "fast", "--published"), "leave out 'fast' or --published"),
        (("compare", "slow", "fast", "--published", "kevin"), "either with 'fast' or with published figures"),
        (("compare", "slow", "--published", "--samples", "2"), "--samples cannot be given with --published"),
        (("compare", "slow", "--published", "kevin", "--baseline", "eager"), "--baseline cannot be given with"),
        (("compare", "slow", "--published", "--select", "first", "--samples", "2"), "--select and --samples cannot"),
        (("compare", "slow", "--published", "--select", ""), "--select cannot be given"),
        (("compare", "slow", "--published", "--samples", "0"), "--samples must be at least 1, got 0"),
        (("compare", "slow", "fast", "--samples", "-1"), "--samples must be at least 1, got -1"),
        (("compare", "slow", "fast", "--select", ""), "got ''"),
        (("compare", "slow", "--published", "kevni"), "Did you mean 'kevin'"),
        (("compare", "slow", "fast", "--baseline", "compile"), "first run has no time of the baseline 'compile'"),
        (("compare", "slow", "fast", "--samples", "3"), "k must be from 1 to 2, got 3"),
    ],
)
def test_mistakes_in_the_call(folder, capsys, arguments, said):
    assert said in refused(capsys, *arguments)
    assert not (folder / "new").exists()


@pytest.mark.parametrize(
    "command",
    [("report", "slow"), ("compare", "fast", "slow"), ("export", "slow", "rft", "rows.jsonl"), ("validate", "slow")],
)
def test_a_line_that_is_no_turn_is_named(folder, capsys, command):
    with open(folder / "slow" / "turns.jsonl") as file:
        (*_, last) = file
    record = json.loads(last)
    record["evaluation"]["speedup"] = "inf"
    with open(folder / "slow" / "turns.jsonl", "a") as file:
        file.write(json.dumps(record) + "\n")
    said = refused(capsys, *command)
    assert "turns.jsonl" in said
    assert "13" in said
    assert "speedup must be above 0 and below 1e+12, or null, got 'inf'" in said


# --- compare


def test_two_runs(folder, capsys):
    found = printed(capsys, "compare", "slow", "fast")
    assert (found["first"], found["second"], found["tasks"], found["left_out"]) == ("slow", "fast", 3, 0)
    rows = {row["figure"]: row for row in found["figures"]}
    assert (rows["geomean"]["difference"], rows["geomean"]["verdict"]) == (pytest.approx(1.5), "better")
    assert (rows["mean_speedup"]["difference"], rows["mean_speedup"]["verdict"]) == (1.0, "better")
    assert (rows["correct"]["difference"], rows["correct"]["verdict"]) == (0.0, "unresolved")
    assert (rows["fast_2"]["first"], rows["fast_2"]["second"]) == (0.0, 1.0)
    back = {row["figure"]: row for row in printed(capsys, "compare", "fast", "slow")["figures"]}
    assert back["geomean"]["verdict"] == "worse"
    capsys.readouterr()
    assert main(["compare", "slow", "fast"]) == 0
    assert "On 3 common tasks." in capsys.readouterr().out


def test_absent_figures_are_dashes_and_one_task_has_no_interval(folder, capsys):
    assert main(["run", "one", "--policy", "script:wrong.py", "--tasks", "KernelGym/RowSum", *OPTIONS]) == 2
    (folder / "wrong.py").write_text("# fake: status=wrong\nclass ModelNew: ...\n")
    for name, script in (("bad", "wrong"), ("good", "two")):
        assert main(["run", name, "--policy", f"script:{script}.py", "--tasks", "KernelGym/RowSum", *OPTIONS]) == 0
    rows = {row["figure"]: row for row in printed(capsys, "compare", "bad", "good")["figures"]}
    assert (rows["geomean"]["first"], rows["geomean"]["difference"], rows["geomean"]["low"]) == (None, None, None)
    assert (rows["correct"]["difference"], rows["correct"]["low"]) == (1.0, None)
    assert {row["verdict"] for row in rows.values()} == {"unresolved"}
    for command in (["compare", "bad", "good"], ["report", "good"], ["report", "good", "--html", "page.html"]):
        capsys.readouterr()
        assert main(command) == 0
        assert "nan" not in capsys.readouterr().out
    assert "nan" not in (folder / "page.html").read_text()


def test_columns_of_turns_reach_the_last_one(folder, capsys):
    more = ("--turns", "20", "--samples", "1", "--pool", "fake")
    assert main(["run", "long", "--policy", "script:one.py", "--tasks", "core", "--limit", "2", *more]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"in (\d+)", out.splitlines()[1] + out.splitlines()[2]) == ["1", "2", "4", "8", "16", "20"]


def samples(speedups: dict[str, float]) -> list[TaskSamples]:
    return [
        TaskSamples(name, 1, (Sample((Turn(not math.isnan(speed), {"eager": speed}, "x"),)),))
        for name, speed in speedups.items()
    ]


def test_the_difference_is_over_common_tasks_in_pairs():
    first = samples({f"t{n}": 1.0 + n for n in range(10)})
    second = samples({f"t{n}": 1.1 + n for n in range(2, 12)})
    assert len(common_tasks(first, second)) == 8
    rows = {row.figure: row for row in compare_runs(first, second, resamples=200)}
    # tasks differ by far more than runs do, and still the interval is tight
    assert rows["mean_speedup"].difference == pytest.approx(0.1)
    assert rows["mean_speedup"].low == pytest.approx(0.1)
    assert rows["mean_speedup"].verdict == "better"
    with pytest.raises(InvalidOptionError, match="no task in common"):
        compare_runs(first, samples({"u": 1.0}))


def test_a_run_beside_published_figures(folder, capsys):
    tasks = samples({f"KernelBench/L1-{n:03d}": speed for n, speed in enumerate((0.5, 1.1, 1.3, 2.5, math.nan), 1)})
    found = compare_published(tasks, published("dr_kernel"), resamples=20)
    assert {row.baseline for row in found} == {"eager"}  # the run has no time of torch.compile
    rows = {(row.model, row.figure): row for row in found}
    row = rows["Dr. Kernel 14B", "fast_1.2"]
    assert (row.published, row.run, row.tasks, row.select, row.level) == (0.169, 0.4, 5, "last", 1)
    assert {row.level for row in rows.values()} == {1}
    assert {row.k for row in compare_published(tasks, published("kevin"), resamples=20)} == {1}  # one sample a task
    assert {row.figure for row in compare_published(tasks, published("cuda_l1"), resamples=20)} >= {"fast_1.01"}
    # other tasks have no counterpart
    found = printed(capsys, "compare", "slow", "--published", "kevin")
    assert found["systems"][0]["figures"] == []
    assert found["systems"][0]["selection"]
    assert len(printed(capsys, "compare", "slow", "--published")["systems"]) == 9
    capsys.readouterr()
    assert main(["compare", "slow", "--published", "kevin"]) == 0
    assert "no counterpart" in capsys.readouterr().out


def test_a_published_figure_is_beside_as_many_turns(folder, capsys):
    slow, fast, wrong = Turn(True, {"eager": 1.5}, "correct"), Turn(True, {"eager": 4.0}, "correct"), Turn()
    sample = Sample((wrong, slow, wrong, wrong, slow, wrong, wrong, wrong, fast))
    run = [TaskSamples("KernelBench/L1-001", 1, (sample,) * 128)]
    found = {
        (row.model, row.k): (row.select, row.run)
        for row in compare_published(run, published("kevin"), resamples=5)
        if row.figure == "mean_speedup"
    }
    assert found["multi-turn RL, 128x1", 128] == (1, 0.0)  # nothing is correct in the first turn
    assert found["QwQ, 32x4", 32] == (4, 1.5)
    assert found["single-turn RL", 16] == (8, 1.5)  # trained on single turns, played over 8
    assert {row.select for row in compare_published(run, published("kernelbench"), resamples=5)} == {1}
    assert {row.select for row in compare_published(run, published("dr_kernel"), resamples=5)} == {"last"}


# --- export


# the two scripts differ in a comment alone: to a trainer they are one program
@pytest.mark.parametrize(("kind", "rows"), [("sft", 3), ("rft", 3), ("turns", 12)])
@pytest.mark.parametrize("end", ["jsonl", "parquet"])
def test_export(folder, capsys, kind, rows, end):
    if end == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
    found = printed(capsys, "export", "slow", kind, f"rows.{end}")
    assert found == {"file": f"rows.{end}", "kind": kind, "rows": rows}
    path = folder / f"rows.{end}"
    read = (
        parquet.read_table(path).to_pylist()
        if end == "parquet"
        else [json.loads(line) for line in path.read_text().splitlines()]
    )
    assert len(read) == rows
    assert {"task_id", "episode_id", "turn", "score", "source_hash", "prompt"} <= set(read[0])


def test_export_of_nothing(folder, capsys):
    assert printed(capsys, "export", "slow", "dpo", "rows.jsonl", code=1)["rows"] == 0
    assert not (folder / "rows.jsonl").exists()
    capsys.readouterr()
    assert main(["export", "slow", "sft", "rows.jsonl", "--above", "99"]) == 1
    assert "nothing was written" in capsys.readouterr().out


def test_a_compacted_run_has_the_same_figures(folder, capsys):
    pytest.importorskip("pyarrow")
    assert printed(capsys, "export", "slow", "store", "slow.parquet")["rows"] == 12
    assert printed(capsys, "report", "slow.parquet")["figures"] == printed(capsys, "report", "slow")["figures"]
