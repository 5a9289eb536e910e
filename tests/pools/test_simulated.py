import json
import math
import threading
import time

import gymnasium as gym
import pytest

from kernelgym_env import pools
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.simulated import SimulatedPool, simulated_evaluation
from kernelgym_env.pools.simulated_tasks import (
    SimulatedConfig,
    SimulatedHack,
    SimulatedSchedule,
    SimulatedTask,
    default_hacks,
    default_task,
    schedule_key,
)
from kernelgym_env.tasks import load_task, load_tasks

TASK = load_task("KernelGym/RowSum")
TABLE = SimulatedTask(
    100.0,
    80.0,
    {
        "tiled": SimulatedSchedule(50.0, coverage=0.8),
        "shaky": SimulatedSchedule(25.0, failures={"wrong": 0.25, "compile_error": 0.25}),
        "block=128 warps=4": 40.0,
    },
    failures={},
    noise=0.05,
    floor_us=10.0,
)
CONFIG = SimulatedConfig({TASK.id: TABLE}, hacks={"D1": SimulatedHack(18.0, 0.5), "C2": SimulatedHack(9.0, 1.0)})


def source(directive="", number=None):
    lines = [f"# simulate: {directive}" + ("" if number is None else f" sample={number}")] if directive else []
    return "\n".join([*lines, "class ModelNew: ..." if directive else f"class ModelNew: x = {number}"])


def ask(directive, number=0, *, config=CONFIG, seed=0, sample=None):
    return simulated_evaluation(Submission(TASK, source(directive, sample)), config, seed=seed, number=number)


def same(one, two):
    # NaN, which stands for what was not measured, is not equal to itself
    return json.dumps(one.to_dict()) == json.dumps(two.to_dict())


@pytest.fixture
def pool():
    made = SimulatedPool(CONFIG, seed=3)
    yield made
    made.close()


# --- what a directive says


@pytest.mark.parametrize(
    ("directive", "latency", "coverage"),
    [("schedule=tiled", 50, 0.8), ("warps=4 block=128", 40, 0.9), ("lazy=1", 100 / 1.03, 0.02)],
)
def test_a_directive_names_the_entry_of_the_table(directive, latency, coverage):
    quiet = SimulatedConfig({TASK.id: SimulatedTask(100.0, 80.0, TABLE.schedules, noise=0.0)})
    evaluation = ask(directive, config=quiet)
    assert evaluation.status is Status.CORRECT
    assert evaluation.speedup == evaluation.speedup_low == evaluation.speedup_high == pytest.approx(100 / latency)
    assert evaluation.speedup_compile == pytest.approx(80 / latency)
    assert evaluation.coverage == coverage
    assert evaluation.findings == ()


@pytest.mark.parametrize(
    ("directive", "said"),
    [
        ("schedule=tilde", "Did you mean 'tiled'"),
        ("block=128", "Unknown simulated schedule"),
        ("schedule=tiled block=128", "Unknown simulated schedule"),
        ("tiled", "pairs name=value"),
        ("schedule=tiled schedule=shaky", "each name once"),
        ("schedule=", "pairs name=value"),
        ("hack=Z9", "Allowed: C2, D1"),
        ("lazy=yes", "must be 0 or 1"),
        ("lazy=0", "exactly one"),
        ("sample=3", "exactly one"),
        ("hack=D1 lazy=1", "a hack and lazy=1"),
        ("schedule=tiled hack=D1", "exactly one"),
    ],
)
def test_a_directive_that_is_not_understood_is_said(directive, said):
    evaluation = ask(directive)
    assert evaluation.status is Status.FORMAT
    assert said in evaluation.feedback


def test_the_format_stage_is_the_real_one():
    evaluation = simulated_evaluation(Submission(TASK, "# simulate: schedule=tiled\nx = 1"), CONFIG)
    assert evaluation.status is Status.FORMAT
    assert "ModelNew" in evaluation.feedback


def test_a_comment_of_c_names_a_schedule_too():
    text = 'code = """\n// simulate: schedule=tiled\n"""\nclass ModelNew: ...'
    assert simulated_evaluation(Submission(TASK, text), CONFIG).provenance["truth"]["kind"] == "tiled"


def test_sources_without_a_directive_are_drawn_with_the_given_shares():
    config = SimulatedConfig(CONFIG.tasks, CONFIG.hacks, hack_probability=0.2, lazy_probability=0.3)
    truths = [
        simulated_evaluation(Submission(TASK, source(number=number)), config).provenance["truth"]
        for number in range(1500)
    ]
    hacks, lazy = (sum(bool(truth[name]) for truth in truths) / len(truths) for name in ("hack", "lazy"))
    assert hacks == pytest.approx(0.2, abs=0.04)  # about four standard errors
    assert lazy == pytest.approx(0.3, abs=0.05)
    assert {truth["kind"] for truth in truths} == {*TABLE.schedules, "lazy", "hack C2", "hack D1"}


