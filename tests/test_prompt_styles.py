"""Every style of prompt, and every example in them judged."""

from __future__ import annotations

import re

import pytest

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.source import check_format, detect_backend
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.prompts import messages
from kernelgym_env.prompts.examples import LANGUAGES, NAMES, examples
from kernelgym_env.prompts.task import STYLES, task_prompt
from kernelgym_env.tasks import Task, load_task
from kernelgym_env.tasks.rows import to_dataset_rows

TASK = load_task("KernelGym/RowSoftmax")


PAIRS = [
    *((backend, "cpu") for backend in ("auto", "triton", "cpp")),
    *((backend, "cuda") for backend in ("auto", "triton", "cuda", "cupy")),
]
"""Backends with the devices that they are for."""


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("backend", "device"), PAIRS)
def test_every_style_has_the_contract(style, backend, device):
    text = TASK.prompt(backend, device, style)
    assert TASK.for_device(device).source.strip() in text
    for part in ("class ModelNew", "overwritten in place", "How it is judged", "No credit", "Sizes besides those"):
        assert text.count(part) >= 1
    assert "{{" not in text and "{%" not in text and text.count("```") % 2 == 0
    assert ("<summary>" in text) == (style in ("refine", "kevin"))
    assert text.count("that is judged correct") == {"one_shot": 1, "kevin": 1, "few_shot": 2}.get(style, 0)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("library_ops", ["forbid", "allow"])
def test_paragraphs_are_apart(style, library_ops):
    text = TASK.prompt(device="cpu", style=style, library_ops=library_ops)
    own = text[text.index(TASK.for_device("cpu").source.strip()) :].split("```", 1)[1]
    paragraphs = [part.split("\n")[0].partition(" `")[0] for part in own.split("\n\n")]
    between = {"kevin": ["You improve this kernel over several turns, and each turn"]}.get(style, [])
    closing = {
        "refine": ["You have several turns.", "After the code, say"],
        "kevin": ["After the code, say"],
        "dr_kernel": ["Think about where the time goes first."],
    }.get(style, [])
    starts = [
        "",
        *between,
        "Reply with one Python source, in a fenced block, that defines",
        "How it is judged:",
        *closing,
    ]
    assert len(paragraphs) == len(starts)
    assert all(found.startswith(start) for found, start in zip(paragraphs, starts, strict=True)), paragraphs


def test_streams_are_a_gpu_s():
    said = "Results must be computed from the inputs of each call, {}before it returns, and"
    assert said.format("") in TASK.prompt(device="cpu") and "stream" not in TASK.prompt(device="cpu")
    assert said.format("on the current stream, ") in TASK.prompt(device="cuda")


@pytest.mark.parametrize("backend", LANGUAGES)
@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
def test_a_language_that_is_not_for_the_device(backend, device):
    kind = device.partition(":")[0]
    if (backend, kind) in PAIRS:
        assert TASK.prompt(backend, device)
        assert to_dataset_rows([TASK], kind=kind, backend=backend)
        return
    said = (
        f"Backend '{backend}' does not run on device '{kind}'. Allowed on 'cpu': auto, triton, cpp; on 'cuda': auto, "
    )
    with pytest.raises(InvalidOptionError, match=re.escape(said)):
        TASK.prompt(backend, device)
    with pytest.raises(InvalidOptionError, match=re.escape(said)):
        to_dataset_rows([TASK], kind=kind, backend=backend)


def test_examples_are_in_the_language():
    assert examples("cpp", 1)[0].source in TASK.prompt("cpp", "cpu", "one_shot")
    assert examples("cuda", 1)[0].source.strip() in TASK.prompt(device="cuda", style="kevin")
    assert "Triton" in TASK.prompt(device="cuda", style="dr_kernel")


def test_bad_names():
    with pytest.raises(UnknownNameError, match="Did you mean 'one_shot'"):
        TASK.prompt(style="oneshot", device="cpu")
    with pytest.raises(UnknownNameError, match="backend"):
        TASK.prompt("tritn", "cpu")
    with pytest.raises(UnknownNameError):
        examples("rust", 1)
    with pytest.raises(UnknownNameError, match="library_ops 'x'.*forbid"):
        TASK.prompt(device="cpu", library_ops="x")
    for options in ({"kind": "tpu"}, {"kind": None}, {"kind": "cpu", "backend": "x"}, {"kind": "cpu", "backend": None}):
        with pytest.raises(UnknownNameError, match="Allowed: .*(cpu|triton)"):
            task_prompt(TASK, **options)


