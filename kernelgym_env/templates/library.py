"""The templates: what each can choose, and how it is rendered for a task.

- `Template` -- one of them.
- `templates` -- all, or those for a backend.
- `get_template` -- one by name, e.g. ``triton/rows``.
- `templates_for`, `template_for` -- those that fit a task.

A template is a Jinja file in ``sources/``; its choices are the `knobs` here. The source that it renders is a whole
submission: the reference's constructor, a kernel, and a `forward` that launches it.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.tasks.model import Task
from kernelgym_env.templates.patterns import Pattern, recognise, why_not
from kernelgym_env.templates.wording import Wording

__all__ = ["BACKENDS", "Choices", "Template", "get_template", "template_for", "templates", "templates_for"]

BACKENDS = ("cpp", "triton", "cupy")
"""Languages that there are templates in."""

Choices = Mapping[str, Any]
"""A value for each knob of a template, by name."""


@dataclass(frozen=True)
class Template:
    """A kernel with gaps.

    Attributes:
        backend: one of `BACKENDS`.
        kind: what it computes: ``elementwise``, ``rows`` (along a contiguous axis), ``columns`` (along another one),
            ``matmul``, ``gae``.
        knobs: values of each choice, by name.
        forbidden: combinations that make no sense, as `kernelgym_env.wrappers.ScheduleAction` takes them.
    """

    backend: str
    kind: str
    knobs: Mapping[str, tuple[Any, ...]] = field(hash=False)
    forbidden: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)

    @property
    def name(self) -> str:
        """``backend/kind``."""
        return f"{self.backend}/{self.kind}"

    @property
    def size(self) -> int:
        """Number of combinations of choices."""
        return math.prod(len(values) for values in self.knobs.values())

    def configurations(self) -> Iterator[dict[str, Any]]:
        """All combinations that are not forbidden, the last knob changing fastest."""
        for values in itertools.product(*self.knobs.values()):
            choices = dict(zip(self.knobs, values, strict=True))
            if not self.forbids(choices):
                yield choices

    def forbids(self, choices: Choices) -> bool:
        """Whether a combination makes no sense."""
        return any(all(choices[name] == value for name, value in entry.items()) for entry in self.forbidden)

    def restricted(self, **values: Sequence[Any]) -> Template:
        """The same with fewer values of some knobs.

        Raises:
            UnknownNameError: for an unknown knob.
            InvalidOptionError: for a value that it does not have, or none, or if every combination is forbidden.
        """
        for name, given in values.items():
            if name not in self.knobs:
                raise unknown_name(f"knob of {self.name}", name, self.knobs)
            if not given or not set(given) <= set(self.knobs[name]):
                raise InvalidOptionError(
                    f"{self.name} has {name} in {list(self.knobs[name])}; give some of these, got {list(given)!r}."
                )
        knobs = {name: tuple(values.get(name, known)) for name, known in self.knobs.items()}
        kept = tuple(entry for entry in self.forbidden if all(value in knobs[name] for name, value in entry.items()))
        found = Template(self.backend, self.kind, knobs, kept)
        if next(found.configurations(), None) is None:
            raise InvalidOptionError(f"Every combination of these values is forbidden in {self.name}: {list(kept)}.")
        return found

    def draw(self, rng: random.Random) -> dict[str, Any]:
        """A combination that is not forbidden, each alike."""
        while True:
            choices = {name: rng.choice(values) for name, values in self.knobs.items()}
            if not self.forbids(choices):
                return choices

    def fits(self, pattern: Pattern) -> bool:
        """Whether it computes what a pattern says."""
        return self.kind == kind_of(pattern)

    def check(self, choices: Choices) -> dict[str, Any]:
        """The choices in the order of the knobs.

        Raises:
            UnknownNameError: for an unknown knob.
            InvalidOptionError: for a missing one, or another value.
        """
        for name in choices:
            if name not in self.knobs:
                raise unknown_name(f"knob of {self.name}", name, self.knobs)
        for name, values in self.knobs.items():
            if name not in choices:
                raise InvalidOptionError(f"{self.name} needs a value for {name}; it has {list(values)}.")
            if choices[name] not in values:
                raise InvalidOptionError(f"{self.name} has {name} in {list(values)}, got {choices[name]!r}.")
        return {name: choices[name] for name in self.knobs}

    def check_fit(self, task: Task) -> Pattern:
        """The pattern of a task that it fits.

        Raises:
            InvalidOptionError: if it does not (says why).
        """
        pattern = recognise(task)
        if pattern is None or not self.fits(pattern):
            reason = why_not(task) if pattern is None else f"it needs one for {kind_of(pattern)}"
            raise InvalidOptionError(f"The template {self.name} does not fit {task.id}: {reason}.")
        return pattern

    def render(self, task: Task, choices: Choices) -> str:
        """The source of a submission.

        Args:
            task: a task that it fits, sized for its device.
            choices: a value for each knob.

        Raises:
            InvalidOptionError: if it does not fit the task (says why), or for choices that it does not have.
            UnknownNameError: for an unknown knob.
        """
        checked = self.check(choices)
        pattern = self.check_fit(task)
        return _environment().get_template(f"{self.name}.jinja").render(**Wording(pattern, task).names(), **checked)


def kind_of(pattern: Pattern) -> str:
    """The kind of template that a pattern needs."""
    if pattern.family in ("rows", "reduction"):
        return "rows" if pattern.inner == 1 else "columns"
    return pattern.family


@functools.lru_cache(maxsize=1)
def _environment() -> Any:
    import jinja2  # not needed to look at templates

    folder = resources.files("kernelgym_env.templates") / "sources"
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(folder)), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )


_MATHS = ("exact", "fast")
_TEMPLATES = (
    Template(
        "cpp",
        "elementwise",
        {"math": _MATHS, "chunk": (256, 4096, 65536), "unroll": (1, 4, 8), "threads": (0, 1)},
    ),
    Template(
        "cpp",
        "rows",
        {"math": _MATHS, "chunk": (256, 1024, 4096), "unroll": (1, 4, 8), "threads": (0, 1)},
    ),
    Template(
        "cpp",
        "columns",
        {"math": _MATHS, "block": (16, 64, 256, 1024), "unroll": (1, 4), "threads": (0, 1)},
    ),
    Template(
        "cpp",
        "matmul",
        {
            "math": _MATHS,
            "tile_m": (8, 32, 128),
            "tile_n": (16, 64, 256),
            "tile_k": (16, 64, 256),
            "rows": (1, 2, 4, 8),
        },
    ),
    Template("cpp", "gae", {"math": _MATHS, "lanes": (1, 4, 16), "chunk": (1, 16), "threads": (0, 1)}),
    Template(
        "triton",
        "elementwise",
        {"block": (256, 512, 1024, 2048, 4096), "warps": (1, 2, 4, 8), "items": (1, 2, 4), "evict": (0, 1)},
    ),
    Template(
        "triton",
        "rows",
        {
            "variant": ("loop", "whole", "online"),
            "block": (512, 1024, 2048, 4096, 8192),
            "warps": (1, 2, 4, 8, 16),
            "stages": (1, 2, 3),
        },
        # hundreds of values in each thread take minutes to compile
        ({"block": 8192, "warps": 1}, {"block": 8192, "warps": 2}, {"block": 4096, "warps": 1}),
    ),
    Template(
        "triton",
        "columns",
        {"block": (32, 64, 128, 256), "tile": (1, 4, 16), "warps": (1, 2, 4, 8), "stages": (1, 3)},
    ),
    Template(
        "triton",
        "matmul",
        {
            "precision": ("ieee", "tf32x3"),
            "block_m": (32, 64, 128),
            "block_n": (32, 64, 128),
            "block_k": (16, 32),
            "warps": (4, 8),
            "stages": (2, 3, 4),
            "group": (1, 8),
            "split": (1, 4, 16),
        },
    ),
    Template("triton", "gae", {"block": (64, 128, 256, 1024), "warps": (1, 2, 4), "stages": (1, 2)}),
    Template("cupy", "elementwise", {"threads": (128, 256, 512), "items": (1, 2, 4, 8)}),
    Template("cupy", "rows", {"threads": (128, 256, 512, 1024), "unroll": (1, 4)}),
    Template("cupy", "matmul", {"tile": (16, 32), "rows": (1, 2, 4, 8)}),
    Template("cupy", "gae", {"threads": (32, 64, 128, 256), "unroll": (1, 4)}),
)
_BY_NAME = {template.name: template for template in _TEMPLATES}


def templates(backend: str | None = None) -> list[Template]:
    """All templates, or those of a backend.

    Raises:
        UnknownNameError: for an unknown backend.

    >>> [template.kind for template in templates("cupy")]
    ['elementwise', 'rows', 'matmul', 'gae']
    """
    if backend is not None and backend not in BACKENDS:
        raise unknown_name("backend of templates", backend, BACKENDS)
    return [template for template in _TEMPLATES if backend in (None, template.backend)]


def get_template(name: str) -> Template:
    """A template by name.

    Raises:
        UnknownNameError: for an unknown one.

    >>> get_template("triton/rows").size
    225
    """
    if name not in _BY_NAME:
        raise unknown_name("template", name, _BY_NAME)
    return _BY_NAME[name]


def templates_for(task: Task, backend: str | None = None) -> list[Template]:
    """The templates that fit a task, sized for its device; none where its reference is not understood.

    >>> from kernelgym_env.tasks import load_task
    >>> [template.name for template in templates_for(load_task("KernelGym/Matmul"))]
    ['cpp/matmul', 'triton/matmul', 'cupy/matmul']
    """
    pattern = recognise(task)
    return [] if pattern is None else [template for template in templates(backend) if template.fits(pattern)]


def template_for(task: Task, backend: str) -> Template:
    """The template of a backend that fits a task.

    Raises:
        InvalidOptionError: if there is none (says why).
        UnknownNameError: for an unknown backend.
    """
    found = templates_for(task, backend)
    if not found:
        reason = why_not(task) or f"there is none in {backend} for its kind"
        raise InvalidOptionError(f"No {backend} template fits {task.id}: {reason}.")
    return found[0]
