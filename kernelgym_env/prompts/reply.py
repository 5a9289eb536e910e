"""The source in a model's reply."""

from __future__ import annotations

import re

from kernelgym_env.evaluation.source import ENTRY

__all__ = ["extract_source"]

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL)
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)


def extract_source(reply: str) -> str:
    """Take the source out of a reply.

    Thinking between ``<think>`` tags is dropped. Of the fenced blocks, the last one that names ``ModelNew`` counts,
    else the last one; its language tag does not matter, and a fence that is never closed ends with the reply. A reply
    without a fence is source as it stands.

    Args:
        reply: a model's reply or bare source.

    Returns:
        The source; ``""`` if the reply holds nothing but thinking.

    >>> extract_source("Faster now:\\n```python\\nclass ModelNew: ...\\n```\\nDone.")
    'class ModelNew: ...\\n'
    >>> extract_source("class ModelNew: ...")
    'class ModelNew: ...'
    """
    text = _THINKING.sub("", reply)
    blocks = [match.group(2) for match in _FENCE.finditer(text)]
    if not blocks:
        return text if text != reply or "</think" not in text else text.rpartition(">")[2]
    named = [block for block in blocks if ENTRY in block]
    return (named or blocks)[-1]
