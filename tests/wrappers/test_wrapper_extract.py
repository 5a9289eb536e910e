import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wrapper_helpers import BAD, GOOD, ScriptedEnv, fake, kernel, play

import kernelgym_env
from kernelgym_env.env import STOP
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.prompts.reply import fenced, parse_reply, summary_of
from kernelgym_env.wrappers import ExtractCode, HistoryPrompt


def block(source, tag="python", mark="```"):
    return f"{mark}{tag}\n{source}\n{mark}"


def extraction(reply, **options):
    env = ExtractCode(fake(), **options)
    _, (info,) = play(env, [reply])
    return info["extraction"], info["score"], env.unwrapped.episode.played[-1].action


def test_the_code_reaches_the_environment_and_info_says_where_it_was():
    reply = f"<think>Tile.</think>Fused:\n{block(GOOD)}\nDone."
    found, score, source = extraction(reply)
    assert (score, source) == (2.3, GOOD + "\n")
    assert (found["kind"], found["language"], found["blocks"]) == ("fenced", "python", 1)
    assert found["thinking_chars"] == len("<think>Tile.</think>")
    assert reply[found["plan_start"] : found["plan_end"]] == "<think>Tile.</think>Fused:\n"
    assert reply[found["code_start"] : found["code_end"]] == source


@pytest.mark.parametrize(
    ("reply", "kind", "score"),
    [
        (GOOD, "unfenced", 2.3),
        (f"Here it is:\n{GOOD}", "unfenced", 2.3),
        (f"Here it is:\n\n{GOOD}\n\nIt's fast, isn't it?\n\nYes (very.", "unfenced", 2.3),
        (f"{GOOD}\n<summary>It's done</summary>", "unfenced", 2.3),
        (f"x = 1\n{GOOD}", "unfenced", 2.3),
        (block(GOOD, ""), "fenced", 2.3),
        (block(GOOD, "triton", "~~~"), "fenced", 2.3),
        (f"```python\n{GOOD}", "fenced", 2.3),  # never closed
        (f"{block(GOOD)}\nRun it:\n{block('pip install x', 'bash')}", "fenced", 2.3),
        (f"{block(BAD)}\nNo, better:\n{block(GOOD)}", "fenced", 2.3),
        (f"<summary>It's new</summary>\n{GOOD}", "unfenced", 2.3),
        (f"<think>{block(BAD)}</think>{block(GOOD)}", "fenced", 2.3),
        (f"<think>{block(BAD)}</think>\n{block(GOOD)}", "fenced", 2.3),
        (f"<reasoning>{block(GOOD)}", "none", 0.0),
        (f"{block(GOOD)}\n</think>\nI give up.", "none", 0.0),
        (f"Let me see.\n</think>\n{block(GOOD)}", "fenced", 2.3),
        ("I cannot do it.", "none", 0.0),
        ("", "none", 0.0),
    ],
)
def test_replies_of_all_kinds(reply, kind, score):
    found, got, _ = extraction(reply)
    assert (found["kind"], got) == (kind, score)


def test_a_reply_without_code_is_a_format_outcome_without_spans():
    env = ExtractCode(fake())
    _, (info,) = play(env, ["I cannot do it."])
    assert info["status"] == "format"
    assert {info["extraction"][key] for key in ("plan_start", "plan_end", "code_start", "code_end")} == {-1}


def test_the_pick():
    reply = f"{block(kernel(1.0))}\n{block(kernel(2.0))}\n{block('x = 1')}"
    assert extraction(reply)[1] == 2.3
    assert extraction(reply, pick="first")[1] == 1.3
    assert extraction(reply, pick="last")[1] == 0.0


def test_languages_and_fences_may_be_required():
    reply = f"{block(kernel(1.0), 'Python')}\n{block(kernel(2.0), 'cuda')}"
    assert extraction(reply, languages=["python"])[1] == 1.3
    assert extraction(reply, languages=["triton"])[0]["kind"] == "none"
    assert extraction(block(GOOD, ""), languages=["python", ""])[1] == 2.3
    assert extraction(GOOD, unfenced=False)[0]["kind"] == "none"


def test_a_stop_passes():
    env = ExtractCode(fake())
    env.reset()
    *_, terminated, truncated, info = env.step(f" {STOP} ")
    assert (terminated, truncated, info["extraction"]["kind"]) == (True, False, "stop")
    assert STOP not in extraction(f"I could say {STOP}.")[2]


def test_an_action_that_is_no_text():
    env = ExtractCode(fake())
    env.reset()
    with pytest.raises(gym.error.InvalidAction, match="int: 3"):
        env.step(3)


PARTS = st.sampled_from(
    ["Fused.\n", "<think>plan\n</think>\n", "<think>\n" + block(BAD) + "\n</think>\n", block(GOOD) + "\n"]
    + [block("x = 1", "") + "\n", block(GOOD, "cuda", "````") + "\n", "\n", "```python\nclass ModelNew:"]
)


@given(st.lists(PARTS, max_size=6).map("".join))
def test_fenced_code_is_what_the_environment_itself_would_take(reply):
    parsed = parse_reply(reply)
    if parsed.kind == "fenced":
        # white space stands for thinking within the code, so that places stay what they are
        assert parsed.source.split() == kernelgym_env.extract_source(reply).split()
    assert "<think>" in reply or parsed.kind == "none" or reply[slice(*parsed.code)] == parsed.source


@given(st.text(max_size=200))
def test_any_text_has_spans_within_itself(reply):
    parsed = parse_reply(reply)
    if parsed.kind == "none":
        assert (parsed.plan, parsed.code, parsed.source) == ((-1, -1), (-1, -1), "")
    else:
        assert 0 == parsed.plan[0] <= parsed.plan[1] <= parsed.code[0] <= parsed.code[1] <= len(reply)
    assert isinstance(summary_of(reply), str)


@given(st.text(alphabet="`x\n ", max_size=40))
def test_a_fence_holds_any_source(source):
    parsed = parse_reply(fenced(source))
    assert parsed.kind == "fenced"
    assert parsed.source.strip("\n") == source.strip("\n")


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("<summary>one</summary> and <summary> two </summary>", "two"),
        ("<summary>never closed", "never closed"),
        (block("# <summary>no</summary>"), ""),
        ("nothing", ""),
    ],
)
def test_summaries(text, summary):
    assert summary_of(text) == summary


def test_long_replies_are_quick():
    parse_reply("<think>" * 20_000 + "```" * 20_000 + "<summary>" * 10_000)
    parse_reply("import x\n" + "(\n\n" * 50_000)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"pick": "best"}, UnknownNameError, "entry"),
        ({"languages": "python"}, InvalidOptionError, "list of texts"),
        ({"languages": []}, InvalidOptionError, "list of texts"),
        ({"languages": [3]}, InvalidOptionError, "list of texts"),
    ],
)
def test_wrong_arguments(arguments, error, said):
    with pytest.raises(error, match=said):
        ExtractCode(fake(), **arguments)


def test_actions_must_be_text():
    with pytest.raises(InvalidOptionError, match=r"this environment has Discrete\(2\)"):
        ExtractCode(ScriptedEnv())


def test_the_history_has_the_code_alone():
    env = HistoryPrompt(ExtractCode(fake()))
    env.reset()
    observation, *_ = env.step(f"Long talk.\n{block(GOOD)}")
    assert "Long talk" not in observation["history"][0]["action"]
