"""Runs: played, broken off in every way, and gone on with."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelgym_env import pools
from kernelgym_env.cli import main
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.policies.base import Action
from kernelgym_env.policies.choosing import SamplerPolicy, make_policy
from kernelgym_env.pools.simulated import SimulatedPool
from kernelgym_env.pools.simulated_tasks import SimulatedConfig
from kernelgym_env.reports.report import load, make_report
from kernelgym_env.runs import PLAN, TURNS, Plan, Run, Slot, play
from kernelgym_env.search import best_of_n
from kernelgym_env.store import Store
from kernelgym_env.tasks import load_tasks

ROOT = Path(__file__).resolve().parent.parent
TASKS = load_tasks("core")[:3]
FAKE = {"pool": "fake", "device": "cpu"}


def plan(**options) -> Plan:
    return Plan.of("sampler", TASKS, **{"turns": 3, "samples": 2, "options": FAKE, **options})


def played(folder: Path, wanted: Plan, policy=None, **options) -> Run:
    run = Run(folder)
    play(run, run.start(wanted), TASKS, policy or SamplerPolicy(), **options)
    return run


def plain(run: Run) -> list[dict]:
    """The turns without what differs between two runs of the same plan: ids, times."""
    found = []
    for record in run.store.records():
        data = record.to_dict()
        data.pop("run_id")
        for name in ("stages_s", "overhead_s"):
            data["evaluation"].pop(name, None)
        found.append(data)
    return sorted(found, key=lambda data: (data["episode_id"], data["turn"]))


class Stopping(SamplerPolicy):
    """Ends with an exception at the n-th batch, as a process may at any moment."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def act(self, observations):
        if not self.left:
            raise ConnectionError("the model's service went away")
        self.left -= 1
        return super().act(observations)


# --- played and gone on with


def test_a_run_plays_every_episode_once(tmp_path):
    run = played(tmp_path / "run", plan())
    counts = Counter((record.episode_id, record.turn) for record in run.store.records())
    assert counts == {(f"{task.id}#{sample}.0", turn): 1 for task in TASKS for sample in (0, 1) for turn in (1, 2, 3)}
    assert run.left(run.plan()) == []
    size = run.store.path.stat().st_size
    played(tmp_path / "run", plan())
    assert run.store.path.stat().st_size == size
    prompts = [record.prompt for record in run.episodes()[0]]
    assert [len(prompt) for prompt in prompts] == [1, 3, 5]  # the prompt, then each reply with its feedback