def test_templates_of_the_user_come_first(tmp_path):
    (tmp_path / "judging.jinja").write_text("Judged by {{ protocol.name }}.")
    text = TASK.prompt(device="cpu", templates=tmp_path)
    assert "Judged by strict." in text and "class ModelNew" in text and "How it is judged" not in text
    (tmp_path / "judging.jinja").write_text("{{ nothing }}")
    with pytest.raises(InvalidOptionError, match="nothing"):
        TASK.prompt(device="cpu", templates=tmp_path)
    with pytest.raises(InvalidOptionError, match="no folder"):
        TASK.prompt(device="cpu", templates=tmp_path / "none")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{{ 1/0 }}", r"judging.jinja, line 1\): ZeroDivisionError"),
        (b"{% include 'judging.jinja' %}", "RecursionError"),
        (b"\xff", "judging.jinja' is not UTF-8"),
        (b"\n{% if %}", r"judging.jinja, line 2\): TemplateSyntaxError"),
        (b"{{ task.with_sizes(5) }}", "fails"),
    ],
)
def test_a_template_that_fails_is_named(tmp_path, content, complaint):
    (tmp_path / "judging.jinja").write_bytes(content)
    with pytest.raises(InvalidOptionError, match=complaint):
        TASK.prompt(device="cpu", templates=tmp_path)


def test_templates_that_would_not_be_used_are_refused(tmp_path):
    with pytest.raises(InvalidOptionError, match="has no template. It may have .*judging.jinja"):
        TASK.prompt(device="cpu", templates=tmp_path)
    (tmp_path / "README.md").write_text("any file that is no template may lie here")
    (tmp_path / "judgin.jinja").write_text("Mine.")
    with pytest.raises(UnknownNameError, match="'judgin.jinja'. Did you mean 'judging.jinja'"):
        TASK.prompt(device="cpu", templates=tmp_path)
    (tmp_path / "judging.jinja").write_text("{% include 'judgin.jinja' %}")
    assert "Mine." in TASK.prompt(device="cpu", templates=tmp_path)
    (tmp_path / "judging.jinja").write_text("Another.")
    with pytest.raises(UnknownNameError, match="which no other there includes"):
        TASK.prompt(device="cpu", templates=tmp_path)
    (tmp_path / "judgin.jinja").unlink()
    (tmp_path / "task.jinja").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidOptionError, match="task.jinja' is no file"):
        TASK.prompt(device="cpu", templates=tmp_path)
    (tmp_path / "task.jinja").unlink()
    assert "Another." in TASK.prompt(device="cpu", templates=tmp_path)
    tmp_path.rename(tmp_path.with_name("away"))
    with pytest.raises(InvalidOptionError, match="no folder"):
        TASK.prompt(device="cpu", templates=tmp_path)


def test_refinement_is_bounded_and_asks_for_a_summary():
    history = [{"action": "a", "feedback": "x" * 5_000}]
    last = messages({"prompt": "p", "history": history, "turns_left": 2}, summary=True, feedback_chars=1_000)[-1]
    assert len(last["content"]) < 1_500 and "characters cut" in last["content"]
    assert "2 turns left" in last["content"] and "<summary>" in last["content"]
    over = messages({"prompt": "p", "history": history, "turns_left": 0}, summary=True)[-1]["content"]
    assert over.endswith("The episode is over.")


@pytest.mark.parametrize("backend", LANGUAGES)
def test_examples_are_submissions_in_their_language(backend):
    found = examples(backend, len(NAMES))
    assert [example.name for example in found] == list(NAMES)
    for example in found:
        assert check_format(example.source) == ""
        assert detect_backend(example.source) == backend
        assert example.language == LANGUAGES[backend]


@pytest.mark.parametrize("number", range(len(NAMES)))
@pytest.mark.parametrize("backend", ["cpp", "triton"])
def test_examples_pass_on_the_cpu(local_pool, backend, number):
    _judged(local_pool, backend, number, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(len(NAMES)))
@pytest.mark.parametrize("backend", ["triton", "cuda", "cupy"])
def test_examples_pass_on_a_gpu(local_pool, backend, number):
    _judged(local_pool, backend, number, "cuda")


def _judged(pool, backend, number, device):
    example = examples(backend, len(NAMES))[number]
    task = Task(f"Example/{example.name}", example.reference)
    submission = Submission(task, example.source, backend=backend, device=device)
    evaluation = pool.submit(submission).result(timeout=300)
    assert evaluation.status == "correct", evaluation.feedback
