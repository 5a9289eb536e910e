import pytest
from wrapper_helpers import BAD, FAULT, ScriptedEnv, fake, kernel, play

from kernelgym_env.env import STOP
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.wrappers import MilestoneReward, TerminalOnly, TurnReturns

ACTIONS = [kernel(1.0), kernel(2.0), kernel(1.5), BAD]


@pytest.mark.parametrize(("mode", "total"), [("sum", 5.4), ("last", 0.0), ("best", 2.3)])
def test_it_pays_at_the_end_only(mode, total):
    earned, infos = play(TerminalOnly(fake(), mode), ACTIONS)
    assert earned == pytest.approx([0, 0, 0, total])
    assert [type(value) for value in earned] == [float] * 4
    assert [info["score"] for info in infos] == [1.3, 2.3, 1.8, 0.0]


def test_a_stop_has_no_score():
    env = TerminalOnly(MilestoneReward(fake()), "last")
    assert play(env, [kernel(2.0), STOP])[0] == [0.0, 2.0]
    assert play(TerminalOnly(MilestoneReward(fake()), "best"), [BAD, STOP])[0] == [0.0, -1.0]
    assert play(env, [STOP])[0] == [0.0]


def test_a_fault_at_the_end_pays_nothing():
    assert play(TerminalOnly(fake(), "sum"), [kernel(2.0), FAULT])[0] == [0.0, 0.0]


def test_a_second_episode_starts_anew():
    env = TerminalOnly(fake(), "best")
    assert play(env, ACTIONS)[0][-1] == 2.3
    assert play(env, [BAD] * 4)[0][-1] == 0.0


def test_returns_of_turns_are_not_touched():
    for env in (TerminalOnly(TurnReturns(fake())), TurnReturns(TerminalOnly(fake()))):
        assert play(env, ACTIONS)[1][-1]["turn_returns"][2] == pytest.approx(1.8)


def test_a_foreign_environment():
    env = TerminalOnly(ScriptedEnv([{"score": 1.0}, {"score": 3.0}], end="truncated"), "sum")
    assert play(env, [0, 0])[0] == [0.0, 4.0]
    with pytest.raises(InvalidOptionError, match="TerminalOnly reads"):
        play(TerminalOnly(ScriptedEnv([{}])), [0])


def test_wrong_mode():
    with pytest.raises(UnknownNameError, match="Did you mean 'last'"):
        TerminalOnly(fake(), "lst")
