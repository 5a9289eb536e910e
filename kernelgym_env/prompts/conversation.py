"""An observation as the conversation a language model is to continue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym_env.limits import MAX_FEEDBACK_CHARS, clip
from kernelgym_env.prompts.templating import render

__all__ = ["messages", "render_prompt", "summary_request"]


def messages(
    observation: Mapping[str, Any],
    *,
    summary: bool = False,
    feedback_chars: int = MAX_FEEDBACK_CHARS,
    templates: str | Path | None = None,
) -> list[dict[str, str]]:
    """Chat messages of an observation: the task, then each turn's reply and its result.

    Args:
        observation: of a `KernelEnv`.
        summary: whether the last message asks for a summary between ``<summary>`` tags.
        feedback_chars: greatest length of each result; a longer one is cut in the middle, visibly.
        templates: a folder with templates in place of the package's.

    Returns:
        ``[{"role": "user" | "assistant", "content": text}, …]``, ending with a user message.
    """
    result = [{"role": "user", "content": str(observation["prompt"])}]
    for entry in observation["history"]:
        result.append({"role": "assistant", "content": entry["action"]})
        result.append({"role": "user", "content": clip(entry["feedback"], feedback_chars)})
    if len(result) > 1:
        left = int(observation["turns_left"])
        result[-1]["content"] += "\n\n" + render("next_turn", templates, turns_left=left, summary=summary)
    return result


def render_prompt(
    observation: Mapping[str, Any],
    *,
    summary: bool = False,
    feedback_chars: int = MAX_FEEDBACK_CHARS,
    templates: str | Path | None = None,
) -> str:
    """An observation as one text, for models without a chat format.

    Args:
        observation: of a `KernelEnv`.
        summary: see `messages`.
        feedback_chars: see `messages`.
        templates: see `messages`.
    """
    chat = messages(observation, summary=summary, feedback_chars=feedback_chars, templates=templates)
    parts = [
        message["content"] if message["role"] == "user" else f"Your reply:\n{message['content']}" for message in chat
    ]
    return "\n\n".join(parts)


def summary_request() -> str:
    """The sentence that asks for a summary."""
    return render("summary")
