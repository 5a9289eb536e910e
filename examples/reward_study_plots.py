"""The plots of `reward_study.py`: for each study its curves, with bands, and the published orderings with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

COLOURS = {"holds": "tab:green", "not resolved": "tab:gray", "reversed": "tab:red"}


def plot(studies: Mapping[str, Any], folder: Path) -> Iterator[Path]:
    """Write ``reward_study_<name>.png`` for each study, and give the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, study in studies.items():
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
        _curves(study, left)
        _claims(study, right)
        figure.suptitle(study["question"], fontsize=11)
        path = folder / f"reward_study_{name}.png"
        figure.savefig(path, dpi=72, metadata={"Software": None})
        plt.close(figure)
        yield path


def _curves(study: Mapping[str, Any], axes: Any) -> None:
    (title,) = study["curves"]
    for arm, entry in study["arms"].items():
        for curve in entry["curves"].values():
            (line,) = axes.plot(curve["at"], curve["mean"], label=arm, linewidth=1.5)
            axes.fill_between(curve["at"], curve["low"], curve["high"], color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set_xlabel(study["axis"])
    axes.set_ylabel(title)
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)


def _claims(study: Mapping[str, Any], axes: Any) -> None:
    claims = study["claims"]
    for place, claim in enumerate(reversed(claims)):
        colour = COLOURS[claim["verdict"]]
        # as a share of the longer side of the interval, since the metrics differ
        scale = max(abs(claim["low"]), abs(claim["high"]), 1e-12)
        low, middle, high = (claim[key] / scale for key in ("low", "difference", "high"))
        axes.plot([low, high], [place, place], color=colour, linewidth=3, solid_capstyle="butt")
        axes.plot(middle, place, "o", color=colour)
        axes.text(1.2, place, f"{claim['difference']:+.3f}", fontsize=7, va="center")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(claims)), [claim["text"] for claim in reversed(claims)], fontsize=7)
    axes.set_xticks([-1, 0, 1], ["reversed", "0", "as published"])
    axes.set_xlim(-1.15, 1.6)
    axes.set_title("difference at equal seeds, 95% interval, each to its own scale", fontsize=7)
