"""An observation as the conversation a language model is to continue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["messages", "render_prompt"]


def messages(observation: Mapping[str, Any]) -> list[dict[str, str]]:
    """Chat messages of an observation: the task, then each turn's reply and its result.

    Args:
        observation: of a `KernelEnv`.

    Returns:
        ``[{"role": "user" | "assistant", "content": text}, …]``, ending with a user message.
    """
    result = [{"role": "user", "content": str(observation["prompt"])}]
    for entry in observation["history"]:
        result.append({"role": "assistant", "content": entry["action"]})
        result.append({"role": "user", "content": entry["feedback"]})
    if len(result) > 1:
        left = int(observation["turns_left"])
        result[-1]["content"] += (
            f"\n\nImprove your kernel: {left} turn{'s' if left != 1 else ''} left. Reply with the whole source again."
            if left
            else "\n\nThe episode is over."
        )
    return result


def render_prompt(observation: Mapping[str, Any]) -> str:
    """An observation as one text, for models without a chat format.

    Args:
        observation: of a `KernelEnv`.
    """
    parts = [
        message["content"] if message["role"] == "user" else f"Your reply:\n{message['content']}"
        for message in messages(observation)
    ]
    return "\n\n".join(parts)