@pytest.mark.parametrize("batches", [0, 1, 2, 5, 7])
@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_a_run_that_was_broken_off_is_the_same_as_one_that_was_not(tmp_path, batches, at_once):
    whole = played(tmp_path / "whole", plan())
    with pytest.raises(ConnectionError):
        played(tmp_path / "run", plan(), Stopping(batches % (18 // at_once - 1)), at_once=at_once)
    with pytest.raises(ConnectionError):
        played(tmp_path / "run", plan(), Stopping(1), at_once=at_once)
    assert plain(played(tmp_path / "run", plan(), at_once=at_once)) == plain(whole)


def test_a_torn_line_costs_one_turn(tmp_path):
    whole = played(tmp_path / "whole", plan())
    run = played(tmp_path / "run", plan())
    data = run.store.path.read_bytes().splitlines(keepends=True)
    run.store.path.write_bytes(b"".join(data[:7]) + data[7][:100])
    assert len(list(run.store.records())) == 7
    assert plain(played(tmp_path / "run", plan())) == plain(whole)


def lose(run: Run, number: int) -> None:
    """Take a line out of the file, counted from 0, or from the end."""
    lines = run.store.path.read_bytes().splitlines(keepends=True)
    del lines[number]
    run.store.path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("number", [0, 1])
def test_an_ended_episode_that_lost_a_turn_counts_nowhere_and_is_played_anew(tmp_path, number):
    run = played(tmp_path / "run", plan())
    first = TASKS[0].id
    lose(run, number)
    report = make_report(load(tmp_path / "run"))
    (row,) = [row for row in report.tasks if row["task_id"] == first]
    assert (row["samples"], row["broken"], row["unfinished"], row["faults"]) == (1, 1, 0, 0)
    assert "1 episodes lack a turn in the file and are left out." in report.notes
    assert f"{first}#0.0" not in {row["episode_id"] for row in run.store.export("turns")}
    assert run.left(run.plan()) == [Slot(first, 0, attempt=1)]
    played(tmp_path / "run", plan())
    assert run.left(run.plan()) == []
    (again,) = [episode for episode in run.episodes() if episode[0].episode_id == f"{first}#0.1"]
    assert [(record.turn, len(record.prompt)) for record in again] == [(1, 1), (2, 3), (3, 5)]
    assert [row["samples"] for row in make_report(load(tmp_path / "run")).tasks] == [2, 2, 2]
    assert {row["episode_id"] for row in run.store.export("turns")} >= {f"{first}#0.1", f"{first}#1.0"}


def test_an_episode_that_was_broken_off_and_lost_a_turn_is_not_gone_on_with(tmp_path):
    with pytest.raises(ConnectionError):
        played(tmp_path / "run", plan(), Stopping(2))
    run = Run(tmp_path / "run")
    lose(run, 0)
    assert [(slot.attempt, slot.played) for slot in run.left(run.plan())] == [(1, ()), *[(0, ())] * 5]
    report = make_report(load(tmp_path / "run"))
    assert (report.tasks[0]["broken"], report.tasks[0]["unfinished"]) == (1, 0)
    assert any("1 tasks are left out, as each of their episodes ended in a fault or lacks" in n for n in report.notes)
    played(tmp_path / "run", plan())
    whole = [episode for episode in run.episodes() if [record.turn for record in episode] == [1, 2, 3]]
    assert len(whole) == 6


def test_an_episode_that_lost_its_last_turn_goes_on(tmp_path):
    whole = played(tmp_path / "whole", plan())
    run = played(tmp_path / "run", plan())
    lose(run, 2)
    assert [(slot.attempt, len(slot.played)) for slot in run.left(run.plan())] == [(0, 2)]
    assert plain(played(tmp_path / "run", plan())) == plain(whole)


def test_a_folder_may_be_renamed(tmp_path):
    with pytest.raises(ConnectionError):
        played(tmp_path / "old", plan(), Stopping(4))
    (tmp_path / "old").rename(tmp_path / "new")
    run = played(tmp_path / "new", plan())
    assert [len(episode) for episode in run.episodes()] == [3] * 6
    assert len({record.run_id for record in run.store.records()}) == 1


def test_an_episode_that_the_agent_ends(tmp_path):
    class Stops(SamplerPolicy):
        def act(self, observations):
            return [Action("<stop>") if seen["turn"] == 1 else SamplerPolicy().act([seen])[0] for seen in observations]

    run = played(tmp_path / "run", plan(), Stops())
    assert [len(episode) for episode in run.episodes()] == [2] * 6
    assert run.left(run.plan()) == []
    assert make_report(load(tmp_path / "run")).statuses["stop"] == 6


def test_what_a_policy_gives_is_recorded(tmp_path):
    class Sampled(SamplerPolicy):
        def act(self, observations):
            return [Action(action.text, tokens=[1, 2], logprobs=[-0.5, -1.0]) for action in super().act(observations)]

    (record, *_) = played(tmp_path / "run", plan(), Sampled()).store.records()
    assert (record.tokens, record.logprobs) == ([1, 2], [-0.5, -1.0])
    assert record.versions["policy"] == "sampler"


WHAT_NO_POLICY_GIVES = [
    (None, "gave a NoneType, and `act` has to give a list with one `Action` for each observation"),
    ("text", "gave a str, and `act` has to give"),
    (["text"], r"gave a str as an action, .*a text is wrapped as `Action\(text\)`"),
    ([Action(None)], "an `Action` whose text is a NoneType"),
    ([Action(b"x")], "an `Action` whose text is a bytes"),
    ([], "0 actions for 1 observations"),
]


@pytest.mark.parametrize(("given", "said"), WHAT_NO_POLICY_GIVES)
def test_what_a_policy_gives_has_to_be_actions(tmp_path, given, said):
    class Own(SamplerPolicy):
        def act(self, observations):
            return given

    with pytest.raises(InvalidOptionError, match=said):
        played(tmp_path / "run", plan(), Own())
    with pytest.raises(InvalidOptionError, match=said):
        best_of_n(TASKS[0], Own(), 1, pool="fake")


# --- faults


@pytest.fixture
def faulty() -> Iterator[str]:
    """A pool of which a third of the evaluations are faults."""
    pools.register("faulty", lambda: SimulatedPool(SimulatedConfig(fault=0.3), seed=1))
    yield "faulty"
    pools.get("faulty").close()


def test_an_episode_that_a_fault_ended_is_played_anew(tmp_path, faulty):
    wanted = plan(options={"pool": faulty, "device": "cpu"})
    run = Run(tmp_path / "run")
    started = run.start(wanted)
    for _ in range(60):
        if not play(run, started, TASKS, SamplerPolicy()):
            break
    assert run.left(started) == []
    ended = [episode for episode in run.episodes() if episode[-1].terminated]
    lost = [episode for episode in run.episodes() if episode[-1].truncated]
    assert len(ended) == 6
    assert lost
    report = make_report(load(tmp_path / "run"))
    assert any(f"{len(lost)} episodes ended in a fault" in note for note in report.notes)


class Faults(SamplerPolicy):
    """Asks the fake pool for a fault on every episode of the first attempt."""

    def __init__(self, status: str) -> None:
        self.status = status

    def act(self, observations):
        return [Action(f"# fake: status={self.status}\nclass ModelNew: ...") for _ in observations]


def test_a_run_of_nothing_but_faults_has_a_report_that_says_so(tmp_path):
    wanted = plan(options=FAKE)
    run = Run(tmp_path / "run")
    assert play(run, run.start(wanted), TASKS, Faults("fault")) == 6
    report = make_report(load(tmp_path / "run"))
    assert report.overall == []
    assert any("3 tasks are left out" in note for note in report.notes)
    assert play(run, run.plan(), TASKS, Faults("correct")) == 0
    assert make_report(load(tmp_path / "run")).overall[0].value == 1.0
    assert {record.episode_id[-2:] for record in run.store.records()} == {".0", ".1"}


def test_a_fault_that_was_lost_from_the_file_is_not_made_good_again(tmp_path):
    run = Run(tmp_path / "run")
    started = run.start(plan(turns=1))
    assert play(run, started, TASKS, Faults("fault")) == 6
    assert play(run, started, TASKS, Faults("correct")) == 0
    lose(run, 0)
    assert run.left(started) == []
    assert [row["samples"] for row in make_report(load(tmp_path / "run")).tasks] == [2, 2, 2]


# --- what a folder refuses


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (plan(turns=4), "turns 3, not 4"),
        (plan(samples=5), "samples 2, not 5"),
        (plan(seed=1), "seed 0, not 1"),
        (plan(options={"pool": "simulated", "device": "cpu"}), "pool 'fake', not 'simulated'"),
        (Plan.of("first_episode", TASKS, turns=3, samples=2, options=FAKE), "policy 'sampler', not"),
        (Plan.of("sampler", TASKS[:2], turns=3, samples=2, options=FAKE), "3 tasks, not 2"),
    ],
)
def test_another_plan_is_refused_and_said(tmp_path, other, said):
    Run(tmp_path).start(plan())
    with pytest.raises(InvalidOptionError, match=said):
        Run(tmp_path).start(other)


def test_a_changed_task_is_refused(tmp_path):
    run = Run(tmp_path)
    started = run.start(plan())
    changed = Plan(**{**json.loads((tmp_path / PLAN).read_text()), "hashes": {TASKS[0].id: "0"}})
    with pytest.raises(InvalidOptionError, match="another content of"):
        run.start(changed)
    with pytest.raises(InvalidOptionError, match=f"{TASKS[0].id}' is not the one"):
        play(run, started, TASKS[1:], SamplerPolicy())


PLAIN = {"policy": "a", "tasks": {"a/b": 1}}


@pytest.mark.parametrize(
    "changes",
    [
        *[{"options": value} for value in (None, [], "x")],
        *[{"tasks": value} for value in (None, ["a/b"], {"a/b": "1"}, {"a/b": -1})],
        *[{"hashes": value} for value in (None, ["0"], {"a/b": 0})],
        *[{name: value} for name in ("turns", "samples") for value in ("4", 1.5, None, True)],
        *[{name: None} for name in ("policy", "seed", "run_id", "schema")],
    ],
)
def test_a_plan_with_a_value_of_another_kind(tmp_path, changes):
    (tmp_path / PLAN).write_text(json.dumps(PLAIN))
    assert Run(tmp_path).plan().tasks == {"a/b": 1}
    (tmp_path / PLAN).write_text(json.dumps({**PLAIN, **changes}))
    with pytest.raises(InvalidOptionError, match="holds no run that can be read"):
        Run(tmp_path).plan()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}', '{"policy": "a", "tasks": {}}', "\0"])
