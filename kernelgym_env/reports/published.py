"""Published figures: ``published.json``, each with its protocol, its selection rule and its source.

- `System` -- one publication; `PublishedFigure` -- one of its figures.
- `published`, `published_names` -- look them up.
- `read_published` -- another file of the same form.

They are what the publications say of themselves, measured by their own evaluators on their own devices: a difference to
a run of this package is no measurement of either.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, KernelGymError, MissingDataError, check_whole, unknown_name

__all__ = ["PublishedFigure", "System", "published", "published_names", "read_published"]

_SCHEMA = 1
_BASELINES = ("", "eager", "compile", "graph")
_SELECT = ("last", "best", None)


@dataclass(frozen=True)
class PublishedFigure:
    """One figure.

    Attributes:
        model: whose it is.
        level: level of KernelBench, None for all levels of the set.
        figure: as `kernelgym_env.reports.figures.Figure.name`; shares are from 0 to 1. ``mean_speedup_correct`` and
            ``median_speedup_correct`` leave out what was not correct, and have no counterpart in a report.
        baseline: what speedups are over.
        k: samples a task of which the best counts; 1 is a mean over samples.
        value: the figure.
        turns: of a trajectory that the figure is over, None where it is not known; may be left out of a file.
    """

    model: str
    level: int | None
    figure: str
    baseline: str
    k: int
    value: float
    turns: int | None = None

    def __post_init__(self) -> None:
        if not self.model or not self.figure or not isinstance(self.model, str) or not isinstance(self.figure, str):
            raise InvalidOptionError(f"model and figure must be texts, got {self.model!r} and {self.figure!r}.")
        if self.baseline not in _BASELINES:
            raise unknown_name("baseline", self.baseline, _BASELINES)
        check_whole("k", self.k)
        if self.turns is not None:
            check_whole("turns", self.turns)
        share = self.figure == "correct" or self.figure.startswith("fast_")
        number = isinstance(self.value, int | float) and not isinstance(self.value, bool) and math.isfinite(self.value)
        if not number or self.value < 0 or (share and self.value > 1):
            allowed = "from 0 to 1" if share else "at least 0"
            raise InvalidOptionError(f"{self.figure} of {self.model!r} must be {allowed}, got {self.value!r}.")


@dataclass(frozen=True)
class System:
    """One publication, or one of its sets of tasks.

    Attributes:
        name: short name.
        title: whose.
        source: where the figures are from.
        evidence: how they were read.
        protocol: tasks, turns, samples, device, tolerance and timing, as far as they are known.
        tasks: number of tasks, None where it is not known.
        select: which turns of a sample count: ``last``, ``best``, None where it is not stated.
        selection: the same in words.
        rows: the figures.
    """

    name: str
    title: str
    source: str
    evidence: str
    protocol: str
    tasks: int | None
    select: str | None
    selection: str
    rows: tuple[PublishedFigure, ...] = field(repr=False)

    def __post_init__(self) -> None:
        for name in ("name", "title", "source", "evidence", "protocol", "selection"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise InvalidOptionError(f"{name} must be a text, got {value!r}.")
        if self.select not in _SELECT:
            raise InvalidOptionError(f"select must be 'last', 'best' or null, got {self.select!r}.")
        if not self.rows:
            raise InvalidOptionError("rows must hold at least one figure.")


def read_published(path: str | Path) -> dict[str, System]:
    """The systems of a file by name.

    Raises:
        MissingDataError: if there is no such file.
        InvalidOptionError: if it is no JSON, or of another form; the message says where and what was expected.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MissingDataError(f"There is no file {str(path)!r} with published figures.") from error
    return _parsed(text, str(path))


@lru_cache(maxsize=1)
def _built_in() -> dict[str, System]:
    file = resources.files("kernelgym_env.reports") / "published.json"
    return _parsed(file.read_text(encoding="utf-8"), "published.json")


def published_names() -> list[str]:
    """Names of the systems of this package.

    >>> published_names()[:3]
    ['kevin', 'kevin_blog', 'cuda_agent']
    """
    return list(_built_in())


def published(name: str) -> System:
    """A system by name.

    Raises:
        UnknownNameError: for an unknown name, with what may have been meant.

    >>> found = published("cuda_agent").rows[0]
    >>> found.model, found.figure, found.value
    ('CUDA Agent', 'correct', 0.988)
    """
    systems = _built_in()
    if name not in systems:
        raise unknown_name("published system", name, systems)
    return systems[name]


def _parsed(text: str, where: str) -> dict[str, System]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InvalidOptionError(f"{where} is no JSON: {error}.") from error
    if not isinstance(data, Mapping) or not isinstance(data.get("systems"), list):
        raise InvalidOptionError(f"{where} must be an object with schema {_SCHEMA} and a list of systems.")
    if data.get("schema") != _SCHEMA:
        raise InvalidOptionError(f"{where} has schema {data.get('schema')!r}, this version reads {_SCHEMA}.")
    found: dict[str, System] = {}
    for number, entry in enumerate(data["systems"]):
        system = _system(entry, f"{where}, systems[{number}]")
        if system.name in found:
            raise InvalidOptionError(f"{where} has {system.name!r} twice.")
        found[system.name] = system
    return found


def _system(entry: Any, where: str) -> System:
    fields = System.__dataclass_fields__
    _check_keys(entry, fields, where)
    if not isinstance(entry["rows"], list):
        raise InvalidOptionError(f"{where}: rows must be a list, got {entry['rows']!r:.100}.")
    rows = []
    for number, row in enumerate(entry["rows"]):
        _check_keys(row, PublishedFigure.__dataclass_fields__, f"{where}, rows[{number}]")
        try:
            rows.append(PublishedFigure(**row))
        except KernelGymError as error:
            raise InvalidOptionError(f"{where}, rows[{number}]: {error}") from error
    try:
        return System(**{**entry, "rows": tuple(rows)})
    except KernelGymError as error:
        raise InvalidOptionError(f"{where}: {error}") from error


def _check_keys(entry: Any, known: Mapping[str, Field[Any]], where: str) -> None:
    if not isinstance(entry, Mapping):
        raise InvalidOptionError(f"{where} must be an object, got {entry!r:.100}.")
    needed = {name for name, item in known.items() if item.default is MISSING}
    missing, unknown = sorted(needed - set(entry)), sorted(set(entry) - set(known))
    if missing or unknown:
        told = [f"{what} {', '.join(names)}" for what, names in (("lacks", missing), ("has unknown", unknown)) if names]
        raise InvalidOptionError(f"{where} {' and '.join(told)}; its keys are {', '.join(known)}.")
