"""A model's reply taken apart: thinking, plan, code and summary, with their places in the text.

- `Reply` -- the parts.
- `parse_reply` -- finds them.
- `extract_source` -- the code alone.
- `summary_of` -- the summary alone.
- `fenced` -- the way back: code as a block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelgym_env.evaluation.source import ENTRY, check_format
from kernelgym_env.limits import MAX_SOURCE_CHARS

__all__ = ["KINDS", "Reply", "extract_source", "fenced", "parse_reply", "summary_of"]

KINDS = ("fenced", "unfenced", "none")
"""How the code stood in the reply."""

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
_END_OF_THINKING = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL)
_FENCE = re.compile(
    r"^[ \t]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<tag>[\w+#.-]*)[^\n`]*\n(?P<body>.*?)(?:^[ \t]*(?P=mark)[`~]*[ \t]*\r?$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL)
_FIRST_LINE = re.compile(r"^(?:import |from \w|class \w|def \w|@\w|#|\"\"\"|''')", re.MULTILINE)
_TAIL_PARAGRAPHS = 8


@dataclass(frozen=True)
class Reply:
    """The parts of a reply. A span is ``(first, after the last)`` in characters of the reply, ``(-1, -1)`` for none.

    Attributes:
        source: the code, ``""`` if there is none.
        kind: how it stood there, one of `KINDS`.
        language: the tag of its fence in lower case, ``""`` for none.
        blocks: number of fenced blocks outside of thinking.
        thinking: number of characters of thinking.
        plan: span of what comes before the code: thinking and explanation.
        code: span of the code, without its fence.
        summary: what the model says about its kernel between ``<summary>`` tags.
    """

    source: str
    kind: str
    language: str
    blocks: int
    thinking: int
    plan: tuple[int, int]
    code: tuple[int, int]
    summary: str


def parse_reply(
    text: str, *, pick: str = "entry", languages: tuple[str, ...] | None = None, unfenced: bool = True
) -> Reply:
    """Take a reply apart.

    Thinking (``<think>``, ``<thinking>``, ``<reasoning>``; also what comes before a closing tag that was never opened)
    is no place for code. A fence that is never closed ends with the reply. Without a fenced block the code begins at
    the first line that looks like Python, and what follows the code is left out where the rest is a submission.

    Args:
        text: the reply.
        pick: which fenced block counts: ``entry`` (the last one that names ``ModelNew``, else the last), ``last`` or
            ``first``.
        languages: tags that count, in lower case, ``""`` for a fence without one; None for any.
        unfenced: whether code without a fence counts.

    >>> text = "<think>Fuse.</think>Fused.\\n```python\\nclass ModelNew: ...\\n```\\n<summary>One pass.</summary>"
    >>> reply = parse_reply(text)
    >>> reply.source, reply.language, reply.plan, reply.summary
    ('class ModelNew: ...\\n', 'python', (0, 27), 'One pass.')
    """
    visible, thinking = _without_thinking(text)
    found = list(_FENCE.finditer(visible))
    blocks = [block for block in found if languages is None or block["tag"].lower() in languages]
    if blocks:
        named = [block for block in blocks if ENTRY in block["body"]] if pick == "entry" else []
        block = blocks[0] if pick == "first" else (named or blocks)[-1]
        span, language, kind = block.span("body"), block["tag"].lower(), "fenced"
        plan = (0, block.start())
    elif unfenced and not found and (span := _bare_code(visible)) != (-1, -1):
        language, kind, plan = "", "unfenced", (0, span[0])
    else:
        span, language, kind, plan = (-1, -1), "", "none", (-1, -1)
    return Reply(
        source=visible[span[0] : span[1]] if kind != "none" else "",
        kind=kind,
        language=language,
        blocks=len(found),
        thinking=thinking,
        plan=plan,
        code=span,
        summary=_summary(visible),
    )


def extract_source(reply: str) -> str:
    """Take the source out of a reply.

    A reply that is a submission as it stands is taken as it is. Else thinking is no place for code; of the fenced
    blocks, the last one that names ``ModelNew`` counts, else the last one; a fence that is never closed ends with the
    reply. A reply without a fence and without anything that looks like code is returned as it stands, so that its
    syntax error can be told.

    Args:
        reply: a model's reply or bare source.

    Returns:
        The source; ``""`` if the reply holds nothing but thinking.

    >>> extract_source("Faster now:\\n```python\\nclass ModelNew: ...\\n```\\nDone.")
    'class ModelNew: ...\\n'
    >>> extract_source("class ModelNew: ...")
    'class ModelNew: ...'
    """
    reply = reply.removeprefix("\ufeff")
    if len(reply) > MAX_SOURCE_CHARS or not check_format(reply):
        return reply
    found = parse_reply(reply)
    if found.kind != "none":
        return found.source
    return "" if found.thinking and not _without_thinking(reply)[0].strip() else reply


def summary_of(text: str) -> str:
    """The last summary in a reply, outside of thinking and code; ``""`` for none.

    >>> summary_of("<think><summary>no</summary></think>```\\nx\\n```\\n<summary> Tiled by 32. </summary>")
    'Tiled by 32.'
    """
    return _summary(_without_thinking(text)[0])


def fenced(source: str) -> str:
    """Code as a fenced block.

    >>> print(fenced("x = 1\\n"))
    ```python
    x = 1
    ```
    """
    mark = "`" * max(3, 1 + max(map(len, re.findall("`+", source)), default=0))
    return f"{mark}python\n{source.strip(chr(10))}\n{mark}"


def _without_thinking(text: str) -> tuple[str, int]:
    """The text with thinking blanked out, so that places stay the same, and how much that was."""
    hidden = 0

    def blank(match: re.Match[str]) -> str:
        nonlocal hidden
        hidden += len(match[0])
        return re.sub(r"[^\n]", " ", match[0])

    visible = _THINKING.sub(blank, text)
    return _END_OF_THINKING.sub(blank, visible), hidden


def _summary(visible: str) -> str:
    outside = _FENCE.sub("\n", visible)
    found = _SUMMARY.findall(outside)
    return found[-1].strip() if found else ""


def _bare_code(text: str) -> tuple[int, int]:
    """The span of code that stands in a text without a fence."""
    if not check_format(text):
        return (0, len(text))
    text = _SUMMARY.sub(lambda match: " " * len(match[0]), text)
    end = len(text.rstrip())
    end += text[end:].startswith("\n")
    if not check_format(text.strip()):
        return (len(text) - len(text.lstrip()), end)
    first = _FIRST_LINE.search(text)
    if first is None:
        return (-1, -1)
    start = first.start()
    whole = (start, end)
    for _ in range(_TAIL_PARAGRAPHS):
        if not check_format(text[start:end]):
            return (start, end)
        end = text.rfind("\n\n", start, end)
        if end <= start:
            break
    return whole
