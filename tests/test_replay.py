import json

import gymnasium as gym
import numpy as np
import pytest

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.result import Evaluation, Status, Timing
from kernelgym_env.recipes import recipe, recipe_names
from kernelgym_env.replay import COLUMNS, columns, replay
from kernelgym_env.store import Store
from kernelgym_env.wrappers import KevinReward, RecordTrajectory

WRONG, FAULT = Evaluation("a/b", Status.WRONG), Evaluation("a/b", Status.FAULT)


def correct(speedup, coverage=0.9, compiled=1.0, task="a/b"):
    times = {"candidate": Timing(1 / speedup), "eager": Timing(1.0), "compile": Timing(compiled)}
    return Evaluation(
        task,
        Status.CORRECT,
        speedup=speedup,
        speedup_compile=compiled * speedup,
        coverage=coverage,
        times=times,
    )


EPISODES = [[WRONG, correct(1.0), correct(1.5)], [WRONG, WRONG, WRONG]]


def pick(rows, name, channel="score"):
    return [row for row in rows if row["recipe"] == name and row["channel"] == channel]


def test_every_recipe_pays_and_credits_the_same_turns():
    rows = replay(EPISODES)
    assert [name for name in dict.fromkeys(row["recipe"] for row in rows)] == recipe_names()
    assert len(rows) == 7 * 6  # TritonRL has two channels
    for row in rows:
        assert tuple(row) == COLUMNS
        turn = EPISODES[row["episode"]][row["turn"] - 1]
        assert row["status"] == turn.status.value
        assert (row["group"], row["task_id"], row["counts"]) == ("a/b", "a/b", True)
        if row["channel"] == "score":
            assert row["score"] == recipe(row["recipe"]).reward(turn)


def test_kevin_is_the_worked_example():
    rows = pick(replay(EPISODES), "kevin")
    assert [row["return"] for row in rows] == pytest.approx([0.808, 2.02, 1.8, 0, 0, 0])
    assert [row["advantage"] for row in rows] == pytest.approx([0.0428, 1.457543, 1.200742, *[-0.900362] * 3], abs=1e-6)


def test_dr_kernel_is_the_worked_example_without_coverage():
    episode = [correct(speedup, coverage=0.0) for speedup in (1.04, 1.21, 1.45)]
    rows = pick(replay([episode]), "dr_kernel")
    assert [row["return"] for row in rows] == pytest.approx([6.70, 4.66, 2.45])
    assert [row["advantage"] for row in rows] == pytest.approx([6.70, 4.66, 2.45])  # alone: no baseline
    assert [row["keep"] for row in rows] == [0.0] * 3


def test_cuda_agent_is_paid_for_the_last_kernel():
    rows = pick(replay([[correct(1.5), WRONG], [WRONG, correct(1.5)]]), "cuda_agent")
    assert [row["score"] for row in rows] == [3, -1, -1, 3]
    assert [row["return"] for row in rows] == [-1, -1, 3, 3]
    assert [row["advantage"] for row in rows] == pytest.approx([-0.95, -1, 2.85, 3])


def test_tritonrl_has_a_row_for_each_kind_of_token():
    rows = replay([[correct(2.0)], [correct(1.0)], [WRONG]], ["tritonrl"])
    plan, code = pick(rows, "tritonrl", "plan"), pick(rows, "tritonrl", "code")
    assert [row["score"] for row in plan] == [2.0, 1.0, 0.0]
    assert [row["score"] for row in code] == [1.0, 1.0, 0.0]
    assert [row["weight"] for row in (*plan, *code)] == [0.1] * 3 + [1.0] * 3
    assert plan[0]["advantage"] > plan[1]["advantage"]
    assert code[0]["advantage"] == code[1]["advantage"]


def test_faults_are_in_no_return_and_no_group():
    for name in recipe_names():
        rows = replay([[correct(1.0), FAULT], [correct(2.0), correct(1.0)], [WRONG]], [name])
        lost = [row for row in rows if row["episode"] == 0 and row["turn"] == 2]
        for row in lost:
            assert not row["counts"]
            assert np.isnan([row["score"], row["return"]]).all()
            assert (row["advantage"], row["keep"]) == (0.0, 0.0)
    kevin = pick(replay([[correct(1.0), FAULT], [correct(2.0)]]), "kevin")
    assert [row["advantage"] for row in kevin] == pytest.approx([-1, 0, 1])
    # an episode that a fault ended has no last kernel
    agent = pick(replay([[correct(1.0), FAULT], [correct(2.0)]]), "cuda_agent")
    assert [row["counts"] for row in agent] == [False, False, True]


