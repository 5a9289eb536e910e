import pytest
from wrapper_helpers import FAKE, ScriptedEnv, fake, kernel, play, words

import kernelgym_env
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.limits import MAX_SOURCE_CHARS
from kernelgym_env.wrappers import ChatObservation, Exemplars, ExtractCode, HistoryPrompt
from kernelgym_env.wrappers.observation import estimate_tokens

REASONING = "We could tile by 32 and keep the row in registers. " * 1_200  # some 20,000 tokens


def reply(number, code=None):
    source = kernel(1.0 + number / 10) if code is None else code
    return (
        f"<think>{REASONING}</think>\nI will fuse everything.\n```python\n{source}\n```\n"
        f"<summary>Attempt {number}: fused.</summary>"
    )


def test_eight_turns_of_long_reasoning_stay_in_the_budget():
    env = HistoryPrompt(fake(turns=8), token_budget=4_000)
    plain = fake(turns=8)
    env.reset()
    plain.reset()
    for number in range(8):
        observation, *_, info = env.step(reply(number))
        without, *_ = plain.step(reply(number))
        text = kernelgym_env.render_prompt(observation)
        assert estimate_tokens(text) == info["context_tokens"] <= 4_000
        assert "registers" not in text
        assert info["context_dropped"] == 0
        assert len(observation["history"]) == number + 1
        assert observation in env.observation_space
    assert estimate_tokens(kernelgym_env.render_prompt(without)) > 150_000


def test_kernel_summary_and_result_are_kept_in_their_order():
    env = HistoryPrompt(fake())
    env.reset()
    env.step(reply(0))
    observation, *_ = env.step(reply(1))
    first, second = observation["history"]
    assert first["action"] == f"Attempt 0: fused.\n\n```python\n{kernel(1.0)}\n```"
    assert first["feedback"].startswith("correct: The output is correct. Speedup over eager 1.00x")
    assert "Attempt 1" in second["action"]
    assert observation["feedback"] == second["feedback"]


def test_the_oldest_turns_are_dropped_first():
    env = HistoryPrompt(fake(turns=8), token_budget=1_400)
    env.reset()
    dropped = []
    for number in range(8):
        observation, *_, info = env.step(reply(number))
        dropped.append(info["context_dropped"])
        shown = [entry["action"].split(":")[0] for entry in observation["history"]]
        assert shown == [f"Attempt {index}" for index in range(info["context_dropped"], number + 1)]
        assert info["context_tokens"] <= 1_400
    assert dropped == sorted(dropped)
    assert 0 < dropped[-1] < 7


def test_as_many_turns_as_fit_are_shown():
    tight = HistoryPrompt(fake(turns=8), token_budget=1_400)
    loose = HistoryPrompt(fake(turns=8), token_budget=100_000)
    tight.reset()
    loose.reset()
    for number in range(8):
        observation, *_, info = tight.step(reply(number))
        everything, *_ = loose.step(reply(number))
    one_more = {**everything, "history": everything["history"][info["context_dropped"] - 1 :]}
    assert estimate_tokens(kernelgym_env.render_prompt(one_more)) > 1_400
    assert observation["history"] == everything["history"][info["context_dropped"] :]


def test_a_turn_that_does_not_fit_is_cut_visibly():
    env = HistoryPrompt(fake(), token_budget=1_500)
    env.reset()
    observation, *_, info = env.step(reply(0, "x = 1\n" * 2_000 + kernel(1.0)))
    assert info["context_tokens"] <= 1_500
    (entry,) = observation["history"]
    assert "characters cut" in entry["action"]
    assert entry["action"].startswith("Attempt 0")


def test_a_turn_for_which_there_is_no_room_is_dropped():
    env = HistoryPrompt(fake())
    _, info = env.reset()
    env = HistoryPrompt(fake(), token_budget=info["context_tokens"])
    env.reset()
    observation, *_, info = env.step(reply(0))
    assert (observation["history"], info["context_dropped"]) == ((), 1)


def test_a_prompt_that_does_not_fit_is_told():
    env = HistoryPrompt(fake(), token_budget=100)
    with pytest.raises(InvalidOptionError, match=r"The prompt alone has \d+ tokens, more than token_budget=100"):
        env.reset()


