"""The task: a reference to be beaten, as data.

- `Task` -- the frozen record.
- `DEVICE_KINDS` -- the kinds of device that have sizes of their own.
- `INPUT_LAWS` -- how the values of inputs may be varied.
- `ENV_VERSION` -- what follows a task's id in the id of its environment.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.limits import MAX_SOURCE_CHARS
from kernelgym_env.tasks import source as text
from kernelgym_env.tasks.source import Number

if TYPE_CHECKING:
    from kernelgym_env.evaluation.protocols import Protocol

__all__ = ["DEVICE_KINDS", "ENV_VERSION", "INPUT_LAWS", "Task"]

DEVICE_KINDS = ("cpu", "cuda")
"""Kinds of device that a task may have sizes for."""

INPUT_LAWS = ("scaled_up", "scaled_down", "shifted", "heavy_tailed", "outlier", "uneven", "permuted")
"""Value laws: ways in which inputs get other values than `get_inputs` draws, to tell a kernel that is right for any
values from one that is right for those alone. `kernelgym_env.evaluation.laws` says what each keeps."""

ENV_VERSION = "-v0"
"""A task's environment has the task's id with this behind it."""

# Gymnasium's `[namespace/]name`, with the namespace required: it says which suite a task is from.
_ID = re.compile(r"[\w:-]+/[\w:.-]+")
_VERSIONED = re.compile(r".*-v\d+", re.DOTALL)


@dataclass(frozen=True)
class Task:
    """One reference that a submission has to match and to beat.

    The source follows KernelBench's contract: ``class Model(nn.Module)``; ``get_inputs()``, a list of CPU tensors and
    plain values for `forward`; ``get_init_inputs()``, a list of constructor arguments; sizes as module-level constants.
    It is data: nothing here runs it.

    Attributes:
        id: ``Namespace/Name``; the environment's id is this with ``-v0`` behind it.
        source: the reference's text; kept with LF line ends.
        title: a few words.
        description: one sentence on what is computed.
        level: 1 single operators, 2 fused chains, 3 blocks of networks, 4 whole models; 0 where it has none.
        tags: words to select by.
        sizes: module-level constants to rewrite, per kind of device, so that one task fits a CPU and a GPU.
        origin: where the source came from.
        licence: under which terms.
        input_laws: names of `INPUT_LAWS` that are tried on this task. None tries all; one under which the reference
            fails, overflows or is ill-conditioned is left out in any case. ``()`` tries none, for a reference that is
            meant for the values of its `get_inputs` alone.
        shapes: further sizes of the same task, each as constants to rewrite, at which a submission may be checked
            besides. They are in no prompt. They belong to the sizes that the source has, so a task whose constants are
            rewritten has none; see `kernelgym_env.tasks.shapes`.

    Raises:
        InvalidOptionError: if a field does not fit; for a source it says what is missing and where it came from.

    >>> task = Task("Demo/Double", '''
    ... import torch, torch.nn as nn
    ... N = 1 << 20
    ... class Model(nn.Module):
    ...     def forward(self, x):
    ...         return x + x
    ... def get_inputs():
    ...     return [torch.randn(N)]
    ... def get_init_inputs():
    ...     return []
    ... ''', sizes={"cpu": {"N": 4096}})
    >>> task.constants(), task.for_device("cpu").constants()
    ({'N': 1048576}, {'N': 4096})
    """

    id: str
    source: str = field(repr=False)
    title: str = ""
    description: str = ""
    level: int = 0
    tags: tuple[str, ...] = ()
    # A dict has no hash; tasks that differ in their sizes alone are still unequal.
    sizes: Mapping[str, Mapping[str, Number]] = field(default_factory=dict, hash=False)
    origin: str = ""
    licence: str = ""
    input_laws: tuple[str, ...] | None = None
    shapes: tuple[Mapping[str, Number], ...] = field(default=(), hash=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("id", "source", "title", "description", "origin", "licence"):
            if not isinstance(getattr(self, name), str):
                raise InvalidOptionError(f"Task {name} must be text, got {type(getattr(self, name)).__name__}.")
        if not _ID.fullmatch(self.id) or _VERSIONED.fullmatch(self.id):
            raise InvalidOptionError(
                f"Task id {self.id!r} must be Namespace/Name with exactly one slash, in letters, digits and _ : - "
                f"(and . in the name), and without a version such as -v0 at its end."
            )
        if isinstance(self.level, bool) or not isinstance(self.level, int) or self.level < 0:
            raise InvalidOptionError(f"Level of task {self.id!r} must be an integer of at least 0, got {self.level!r}.")
        if not isinstance(self.tags, (list, tuple)) or not all(isinstance(tag, str) for tag in self.tags):
            raise InvalidOptionError(f"Tags of task {self.id!r} must be a list of texts, got {self.tags!r}.")
        sizes = self.sizes
        if not isinstance(sizes, Mapping) or not all(isinstance(values, Mapping) for values in sizes.values()):
            raise InvalidOptionError(f"Sizes of task {self.id!r} must map device kinds to constants, got {sizes!r}.")
        object.__setattr__(self, "input_laws", self._checked_laws())
        object.__setattr__(self, "tags", tuple(self.tags))
        object.__setattr__(self, "source", text.normalise(self.source))
        self._check_source()
        object.__setattr__(self, "sizes", {kind: dict(values) for kind, values in sizes.items()})
        for kind, values in self.sizes.items():
            _check_kind(kind)
            text.rewrite(self.source, values, where=f"task {self.id!r}")
        object.__setattr__(self, "shapes", self._checked_shapes())

    def _checked_shapes(self) -> tuple[Mapping[str, Number], ...]:
        shapes = self.shapes
        if not isinstance(shapes, (list, tuple)) or not all(isinstance(shape, Mapping) and shape for shape in shapes):
            raise InvalidOptionError(f"Shapes of task {self.id!r} must be a list of constants by name, got {shapes!r}.")
        plain = []
        for shape in shapes:
            rewritten = text.constants(text.rewrite(self.source, shape, where=f"task {self.id!r}"))
            plain.append({name: rewritten[name] for name in shape})
        return tuple(plain)

    def _checked_laws(self) -> tuple[str, ...] | None:
        laws = self.input_laws
        if laws is None:
            return None
        if not isinstance(laws, (list, tuple)) or not all(isinstance(name, str) for name in laws):
            raise InvalidOptionError(f"Input laws of task {self.id!r} must be None or a list of names, got {laws!r}.")
        for name in laws:
            if name not in INPUT_LAWS:
                raise unknown_name(f"input law of task {self.id!r}:", name, INPUT_LAWS)
        return tuple(dict.fromkeys(laws))

    def _check_source(self) -> None:
        where = f"The source of task {self.id!r}" + (f" (from {self.origin})" if self.origin else "")
        if len(self.source) > MAX_SOURCE_CHARS:
            raise InvalidOptionError(f"{where} has {len(self.source)} characters; at most {MAX_SOURCE_CHARS} fit.")
        try:
            missing = text.missing_names(self.source)
        except SyntaxError as error:
            line = f" in line {error.lineno}" if error.lineno else ""
            raise InvalidOptionError(f"{where} is not Python: {error.msg}{line}.") from error
        if missing:
            raise InvalidOptionError(
                f"{where} lacks {' and '.join(missing)}. A task needs {', '.join(text.NAMES.values())} at module level."
            )

    @property
    def env_id(self) -> str:
        """The id of the task's environment, e.g. ``KernelGym/RowSoftmax-v0``."""
        return self.id + ENV_VERSION

    @property
    def hash(self) -> str:
        """SHA-256 of the source with LF line ends, 64 hexadecimal digits; `shapes` enter where there are any."""
        # no source has the character that parts them
        shapes = "\0" + json.dumps([sorted(shape.items()) for shape in self.shapes]) if self.shapes else ""
        return hashlib.sha256((self.source + shapes).encode()).hexdigest()

    def constants(self) -> dict[str, Number]:
        """The numeric module-level constants of the source by name: those that `with_sizes` can rewrite."""
        return text.constants(self.source)

    def with_sizes(self, sizes: Mapping[str, Number]) -> Task:
        """Return the task with constants of its source rewritten; `sizes` per device are applied no more.

        Values that the source computes from them follow. If there is anything to rewrite, `shapes` are dropped.

        Raises:
            InvalidOptionError: for a name that is no constant (names the allowed ones), or a value that is no number.
        """
        source = text.rewrite(self.source, sizes, where=f"task {self.id!r}")
        return dataclasses.replace(self, source=source, sizes={}, shapes=() if sizes else self.shapes)

    def at_shapes(self) -> list[Task]:
        """The task at each of its `shapes`, in order."""
        return [self.with_sizes(shape) for shape in self.shapes]

    def for_device(self, kind: str) -> Task:
        """Return the task with its sizes for ``cpu`` or ``cuda`` written into the source.

        A task without sizes for that kind keeps its source.

        Raises:
            UnknownNameError: for another kind.
        """
        _check_kind(kind)
        return self.with_sizes(self.sizes.get(kind, {}))

    def flaws(self, protocol: str | Protocol = "strict") -> tuple[str, ...]:
        """The known ways to win the task without the work, as tags; see `kernelgym_env.tasks.flaws.known_flaws`.

        Args:
            protocol: the protocol that it is to be judged by, or its name.

        Raises:
            UnknownNameError: for a name that is no protocol's.
        """
        from kernelgym_env.tasks import flaws  # which is made of tasks

        return flaws.known_flaws(self, protocol)

    def prompt(self, backend: str = "auto", device: str = "auto", style: str = "zero_shot", **options: Any) -> str:
        """What a model is told of the task on a device, see `kernelgym_env.prompts.task.task_prompt`.

        Args:
            backend: ``auto`` or ``triton``; ``cpp`` on a CPU alone, ``cuda`` and ``cupy`` on a GPU alone.
            device: ``auto``, ``cpu``, ``cuda`` or ``cuda:<index>``; a GPU need not be there.
            style: one of `kernelgym_env.prompts.task.STYLES`.
            options: ``protocol``, ``library_ops`` and ``templates``.

        Raises:
            UnknownNameError: for an unknown name.
            InvalidOptionError: for a backend that is not for the device, and templates that are not there or fail.
        """
        from kernelgym_env import devices, prompts  # which are for tasks
        from kernelgym_env.evaluation.submission import check_backend, check_device

        check_backend(backend)
        kind = devices.device_kind(device) if check_device(device) == "auto" else device.partition(":")[0]
        devices.check_backend_kind(backend, kind)
        facts = (
            prompts.device_facts("cuda" if device == "auto" and kind == "cuda" else device) if kind == "cuda" else ()
        )
        return prompts.task_prompt(
            self.for_device(kind), kind=kind, backend=backend, style=style, facts=facts, **options
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; `from_dict` takes it back."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            **data,
            "tags": list(self.tags),
            "sizes": {kind: dict(values) for kind, values in self.sizes.items()},
            "shapes": [dict(shape) for shape in self.shapes],
            "input_laws": None if self.input_laws is None else list(self.input_laws),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Task:
        """Build a task from `to_dict`'s data; ``id`` and ``source`` are required.

        Raises:
            InvalidOptionError: if a field is missing, unknown or does not fit.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown, absent = sorted(set(data) - known), sorted({"id", "source"} - set(data))
        if unknown or absent:
            said = "; ".join(
                f"{what} {', '.join(names)}" for what, names in (("lacks", absent), ("has", unknown)) if names
            )
            raise InvalidOptionError(f"Task data {said}. Fields: {', '.join(sorted(known))}.")
        return cls(**data)


def _check_kind(kind: str) -> None:
    if kind not in DEVICE_KINDS:
        raise unknown_name("device kind", kind, DEVICE_KINDS)