def test_a_task_that_cannot_be_judged_does_not_count():
    rows = replay([[Evaluation("a/b", Status.TASK_INVALID)]], ["cuda_agent"])
    assert [(row["counts"], row["advantage"]) for row in rows] == [(False, 0.0)]


def test_groups():
    episodes = [[correct(1.0, task="a/b")], [correct(3.0, task="a/b")], [correct(9.0, task="c/d")]]
    by_task = pick(replay(episodes), "kevin")
    assert [row["advantage"] for row in by_task] == pytest.approx([-1, 1, 0])
    together = pick(replay(episodes, groups=["x", "x", "x"]), "kevin")
    assert together[2]["advantage"] > 1
    apart = pick(replay(episodes, groups=lambda place: ("prompt", place)), "kevin")
    assert [row["advantage"] for row in apart] == [0, 0, 0]
    assert apart[1]["group"] == ("prompt", 1)


def test_rows_as_arrays():
    table = columns(replay([*EPISODES, [correct(2.0, task="c/d")]]))
    assert tuple(table) == COLUMNS
    assert {len(values) for values in table.values()} == {7 * 7}
    assert table["score"].dtype == np.float64
    assert table["turn"].dtype == np.int64
    assert table["counts"].dtype == np.bool_
    nothing = columns([])
    assert nothing["score"].shape == (0,)
    assert {name: values.dtype.kind for name, values in nothing.items()} == {
        name: values.dtype.kind for name, values in table.items()
    }


def test_groups_that_are_tuples_stay_whole():
    table = columns(replay([[WRONG], [WRONG]], ["kevin"], groups=[("a", 1), ("b", 2)]))
    assert table["group"].tolist() == [("a", 1), ("b", 2)]


def test_a_coverage_above_one_by_rounding_is_one():
    rows = replay([[Evaluation("a/b", "correct", speedup=1.0, coverage=1.0 + 1e-9)]], ["dr_kernel"])
    assert rows[0]["keep"] == 1.0


def test_the_last_kernel_is_credited_across_a_turn_that_cannot_be_judged():
    rows = pick(replay([[correct(1.5), Evaluation("a/b", "task_invalid"), correct(1.5)]]), "cuda_agent")
    assert [row["advantage"] for row in rows] == pytest.approx([3 * 0.95**2, 0, 3])


def test_nothing_to_replay():
    assert replay([]) == []
    with pytest.raises(UnknownNameError, match="kevin"):
        replay(EPISODES, ["kevn"])


@pytest.mark.parametrize(
    ("episodes", "groups", "said"),
    [
        ([[]], None, "at least one turn"),
        (["text"], None, "at least one turn"),
        ([{"steps": []}], None, "at least one turn"),
        ([[3]], None, "no evaluation"),
        ([[{"score": 1.0}]], None, "no evaluation"),
        ([[{"evaluation": 3}]], None, "or its data"),
        ([[WRONG, correct(1.0, task="c/d")]], None, "one task"),
        ([[WRONG]], ["a", "b"], "each of the 1 episodes"),
    ],
)
def test_mistakes_are_named(episodes, groups, said):
    with pytest.raises(InvalidOptionError, match=said):
        replay(episodes, groups=groups)


def test_forms_of_an_episode():
    plain = replay(EPISODES)
    infos = [[{"score": 0.0, "evaluation": turn.to_dict()} for turn in turns] for turns in EPISODES]
    as_json = [{"turns": turns} for turns in json.loads(json.dumps(infos))]
    for form in (infos, as_json):
        assert json.dumps(replay(form)) == json.dumps(plain)


def test_a_stored_run(tmp_path):
    store = Store(tmp_path / "run.jsonl")
    env = RecordTrajectory(KevinReward(gym.make("KernelGym/Fake-v0", turns=3)), path=str(store.path))
    for directives in (("status=wrong", "speedup=1.0", "speedup=1.5"), ("status=wrong", "<stop>")):
        env.reset(seed=0)
        for directive in directives:
            env.step(directive if directive == "<stop>" else f"# fake: {directive}\nclass ModelNew: ...")
    env.close()
    rows = replay(store.episodes(), ["kevin"])
    assert [row["return"] for row in rows] == pytest.approx([0.808, 2.02, 1.8, 0.0, np.nan], nan_ok=True)
    assert [row["status"] for row in rows] == ["wrong", "correct", "correct", "wrong", ""]
    assert [row["counts"] for row in rows] == [True, True, True, True, False]