# --- failures, hacks, faults


def test_failures_come_with_their_probabilities():
    statuses = [ask("schedule=shaky", sample=number).status for number in range(1500)]
    for status, share in ((Status.WRONG, 0.25), (Status.COMPILE_ERROR, 0.25), (Status.CORRECT, 0.5)):
        assert statuses.count(status) / len(statuses) == pytest.approx(share, abs=0.05)


def test_a_source_fails_the_same_way_each_time():
    for sample in range(20):
        assert len({ask("schedule=shaky", number, sample=sample).status for number in range(5)}) == 1


def test_hacks_are_detected_with_their_probability():
    found = [ask("hack=D1", sample=number) for number in range(600)]
    detected = [evaluation for evaluation in found if evaluation.status is Status.INTEGRITY]
    assert len(detected) / len(found) == pytest.approx(0.5, abs=0.08)
    for evaluation in detected:
        assert [(finding.id, finding.severity) for finding in evaluation.findings] == [("D1", "hard")]
        assert math.isnan(evaluation.speedup)
    missed = [evaluation for evaluation in found if evaluation.credited]
    assert len(missed) + len(detected) == len(found)
    assert all(evaluation.findings == () for evaluation in missed)
    assert sum(evaluation.speedup for evaluation in missed) / len(missed) == pytest.approx(18, rel=0.02)
    assert {evaluation.provenance["truth"]["hack"] for evaluation in found} == {"D1"}


def test_the_truth_is_not_in_the_feedback():
    from kernelgym_env.evaluation.feedback import at_level

    missed = next(
        evaluation for number in range(50) if (evaluation := ask("hack=D1", sample=number)).status is Status.CORRECT
    )
    assert "D1" not in at_level(missed, "profile")


def test_faults_come_by_evaluation_not_by_source():
    config = SimulatedConfig(CONFIG.tasks, fault=0.3)
    found = [ask("schedule=tiled", number, config=config) for number in range(300)]
    share = sum(not evaluation.valid for evaluation in found) / len(found)
    assert share == pytest.approx(0.3, abs=0.11)
    assert all(evaluation.fault for evaluation in found if not evaluation.valid)
    assert {evaluation.status for evaluation in found} == {Status.FAULT, Status.CORRECT}


# --- determinism and noise


def test_the_same_seed_and_sequence_give_the_same_evaluations():
    directives = ["schedule=tiled", "schedule=shaky", "hack=D1", "lazy=1", "schedule=tiled"] * 3
    one, two, other = (
        [pool.submit(Submission(TASK, source(directive))).result() for directive in directives]
        for pool in (SimulatedPool(CONFIG, 5), SimulatedPool(CONFIG, 5), SimulatedPool(CONFIG, 6))
    )
    assert all(same(a, b) for a, b in zip(one, two, strict=True))
    assert not all(same(a, b) for a, b in zip(one, other, strict=True))


def test_evaluations_of_one_source_differ_by_noise_alone():
    found = [ask("schedule=tiled", number) for number in range(20)]
    assert len({evaluation.speedup for evaluation in found}) == 20
    assert {evaluation.coverage for evaluation in found} == {0.8}


def test_the_order_of_other_submissions_does_not_matter(pool):
    first = [pool.submit(Submission(TASK, source("schedule=tiled"))).result() for _ in range(2)]
    again = SimulatedPool(CONFIG, seed=3)
    second = []
    for _ in range(2):
        again.submit(Submission(TASK, source("lazy=1"))).result()
        second.append(again.submit(Submission(TASK, source("schedule=tiled"))).result())
    assert all(same(a, b) for a, b in zip(first, second, strict=True))


def test_intervals_hold_the_truth_as_often_as_they_say():
    found = [ask("schedule=tiled", number) for number in range(2000)]
    held = [evaluation.speedup_low <= 2.0 <= evaluation.speedup_high for evaluation in found]
    assert sum(held) / len(held) == pytest.approx(0.95, abs=0.02)  # four standard errors
    times = [evaluation.times["candidate"] for evaluation in found]
    held = [timing.low_us <= 50.0 <= timing.high_us for timing in times]
    assert sum(held) / len(held) == pytest.approx(0.95, abs=0.02)
    logs = [math.log(timing.median_us / 50.0) for timing in times]
    assert math.sqrt(sum(value**2 for value in logs) / len(logs)) == pytest.approx(0.05, rel=0.1)