def test_a_plan_that_cannot_be_read(tmp_path, text):
    (tmp_path / PLAN).write_text(text)
    with pytest.raises(InvalidOptionError, match=r"no run that can be read|newer version"):
        Run(tmp_path).plan()


def test_folders_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidOptionError, match="cannot be made"):
        Run(tmp_path / "file" / "run").start(plan())
    played(tmp_path / "run", plan(turns=1, samples=1))
    (tmp_path / "run" / PLAN).unlink()
    with pytest.raises(InvalidOptionError, match=r"has turns .* and no plan"):
        Run(tmp_path / "run").start(plan())


def test_those_that_start_a_run_at_once_agree_on_its_plan(tmp_path):
    for index in range(20):
        run, barrier = Run(tmp_path / str(index)), threading.Barrier(4)

        def start(run=run, barrier=barrier):
            barrier.wait()
            return run.start(plan())

        with ThreadPoolExecutor(4) as threads:
            found = [future.result() for future in [threads.submit(start) for _ in range(4)]]
        assert {one.run_id for one in found} == {run.plan().run_id}
        assert [path.name for path in run.folder.iterdir()] == [PLAN]


@pytest.mark.parametrize(
    ("options", "said"), [({"turns": 0}, "got 0"), ({"samples": 0}, "got 0"), ({"turns": 1001}, "got 1001")]
)
def test_numbers_of_a_plan(options, said):
    with pytest.raises(InvalidOptionError, match=said):
        plan(**options)