def test_the_prompt_asks_for_a_summary():
    observation, _ = HistoryPrompt(fake()).reset()
    assert "<summary>" in observation["prompt"]
    observation, _ = HistoryPrompt(fake(), ask=False).reset()
    assert "<summary>" not in observation["prompt"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("No idea.", "(The reply held no code.)"),
        ("", "(The reply held no code.)"),
        ("<think>only this", "(The reply held no code.)"),
        ("class ModelNew: ...", "```python\nclass ModelNew: ...\n```"),
        ("```\nclass ModelNew: ...\n```", "```python\nclass ModelNew: ...\n```"),
        ('```\nclass ModelNew: "````"\n```', '`````python\nclass ModelNew: "````"\n`````'),
        ("thought</think>\n```\nclass ModelNew: ...\n```", "```python\nclass ModelNew: ...\n```"),
        ("<summary>Nothing yet.</summary>", "Nothing yet.\n\n(The reply held no code.)"),
        (
            "<think><summary>draft</summary></think>\n```\nclass ModelNew: ...\n```",
            "```python\nclass ModelNew: ...\n```",
        ),
    ],
)
def test_replies_of_all_kinds(text, shown):
    env = HistoryPrompt(fake())
    env.reset()
    observation, *_ = env.step(text)
    assert observation["history"][0]["action"] == shown


def test_a_summary_is_kept_although_the_code_alone_reaches_the_environment():
    inside, outside = HistoryPrompt(ExtractCode(fake())), ExtractCode(HistoryPrompt(fake()))
    for env, expected in ((inside, "Attempt 0: fused.\n\n```python"), (outside, "```python")):
        env.reset()
        env.step(reply(0))
        observation, *_ = env.step(reply(1))
        assert observation["history"][0]["action"].startswith(expected)


def test_a_counter_of_one_s_own():
    env = HistoryPrompt(fake(), token_budget=650, counter="wrapper_helpers:words")
    _, info = env.reset()
    observation, *_, info = env.step(reply(0))
    assert info["context_tokens"] == words(kernelgym_env.render_prompt(observation))


def test_given_turns_and_restored_states_are_shown_too():
    env = HistoryPrompt(fake())
    observation, info = env.reset(options={"history": [{"action": reply(0), "feedback": "wrong"}]})
    assert observation["history"][0]["action"].startswith("Attempt 0")
    env.step(reply(1))
    state = env.unwrapped.clone_state()
    other = HistoryPrompt(fake())
    other.reset()
    other.unwrapped.restore_state(state)
    observation, *_ = other.step(reply(2))
    assert [entry["action"][:9] for entry in observation["history"]] == ["Attempt 0", "Attempt 1", "Attempt 2"]


def test_it_counts_the_exemplars_inside():
    env = HistoryPrompt(Exemplars(fake(turns=2)))
    _, before = env.reset()
    play(env, [kernel(1.0), kernel(2.5)])
    _, after = env.reset()
    assert after["context_tokens"] > before["context_tokens"] + 20


def test_a_long_source_keeps_the_observation_in_its_space():
    env = HistoryPrompt(fake(), token_budget=10**6)
    env.reset()
    observation, *_ = env.step("```\n" + "x" * MAX_SOURCE_CHARS + "\n```")
    assert observation in env.observation_space


def test_many_turns_are_quick():
    env = HistoryPrompt(fake(turns=200), token_budget=3_000)
    env.reset()
    for number in range(200):
        *_, info = env.step(f"```\n{kernel(1.0)}  # {number}\n```")
    assert info["context_dropped"] > 100


@pytest.mark.parametrize("budget", [0, -1, 1.5, True, "many"])
def test_wrong_budgets(budget):
    with pytest.raises(InvalidOptionError, match="token_budget must be"):
        HistoryPrompt(fake(), token_budget=budget)


@pytest.mark.parametrize("env", [ScriptedEnv, lambda: ChatObservation(kernelgym_env.KernelEnv(pool="fake"))])
def test_another_form_of_observations_is_refused(env):
    with pytest.raises(InvalidOptionError, match=r"dicts with prompt, history|Right order"):
        HistoryPrompt(env())
    assert FAKE