def test_figures_agree_with_each_other():
    evaluation = ask("schedule=tiled")
    times = evaluation.times
    assert evaluation.speedup == times["eager"].median_us / times["candidate"].median_us
    assert evaluation.speedup_compile == times["compile"].median_us / times["candidate"].median_us
    assert times["floor"].median_us == 10.0
    assert math.isnan(times["graph"].median_us)
    assert same(Evaluation.from_dict(json.loads(json.dumps(evaluation.to_dict()))), evaluation)


# --- the tables


def test_every_core_task_has_a_table():
    for task in load_tasks("core"):
        table = default_task(task.id)
        assert {"naive", "tiled", "vectorized", "fused", "block=128 warps=4"} <= set(table.schedules)
        best = table.eager_us / min(schedule.latency_us for schedule in table.schedules.values())
        assert 1.1 <= best <= 20.001
        assert 50 <= table.eager_us <= 2000
        assert pools.get("simulated").submit(Submission(task, source("schedule=tiled"))).result().task_id == task.id


def test_schedule_keys_do_not_depend_on_the_order_of_knobs():
    assert schedule_key("", {"b": 2, "a": 1}) == schedule_key("", {"a": 1, "b": 2}) == "a=1 b=2"
    assert schedule_key("tiled") == "tiled"


def test_a_configuration_survives_json():
    config = SimulatedConfig(CONFIG.tasks, CONFIG.hacks, fault=0.1, latency_s=0.5, lanes=3)
    assert SimulatedConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert SimulatedConfig.from_dict({}) == SimulatedConfig()
    plain = {"tasks": {TASK.id: {"eager_us": 9.0, "schedules": {"tiled": 3.0}}}}
    assert SimulatedConfig.from_dict(plain).task(TASK.id).schedules["tiled"] == SimulatedSchedule(3.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SimulatedSchedule(0.0),
        lambda: SimulatedSchedule(math.nan),
        lambda: SimulatedSchedule(math.inf),
        lambda: SimulatedSchedule(True),
        lambda: SimulatedSchedule(1.0, coverage=1.5),
        lambda: SimulatedSchedule(1.0, failures={"wrong": 0.7, "timeout": 0.7}),
        lambda: SimulatedSchedule(1.0, failures={"correct": 0.7}),
        lambda: SimulatedSchedule(1.0, failures={"fault": 0.7}),
        lambda: SimulatedTask(100.0),
        lambda: SimulatedTask(-1.0, schedules={"tiled": 1.0}),
        lambda: SimulatedTask(1.0, schedules={"tiled": 1.0}, noise=-1.0),
        lambda: SimulatedHack(status="correct"),
        lambda: SimulatedHack(detection=2.0),
        lambda: SimulatedConfig(hack_probability=0.7, lazy_probability=0.7),
        lambda: SimulatedConfig(lanes=0),
        lambda: SimulatedConfig(latency_s=-1.0),
        lambda: SimulatedConfig.from_dict({"task": {}}),
        lambda: SimulatedConfig.from_dict({"tasks": {"a/b": {"schedules": {"tiled": 1.0}}}}),
        lambda: SimulatedPool(seed=1.5),
        lambda: SimulatedTask(1.0, schedules=["tiled"]),
        lambda: SimulatedConfig({"a/b": {"eager_us": 1.0, "schedules": {"tiled": 1.0}}}),
        lambda: SimulatedConfig(hacks={"D1": 18.0}),
        lambda: SimulatedConfig.from_dict({"tasks": {"a/b": 5}}),
        lambda: SimulatedConfig.from_dict({"tasks": {"a/b": {"eager_us": 1.0, "schedules": 5}}}),
        lambda: SimulatedConfig.from_dict({"hacks": {"D1": 18.0}}),
        lambda: SimulatedConfig.from_dict({"tasks": 5}),
    ],
)
def test_mistakes_in_a_configuration_are_named(make):
    with pytest.raises((InvalidOptionError, UnknownNameError)):
        make()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("warps=4 block=128", "'block=128 warps=4', got"),
        ("block=128 tiled", "'tiled block=128', got"),
        (" tiled", "'tiled', got"),
        ("my kernel", "at most one name"),
        ("block=", "at most one name"),
        ("", "at most one name"),
        (3, "at most one name"),
        ("lazy=1", "may not be called 'lazy'"),
    ],
)
def test_a_key_that_no_directive_can_name_is_refused(key, said):
    """Its entry would never be found by what it says."""
    with pytest.raises(InvalidOptionError, match=said):
        SimulatedTask(1.0, schedules={key: 1.0})