def test_a_plan_needs_tasks_each_once():
    with pytest.raises(InvalidOptionError, match="at least one task"):
        Plan.of("sampler", [])
    with pytest.raises(InvalidOptionError, match="same id"):
        Plan.of("sampler", [TASKS[0], TASKS[0]])


# --- policies by name


def test_policies_by_name(tmp_path, monkeypatch):
    (tmp_path / "one.py").write_text("class ModelNew: one = 1")
    (tmp_path / "own.py").write_text(
        "from kernelgym_env.policies.choosing import SamplerPolicy\n"
        "class Own(SamplerPolicy): ...\ninstance = Own()\nnumber = 3\ndef make(): return Own()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    script = make_policy(f"script:{tmp_path / 'one.py'}")
    assert script.act([{"turn": 5}])[0].text == "class ModelNew: one = 1"
    for name in ("Own", "instance", "make"):
        assert type(make_policy(f"own:{name}")).__name__ == "Own"
    for name, said in [
        ("own:missing", "cannot be imported"),
        ("nowhere:Own", "cannot be imported"),
        ("own:number", "is no policy"),
        (f"script:{tmp_path / 'two.py'}", "cannot be read"),
    ]:
        with pytest.raises(InvalidOptionError, match=said):
            make_policy(name)
    with pytest.raises(UnknownNameError, match="Did you mean 'sampler'"):
        make_policy("smapler")


def test_a_policys_module_in_the_working_directory(tmp_path):
    """Also for the program that pip installs, whose own folder is the first that Python looks in."""
    (tmp_path / "own.py").write_text("from kernelgym_env.policies.choosing import SamplerPolicy as Own\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "program").write_text("import sys\nfrom kernelgym_env.cli import main\nsys.exit(main())\n")
    arguments = ["run", "run", "--policy", "own:Own", "--tasks", "core", "--limit", "1", "--pool", "fake", "--json"]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "bin" / "program"), *arguments],
        env=ENVIRONMENT,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


