"""Package-wide bounds on text.

Every environment uses the same bounds, since a vector environment demands equal spaces of its members. Longer text is
cut with a visible mark (`clip`), never silently.
"""

from __future__ import annotations

__all__ = ["MAX_FEEDBACK_CHARS", "MAX_PROMPT_CHARS", "MAX_SOURCE_CHARS", "clip"]

MAX_SOURCE_CHARS = 262_144
"""Longest action (a model's reply or bare source) in characters; a longer one is judged `format`."""

MAX_PROMPT_CHARS = 262_144
"""Longest prompt in characters. The largest KernelBench reference has about 10,000."""

MAX_FEEDBACK_CHARS = 8_192
"""Longest feedback of one turn in characters."""


def clip(text: str, limit: int, *, head: float = 0.5) -> str:
    """Cut `text` to at most `limit` characters, keeping its head and its tail around a mark.

    Args:
        text: any text.
        limit: greatest length of the result in characters, at least 0.
        head: share of the kept text that is taken from the beginning, 0 to 1.

    Raises:
        ValueError: if `limit` is negative or `head` is outside 0 to 1.

    >>> clip("abcdef", 6)
    'abcdef'
    >>> clip("x" * 100, 40)
    'xxxxxxxx … [85 characters cut] … xxxxxxx'
    """
    if limit < 0 or not 0 <= head <= 1:
        raise ValueError(f"clip needs limit >= 0 and 0 <= head <= 1, got limit={limit}, head={head}.")
    if len(text) <= limit:
        return text
    mark, kept = "", limit
    while not mark or kept + len(mark) > limit:  # a longer mark leaves less room, which may add a digit to its count
        kept = limit - len(mark)
        if kept <= 0:
            return text[:limit]
        mark = f" … [{len(text) - kept} characters cut] … "
    front = round(kept * head)
    return text[:front] + mark + (text[len(text) - (kept - front) :] if kept > front else "")