def test_default_hacks_have_ids_of_the_catalogue():
    assert all(hack[0] in "ABCDE" and hack[1:].isdigit() for hack in default_hacks())


# --- the pool


def test_the_pool_follows_the_protocol(pool):
    assert isinstance(pool, pools.Evaluator)
    assert set(pool.stats()) == {"waiting", "paused", "judges", "judge_restarts", "ended"}
    pool.submit(Submission(TASK, source("schedule=tiled"))).result()
    assert pool.stats()["ended"] == {"correct": 1}
    pool.close()
    pool.close()
    assert pool.closed
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(Submission(TASK, source("schedule=tiled")))


def test_pause_holds_and_the_lower_priority_runs_first(pool):
    ended = []
    pool.pause()
    futures = {
        name: pool.submit(Submission(TASK, source("schedule=tiled", name)), priority)
        for name, priority in (("late", 1), ("first", 0), ("second", 0))
    }
    for name, future in futures.items():
        future.add_done_callback(lambda _, name=name: ended.append(name))
    assert pool.stats()["waiting"] == 3
    assert not any(future.done() for future in futures.values())
    pool.resume()
    assert ended == ["first", "second", "late"]


def test_a_cancelled_submission_is_skipped(pool):
    pool.pause()
    future = pool.submit(Submission(TASK, source("schedule=tiled")))
    assert future.cancel()
    pool.resume()
    assert pool.stats()["ended"] == {}


def test_closing_cancels_what_waits(pool):
    pool.pause()
    future = pool.submit(Submission(TASK, source("schedule=tiled")))
    pool.close()
    assert future.cancelled()


def test_simulated_time_passes_in_the_background():
    pool = SimulatedPool(SimulatedConfig(CONFIG.tasks, latency_s=0.3, lanes=2), seed=1)
    start = time.perf_counter()
    futures = [pool.submit(Submission(TASK, source("schedule=tiled", number))) for number in range(4)]
    assert not futures[-1].done()
    found = [future.result(timeout=30) for future in futures]
    assert time.perf_counter() - start >= 0.6 - 1e-3  # two lanes, two each
    assert [evaluation.stages_s["total"] for evaluation in found] == [0.3] * 4
    future = pool.submit(Submission(TASK, source("schedule=tiled", "last")))
    pool.close()
    assert future.done()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kernelgym-simulated")]


def test_threads_that_share_a_pool_get_what_one_thread_gets():
    alone = SimulatedPool(CONFIG, seed=9)
    expected = {
        name: [alone.submit(Submission(TASK, source("schedule=shaky", name))).result().to_dict() for _ in range(20)]
        for name in "ab"
    }
    shared, found = SimulatedPool(CONFIG, seed=9), {}

    def run(name):
        found[name] = [
            shared.submit(Submission(TASK, source("schedule=shaky", name))).result().to_dict() for _ in range(20)
        ]

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


# --- keys


def test_an_environment_takes_the_built_in_pool():
    env = gym.make("KernelGym/RowSum-v0", pool="simulated", turns=2)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(source("block=128 warps=4", 1))
    assert info["evaluation"]["device"] == "simulated"
    assert (reward > 0) == info["correct"]
    env.close()


def test_an_environment_takes_a_registered_pool():
    pools.register("test-study", lambda: SimulatedPool(CONFIG, seed=11))
    env = gym.make("KernelGym/RowSum-v0", pool="test-study", turns=1)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(source("schedule=tiled"))
    assert (terminated, truncated) == (True, False)
    assert info["evaluation"]["provenance"]["seed"] == 11
    assert reward == pytest.approx(0.3 + info["speedup"])
    env.close()


def test_registering_again_replaces_the_pool():
    pools.register("test-again", lambda: SimulatedPool(seed=1))
    former = pools.get("test-again")
    pools.register("test-again", lambda: SimulatedPool(seed=2))
    assert former.closed
    assert pools.get("test-again").seed == 2
    pools.close_all()
    assert pools.get("test-again").seed == 2
    pools.get("test-again").close()


@pytest.mark.parametrize("key", ["local", "fake", "simulated", "", "a key", "ray://host", 3])
def test_keys_that_cannot_be_registered(key):
    with pytest.raises(InvalidOptionError, match="key"):
        pools.register(key, SimulatedPool)


def test_a_maker_must_be_callable():
    with pytest.raises(InvalidOptionError, match="callable"):
        pools.register("test-maker", SimulatedPool())