# --- as a process

COMMAND = [
    *(sys.executable, "-m", "kernelgym_env.cli", "run"),
    *("--policy", "sampler", "--tasks", "core", "--limit", "5", "--turns", "4", "--samples", "6"),
]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}


def command(folder: Path, *more: str) -> list[str]:
    return [*COMMAND[:4], str(folder), *COMMAND[4:], "--pool", "simulated", *more]


def finish(folder: Path, *more: str) -> dict:
    done = subprocess.run(
        command(folder, "--json", *more), env=ENVIRONMENT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("at_once", ["0", "-1"])
def test_nothing_is_played_side_by_side_with_less_than_one(tmp_path, at_once):
    assert main(["run", str(tmp_path / "run"), *command(tmp_path)[5:], "--at-once", at_once]) == 2


@pytest.mark.parametrize("at_once", [0, 1.5, "2", True, None])
def test_what_is_no_number_of_episodes_side_by_side(tmp_path, at_once):
    with pytest.raises(InvalidOptionError, match="at_once must be a whole number of at least 1"):
        played(tmp_path / "run", plan(), at_once=at_once)


LIMITED = """
import resource, sys
from kernelgym_env.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(main(sys.argv[2:]))
"""


def limited(size: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, in a process that can write no file beyond a size: to it the disk is full then."""
    given = [sys.executable, "-c", LIMITED, str(size), *arguments]
    return subprocess.run(given, env=ENVIRONMENT, capture_output=True, text=True, timeout=240)


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of resources")
def test_a_full_disk_ends_a_run_with_a_message_and_loses_nothing(tmp_path):
    run = command(tmp_path / "run", "--at-once", "2")[3:]
    done = limited(60_000, *run)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot be written to" in done.stderr
    assert "What was recorded is kept; the same command goes on behind it." in done.stderr
    told = sum(": " in line and not line.startswith("kernelgym") for line in done.stderr.splitlines())
    recorded = [(record.episode_id, record.turn) for record in Run(tmp_path / "run").store.records()]
    assert 0 < told <= len(recorded) < 120
    assert limited(200, *command(tmp_path / "other")[3:]).returncode == 2  # not even the plan can be written
    finish(tmp_path / "run", "--at-once", "2")
    finish(tmp_path / "whole", "--at-once", "2")
    assert plain(Run(tmp_path / "run")) == plain(Run(tmp_path / "whole"))


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of resources")
def test_a_full_disk_ends_a_search_with_a_message_and_loses_nothing(tmp_path):
    search = ["search", str(tmp_path), "--policy", "sampler", "--tasks", "KernelGym/RowSum", "--pool", "simulated"]
    search += ["--method", "best_of_n", "--n", "40", "--at-once", "4", "--json"]
    done = limited(60_000, *search)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "the same command goes on behind it" in done.stderr
    store = Store(tmp_path / "KernelGym-RowSum" / TURNS)
    before = [record.to_dict() for record in store.records()]
    assert 0 < len(before) < 40
    assert main(search) == 0
    after = [record.to_dict() for record in store.records()]
    assert after[: len(before)] == before
    assert len({record["episode_id"] for record in after}) == len(after) == 40
    done = limited(10, *[str(tmp_path / "other") if part == str(tmp_path) else part for part in search])
    assert done.returncode == 2
    assert "search.json' cannot be written" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_kill_9_at_random_moments_loses_and_doubles_nothing(tmp_path):
    whole = finish(tmp_path / "whole")
    folder, chance = tmp_path / "run", random.Random(8)
    told: set[str] = set()
    kills = 0
    while kills < 20:
        with subprocess.Popen(
            command(folder, "--at-once", "3"),
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stderr is not None
            for _ in range(chance.randrange(1, 5)):
                if line := child.stderr.readline():
                    told.add(line.partition(" ")[2].partition(":")[0])
            time.sleep(chance.random() * 0.004)
            child.kill()
            child.communicate(timeout=60)
        kills += 1
        recorded = [(record.episode_id, record.turn) for record in Run(folder).store.records()]
        assert len(recorded) == len(set(recorded))
        assert told <= {f"{episode} turn {turn}" for episode, turn in recorded}
    found = finish(folder, "--at-once", "3")
    assert plain(Run(folder)) == plain(Run(tmp_path / "whole"))
    for name in ("figures", "levels", "turns", "statuses", "tasks", "notes"):
        assert found[name] == whole[name]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a process group")
def test_ctrl_c_records_the_turns_in_flight(tmp_path):
    folder = tmp_path / "run"
    with subprocess.Popen(
        command(folder, "--at-once", "3"),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stderr is not None
        child.stderr.readline()
        os.killpg(child.pid, signal.SIGINT)
        said = child.communicate(timeout=60)[1]
    assert child.returncode in (130, 0)
    assert "Traceback" not in said
    finish(folder, "--at-once", "3")
    counts = Counter((record.episode_id, record.turn) for record in Run(folder).store.records())
    assert len(counts) == 120
    assert set(counts.values()) == {1}


def test_ctrl_c_is_told_before_the_turns_in_flight_are_waited_for(tmp_path):
    class Interrupted(SamplerPolicy):
        def act(self, observations):
            signal.raise_signal(signal.SIGINT)
            return super().act(observations)

    said: list[str] = []
    run = Run(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        play(run, run.start(plan()), TASKS, Interrupted(), interrupted=lambda: said.append("told"))
    assert said == ["told"]
    assert plain(played(tmp_path / "run", plan())) == plain(played(tmp_path / "whole", plan()))


def test_two_processes_do_not_play_the_same_run(tmp_path):
    run = Run(tmp_path / "run")
    finish(tmp_path / "run")
    with run.locked():
        done = subprocess.run(command(tmp_path / "run"), env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "Another process is playing" in done.stderr


def test_a_judge_that_was_killed_with_its_run_is_gone_and_the_run_goes_on(tmp_path):
    """Real evaluations: the first episode's C++ on this machine's CPU."""
    folder = tmp_path / "run"
    wanted = [*COMMAND[:4], str(folder), "--policy", "first_episode", "--tasks", "KernelGym/ElementwiseChain"]
    wanted += ["--device", "cpu", "--turns", "3", "--json"]
    with subprocess.Popen(wanted, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert "turn 1: wrong" in child.stderr.readline()
        child.kill()
        child.communicate(timeout=60)
    done = subprocess.run(wanted, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["statuses"] == {"wrong": 1, "correct": 1, "compile_error": 1}
    (episode,) = Run(folder).episodes()
    assert [record.turn for record in episode] == [1, 2, 3]
    assert (folder / TURNS).exists()
