import math
import re

import numpy as np
import pytest
from wrapper_helpers import BAD, FAULT, GOOD, ScriptedEnv, fake, kernel, play

import kernelgym_env
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.wrappers import (
    AntiHack,
    ChatObservation,
    ExtractCode,
    HistoryPrompt,
    MilestoneReward,
    RecordTrajectory,
    TurnReturns,
)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "folder" / "run.jsonl")


def test_every_turn_is_recorded_with_what_the_policy_saw(path):
    env = RecordTrajectory(fake(turns=3), path, run_id="run", versions={"policy": "7"})
    observation, info = env.reset(seed=0)
    prompts = [kernelgym_env.messages(observation)]
    for action in (BAD, GOOD, "nothing"):
        observation, *_ = env.step(action)
        prompts.append(kernelgym_env.messages(observation))
    (episode,) = env.store.episodes()
    assert [record.prompt for record in episode] == prompts[:-1]
    assert [record.action for record in episode] == [BAD, GOOD, "nothing"]
    assert [record.turn for record in episode] == [1, 2, 3]
    assert [(record.score, record.reward) for record in episode] == [(0, 0), (2.3, 2.3), (0, 0)]
    assert [(record.terminated, record.truncated) for record in episode] == [(False, False)] * 2 + [(True, False)]
    assert {(record.run_id, record.task_id, record.valid) for record in episode} == {
        ("run", "KernelGym/ElementwiseChain", True)
    }
    assert {record.episode_id for record in episode} == {info["episode_id"]}
    assert set(episode[0].versions) == {"kernelgym_env", "gymnasium", "python", "policy"}
    evaluation = Evaluation.from_dict(episode[1].evaluation)
    assert (evaluation.speedup, evaluation.times["candidate"].median_us) == (2.0, 50.0)
    assert math.isnan(Evaluation.from_dict(episode[0].evaluation).speedup)


def test_it_records_what_leaves_the_wrappers_inside(path):
    env = TurnReturns(AntiHack(MilestoneReward(fake()), cost="minus_one_end"))
    env = RecordTrajectory(HistoryPrompt(env), path)
    play(env, [f"<think>Long.</think>\n```\n{kernel(2.0)}\n```", kernel(status="integrity")])
    (episode,) = env.store.episodes()
    assert [(record.reward, record.score, record.terminated) for record in episode] == [(2, 2, False), (-1, -1, True)]
    assert "Long." in episode[0].action
    assert "Long." not in str(episode[1].prompt)


def test_the_reply_is_recorded_although_the_code_alone_goes_in(path):
    env = RecordTrajectory(ExtractCode(fake()), path)
    play(env, [f"Talk.\n```\n{GOOD}\n```"])
    assert next(env.store.records()).action.startswith("Talk.")


def test_chats_are_recorded_as_they_are(path):
    env = RecordTrajectory(ChatObservation(fake(), system="Be fast."), path)
    chat, _ = env.reset()
    env.step(GOOD)
    assert next(env.store.records()).prompt == list(chat)


def test_a_fault_is_recorded_as_invalid(path):
    env = RecordTrajectory(fake(), path)
    play(env, [FAULT])
    record = next(env.store.records())
    assert (record.valid, record.truncated, record.terminated, record.reward) == (False, True, False, 0.0)


def test_each_reset_is_a_new_episode_and_an_unfinished_one_is_kept(path):
    env = RecordTrajectory(fake(turns=2), path)
    first = env.reset()[1]["episode_id"]
    env.step(GOOD)
    second = env.reset()[1]["episode_id"]
    env.step(GOOD)
    assert env.step(GOOD)[4]["episode_id"] == second
    assert [len(episode) for episode in env.store.episodes()] == [1, 2]
    assert first != second
    assert re.fullmatch("[0-9a-f]{32}", first)


def test_tokens_belong_to_the_next_turn_only(path):
    env = RecordTrajectory(fake(), path)
    env.reset()
    env.annotate(tokens=np.array([5, 7]), logprobs=[-0.5, float("-inf")])
    env.step(GOOD)
    env.step(GOOD)
    one, two = env.store.records()
    assert (one.tokens, one.logprobs) == ([5, 7], [-0.5, -math.inf])
    assert (two.tokens, two.logprobs) == (None, None)
    env.annotate(tokens=[1])
    env.reset()
    env.step(GOOD)
    assert list(env.store.records())[-1].tokens is None
    with pytest.raises(InvalidOptionError, match="2 tokens and 1 logprobs"):
        env.annotate(tokens=[1, 2], logprobs=[0.0])


def test_a_foreign_environment(path):
    env = RecordTrajectory(ScriptedEnv([{}, {"score": 1.0}], [0.5, 0.25], observation=np.array([1, 2])), path)
    play(env, [np.int64(1), 0])
    one, two = env.store.records()
    assert (one.prompt, one.action, one.score, one.reward, one.evaluation) == ([1, 2], 1, 0.5, 0.5, {})
    assert (two.score, two.reward, two.terminated) == (1.0, 0.25, True)


def test_what_cannot_be_written_raises(tmp_path):
    (tmp_path / "file").write_text("")
    env = RecordTrajectory(fake(), str(tmp_path / "file" / "run.jsonl"))
    env.reset()
    with pytest.raises(OSError, match="file"):
        env.step(GOOD)
    env = RecordTrajectory(ScriptedEnv([{}], observation=object()), str(tmp_path / "run.jsonl"))
    env.reset()
    with pytest.raises(InvalidOptionError, match="prompt holds a object"):
        env.step(0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": ""}, "path must be"),
        ({"path": 3}, "path must be"),
        ({"run_id": 3}, "run_id must be"),
        ({"versions": {"policy": 7}}, "versions must be"),
    ],
)
def test_wrong_arguments(path, arguments, said):
    with pytest.raises(InvalidOptionError, match=said):
        RecordTrajectory(fake(), **{"path": path, **arguments})
