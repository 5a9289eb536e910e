import pytest
from wrapper_helpers import GOOD, ScriptedEnv, fake

import kernelgym_env
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.wrappers import ChatObservation, HistoryPrompt


def test_observations_are_the_messages_of_the_conversation():
    env, plain = ChatObservation(fake()), fake()
    chat, _ = env.reset()
    observation, _ = plain.reset()
    assert list(chat) == kernelgym_env.messages(observation)
    chat, *_ = env.step(GOOD)
    observation, *_ = plain.step(GOOD)
    assert list(chat) == kernelgym_env.messages(observation)
    assert [message["role"] for message in chat] == ["user", "assistant", "user"]
    assert chat in env.observation_space


def test_a_system_message_comes_first():
    chat, _ = ChatObservation(fake(), system="You write Triton.").reset()
    assert chat[0] == {"role": "system", "content": "You write Triton."}
    assert len(chat) == 2


def test_it_shows_the_history_of_the_wrapper_inside():
    env = ChatObservation(HistoryPrompt(fake()))
    env.reset()
    chat, *_ = env.step(f"<think>Hmm.</think>```python\n{GOOD}\n```\n<summary>Fused.</summary>")
    assert chat[1]["content"] == f"Fused.\n\n```python\n{GOOD}\n```"


@pytest.mark.parametrize(("system", "said"), [(3, "system must be"), ("x" * 300_000, "300000 characters")])
def test_wrong_arguments(system, said):
    with pytest.raises(InvalidOptionError, match=said):
        ChatObservation(fake(), system=system)


def test_another_form_of_observations_is_refused():
    with pytest.raises(InvalidOptionError, match="dicts with prompt, history, turns_left"):
        ChatObservation(ScriptedEnv())
