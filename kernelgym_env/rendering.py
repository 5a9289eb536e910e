"""An episode for people: a text, a picture, or printed to the terminal.

- `table` -- the turns as a rich table.
- `as_text` -- the table and the last feedback as plain text.
- `as_picture` -- the same as an RGB array.
- `show` -- print it.
- `frame` -- what `render` gives in a mode, `MODES` -- the modes.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from kernelgym_env.episode import Episode
from kernelgym_env.limits import clip

__all__ = ["MODES", "as_picture", "as_text", "frame", "show", "table"]

MODES = ("ansi", "human", "rgb_array")
"""Render modes of the environments; with ``human`` each turn is printed as it happens."""

_COLUMNS = 100
_PICTURE_LINES = 40
_FEEDBACK_CHARS = 1_500
_COLOURS = {"correct": "green", "wrong": "yellow", "format": "yellow", "": "white"}


def table(episode: Episode, returns: list[float] | None = None, *, running: bool = False) -> Table:
    """The turns of an episode.

    Args:
        episode: the episode.
        returns: return of each played turn, shown in a column of its own if given.
        running: whether the next turn is being played; the title then names that one.
    """
    shown = episode.turn + 1 if running and not episode.ended else episode.turn
    result = Table(title=f"{episode.task_id}: turn {shown} of {episode.turns}", title_justify="left")
    result.add_column("turn", justify="right")
    result.add_column("status")
    result.add_column("speedup", justify="right")
    result.add_column("95% interval", justify="right")
    result.add_column("reward", justify="right")
    if returns is not None:
        result.add_column("return", justify="right")
    for number, turn in enumerate(episode.played, 1):
        cells: list[Any] = [str(number), Text(turn.status or "stop", style=_COLOURS.get(turn.status, "red"))]
        measured = not math.isnan(turn.speedup)
        cells += (
            [f"{turn.speedup:.2f}x", f"{turn.speedup_low:.2f} – {turn.speedup_high:.2f}"] if measured else ["–", "–"]
        )
        cells.append(f"{turn.score:.3f}")
        if returns is not None:
            cells.append(f"{returns[number - 1]:.3f}" if number <= len(returns) else "–")
        result.add_row(*cells)
    return result


def _view(episode: Episode) -> Group:
    parts: list[Any] = [table(episode)]
    if episode.played:
        parts.append(Text(clip(episode.played[-1].feedback, _FEEDBACK_CHARS)))
    return Group(*parts)


def as_text(episode: Episode) -> str:
    """The episode as plain text, 100 columns wide."""
    file = io.StringIO()
    Console(file=file, width=_COLUMNS, color_system=None, force_terminal=False).print(_view(episode))
    return file.getvalue()


def show(episode: Episode) -> None:
    """Print the episode to the terminal (or into the notebook)."""
    Console().print(_view(episode))


def as_picture(episode: Episode) -> np.ndarray:
    """The episode's text drawn on a canvas of fixed size, uint8 [height, width, 3].

    Raises:
        gymnasium.error.DependencyNotInstalled: without Pillow.
    """
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        from gymnasium.error import DependencyNotInstalled

        raise DependencyNotInstalled(
            "render_mode='rgb_array' needs Pillow: pip install 'kernelgym_env[render]'"
        ) from None
    font = ImageFont.load_default(size=13)
    width, height = 8 * _COLUMNS + 16, 18 * _PICTURE_LINES + 16
    image = Image.new("RGB", (width, height), (16, 18, 24))
    draw = ImageDraw.Draw(image)
    lines = as_text(episode).splitlines()[:_PICTURE_LINES]
    for row, line in enumerate(lines):
        # one cell a character keeps the table's columns straight in a proportional font
        for column, character in enumerate(line):
            if character != " ":
                draw.text((8 + 8 * column, 8 + 18 * row), character, font=font, fill=(222, 226, 230))
    return np.asarray(image, dtype=np.uint8).copy()


def frame(episode: Episode, mode: str) -> str | np.ndarray | None:
    """What `render` gives in a mode: a text (``ansi``), a picture (``rgb_array``), or None (``human``).

    Raises:
        gymnasium.error.DependencyNotInstalled: for ``rgb_array`` without Pillow.
    """
    if mode == "ansi":
        return as_text(episode)
    return as_picture(episode) if mode == "rgb_array" else None
