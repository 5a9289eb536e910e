import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.prompts import extract_source, messages, render_prompt, task_prompt
from kernelgym_env.tasks import load_task, load_tasks

CODE = "class ModelNew: ...\n"


@pytest.mark.parametrize(
    ("reply", "source"),
    [
        (CODE, CODE),
        (f"```python\n{CODE}```", CODE),
        (f"```py\n{CODE}```\n", CODE),
        (f"```\n{CODE}```", CODE),
        (f"~~~python\n{CODE}~~~", CODE),
        (f"Text.\n```python\nold = 1\n```\nThen\n```python\n{CODE}```\nDone.", CODE),
        (f"First the plan:\n```text\n1. fuse\n```\n```python\n{CODE}```\nUsage:\n```python\nModel()\n```", CODE),
        ("```python\nclass Other: ...\n```", "class Other: ...\n"),
        (f"```python\n{CODE}", CODE),
        (f"````python\nx = '''\n```\n'''\n{CODE}````", f"x = '''\n```\n'''\n{CODE}"),
        (f"<think>```python\nbad\n```</think>\n```python\n{CODE}```", CODE),
        (f"<think>plan</think>{CODE}", CODE),
        (f"```python\r\n{CODE}```\r\nDone", CODE),
        (f"\ufeff{CODE}", CODE),
        (f"{CODE}TAG = '<think>'\n", f"{CODE}TAG = '<think>'\n"),
        (f"thinking ```python\nclass ModelNew: draft\n```</think>\n```python\n{CODE}```", CODE),
        ("I cannot do it.", "I cannot do it."),
        (f"plan without a start</think>{CODE}", CODE),
        ("<think>never ends ```python\nx\n```", ""),
        ("", ""),
    ],
)
def test_the_source_is_found_in_a_reply(reply, source):
    assert extract_source(reply) == source


@given(st.text(max_size=400))
def test_any_reply_gives_text(reply):
    assert isinstance(extract_source(reply), str)


def test_a_source_with_fences_in_its_text_is_kept():
    source = 'DOC = """\nUse it so: ```x```\n"""\nclass ModelNew: ...\n'
    assert extract_source(source) == source


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("backend", ["auto", "triton", "cuda", "cupy", "cpp"])
def test_the_prompt_holds_the_reference_and_the_contract(kind, backend):
    task = load_task("KernelGym/RowSoftmax").for_device(kind)
    text = task_prompt(task, kind=kind, backend=backend)
    for part in (task.source.strip(), task.id, "class ModelNew", "0.3 + speedup"):
        assert part in text


def test_the_policy_on_library_operators_is_said():
    task = load_task("KernelGym/Matmul")
    said = {ops: task_prompt(task, kind="cpu", library_ops=ops) for ops in ("forbid", "gemm", "allow")}
    assert "not by torch operators" in said["forbid"]
    assert "may come from libraries" in said["gemm"]
    assert "librar" not in said["allow"]


def test_prompts_of_the_whole_suite_have_no_hole():
    for task in load_tasks("core"):
        text = task_prompt(task.for_device("cpu"), kind="cpu")
        assert "{{" not in text
        assert "{%" not in text


def _observation(history=(), left=3):
    return {"prompt": "the task", "history": history, "turns_left": left}


def test_messages_alternate_and_end_with_the_user():
    history = [{"action": "a1", "feedback": "f1"}, {"action": "a2", "feedback": "f2"}]
    chat = messages(_observation(history, 1))
    assert [message["role"] for message in chat] == ["user", "assistant", "user", "assistant", "user"]
    assert chat[-1]["content"].startswith("f2")
    assert "1 turn left" in chat[-1]["content"]
    assert messages(_observation()) == [{"role": "user", "content": "the task"}]


def test_render_prompt_holds_every_message():
    text = render_prompt(_observation([{"action": "a1", "feedback": "f1"}]))
    assert text.index("the task") < text.index("a1") < text.index("f1") < text.index("3 turns left")
