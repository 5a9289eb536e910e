"""A report as one page of HTML, with plots as inline SVG: it needs no other file, no script and no library.

- `as_html` -- the page.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

from kernelgym_env.reports.figures import Figure, milestones
from kernelgym_env.reports.report import Report

__all__ = ["as_html"]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 460, 240, 48, 34
_COLOURS = ("#1b6ca8", "#c2571a", "#3c8d40", "#8a4f9e", "#7a7a7a", "#b23a5e")
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; }
th, td { padding: 0.2rem 0.8rem 0.2rem 0; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
.note { background: #fff6dd; padding: 0.4rem 0.8rem; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; } figcaption { font-size: 13px; color: #555; }
"""


def as_html(report: Report) -> str:
    """The report as a page."""
    facts = "".join(f"<tr><td>{_text(name)}</td><td>{_text(value)}</td></tr>" for name, value in report.facts.items())
    notes = "".join(f'<p class="note">{_text(note)}</p>' for note in report.notes)
    plots = [
        _lines(
            "Share of tasks against turns: the best within them, one sample a task",
            {name: _series(report.turns, name) for name in ("correct", "fast_1", "fast_2")},
            top=1.0,
        ),
        _lines(
            "Mean speedup over eager against turns, 0 where nothing was correct; the band is the 95% interval",
            {"mean_speedup": _series(report.turns, "mean_speedup")},
        ),
        _bars("How turns ended", report.statuses),
    ]
    parts = [
        f"<h1>{_text(report.name)}</h1>",
        f"<table>{facts}</table>",
        notes,
        "<h2>Figures</h2>",
        f"<p>Turns that count: {_text(report.select)}. Intervals are 95%, over tasks.</p>",
        _table([("over", lambda f: f.baseline or "–"), ("samples", lambda f: str(f.k))], report.overall),
        f'<div class="plots">{"".join(plots)}</div>',
        "<h2>By level</h2>",
        *(
            f"<h3>{f'Level {level}' if level else 'Without a level'}</h3>{_table([], rows)}"
            for level, rows in report.levels.items()
        ),
        "<h2>Tasks</h2>",
        _tasks(report),
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(report.name)}</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(part for part in parts if part) + "\n</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3g}"


def _table(columns: Sequence[tuple[str, object]], rows: Sequence[Figure]) -> str:
    head = "".join(
        f"<th>{name}</th>" for name in ("figure", *(name for name, _ in columns), "value", "from", "to", "tasks")
    )
    body = []
    for row in rows:
        extra = [str(read(row)) for _, read in columns if callable(read)]
        cells = [row.name, *extra, _number(row.value), _number(row.low), _number(row.high), str(row.tasks)]
        body.append("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _tasks(report: Report) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("task", "level", "samples", "correct", "greatest speedup"))
    body = "".join(
        f"<tr><td>{_text(row['task_id'])}</td><td>{row['level'] or '–'}</td><td>{row['samples']}</td>"
        f"<td>{row['correct']}</td><td>{_number(row['speedup'])}</td></tr>"
        for row in report.tasks
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _series(turns: Mapping[int, Sequence[Figure]], name: str) -> list[tuple[int, Figure]]:
    return [(turn, figure) for turn, found in turns.items() for figure in found if figure.name == name]


def _axes(top: float, labels: Sequence[str], places: Sequence[float]) -> str:
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(share * top, top)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share * top:.3g}</text>')
    for label, x in zip(labels, places, strict=True):
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{_text(label)}</text>')
    return "".join(parts)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - 12) * min(value, top) / top


def _svg(caption: str, content: str) -> str:
    return (
        f'<figure><svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="11" '
        f'role="img" aria-label="{_text(caption)}">{content}</svg><figcaption>{_text(caption)}</figcaption></figure>'
    )


def _lines(caption: str, series: Mapping[str, list[tuple[int, Figure]]], top: float = 0.0) -> str:
    turns = sorted({turn for points in series.values() for turn, _ in points})
    if not turns:
        return ""
    highs = [
        max(f.value, f.high) if not math.isnan(f.high) else f.value for points in series.values() for _, f in points
    ]
    top = top or max([value for value in highs if not math.isnan(value)], default=0.0) or 1.0
    wide = _WIDTH - _LEFT - 24
    x = {turn: _LEFT + 8 + wide * (place / max(1, len(turns) - 1)) for place, turn in enumerate(turns)}
    marks = [turn for turn in milestones(turns[-1]) if turn in x]
    content = _axes(top, [str(turn) for turn in marks], [x[turn] for turn in marks])
    for place, (name, points) in enumerate(series.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        known = [(turn, f) for turn, f in points if not math.isnan(f.value)]
        banded = [(turn, f) for turn, f in known if not math.isnan(f.low)]
        if len(banded) > 1:
            edge = [(x[t], _y(f.high, top)) for t, f in banded] + [(x[t], _y(f.low, top)) for t, f in reversed(banded)]
            content += f'<polygon points="{_points(edge)}" fill="{colour}" opacity="0.12"/>'
        line = [(x[turn], _y(f.value, top)) for turn, f in known]
        content += f'<polyline points="{_points(line)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        content += "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in line)
        content += f'<text x="{_LEFT + 12 + 110 * place}" y="10" fill="{colour}">{_text(name)}</text>'
    return _svg(caption, content)


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in points)


def _bars(caption: str, counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    top, step = float(max(counts.values())), (_WIDTH - _LEFT - 16) / len(counts)
    places = [_LEFT + 8 + step * (place + 0.5) for place in range(len(counts))]
    content = _axes(top, [name.replace("_", " ") for name in counts], places)
    for x, count in zip(places, counts.values(), strict=True):
        y = _y(count, top)
        content += (
            f'<rect x="{x - 0.35 * step:.1f}" y="{y:.1f}" width="{0.7 * step:.1f}" '
            f'height="{_HEIGHT - _BOTTOM - y:.1f}" fill="{_COLOURS[0]}"/>'
        )
    return _svg(caption, content)
