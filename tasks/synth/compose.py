"""One task out of a seed and a number.

- `compose` -- draws sizes and operators and writes the task.
- `DEFAULT_MIX` -- how often a task has how many operators.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.tasks.mix import addable, in_words, is_weight
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.synth.draft import Dim, Draft
from kernelgym_env.tasks.synth.operators import Operator

__all__ = ["DEFAULT_MIX", "check_mix", "compose"]

DEFAULT_MIX: Mapping[int, float] = {1: 0.05, 2: 0.4, 3: 0.3, 4: 0.15, 5: 0.1}
"""Weights by number of operators."""

_MOST = 5
_PRODUCTS = 0.35
"""Share of tasks with a product, where there is one among the operators."""

# extents by layout, for a CPU and a GPU; with a product, whose time grows faster, smaller ones
_SIZES: Mapping[str, Mapping[str, tuple[Sequence[int], Sequence[int]]]] = {
    "matrix": {
        "ROWS": ((512, 768, 1024), (65536, 98304, 131072)),
        "COLUMNS": ((1024, 1536, 2000), (2048, 3072, 4000)),
    },
    "sequence": {
        "BATCH": ((4, 8), (64, 96)),
        "CHANNELS": ((32, 64), (512, 768, 1024)),
        "LENGTH": ((2048, 3000), (4096, 6000)),
    },
    "image": {
        "BATCH": ((4, 8), (64, 96, 128)),
        "CHANNELS": ((16, 32), (64, 96, 128)),
        "HEIGHT": ((64, 80), (160, 192)),
        "WIDTH": ((64, 96), (160, 224)),
    },
}
_SIZES_WITH_PRODUCT: Mapping[str, Mapping[str, tuple[Sequence[int], Sequence[int]]]] = {
    "matrix": {
        "ROWS": ((512, 768), (16384, 24576)),
        "COLUMNS": ((384, 500, 768), (2048, 3072, 4000)),
    },
    "sequence": {
        "BATCH": ((2, 4), (32, 48)),
        "CHANNELS": ((32, 48), (128, 192, 256)),
        "LENGTH": ((384, 500), (1024, 2048, 3000)),
    },
    "image": {
        "BATCH": ((4, 6), (48, 64)),
        "CHANNELS": ((16, 32), (32, 48, 64)),
        "HEIGHT": ((32, 48), (96, 128)),
        "WIDTH": ((32, 48), (96, 160)),
    },
}
_ORDERLESS = frozenset({"flip", "roll", "channel_shuffle"})
"""A reduction would undo them."""


def check_mix(mix: Mapping[int, float]) -> Mapping[int, float]:
    """Return a mix that can be drawn from, in the order of the numbers.

    Raises:
        InvalidOptionError: for no mapping, numbers of operators outside of 1 to 5, or weights below 0 or all of them 0.
    """
    if not isinstance(mix, Mapping):
        raise InvalidOptionError(
            f"A mix maps numbers of operators to weights, such as {{1: 1, 2: 2}}, got {mix!r:.200}."
        )
    for count, weight in mix.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST:
            raise InvalidOptionError(f"A mix has numbers of operators from 1 to {_MOST}, got {count!r}.")
        if not is_weight(weight):
            raise InvalidOptionError(
                f"Weights of a mix are finite numbers of at least 0, got {in_words(weight)} for {count}."
            )
    if not any(mix.values()):
        raise InvalidOptionError(f"A mix needs a weight above 0, got {dict(mix)!r}.")
    counts = sorted(mix)  # the order in which they are given is no part of a mix
    return dict(zip(counts, addable([float(mix[count]) for count in counts]), strict=True))


def compose(seed: int, number: int, operators: Sequence[Operator], mix: Mapping[int, float]) -> Task | None:
    """Compose a task; the same for the same arguments on every machine.

    Args:
        seed: of a set of tasks.
        number: of the task in it.
        operators: what it may consist of.
        mix: weights by number of operators, see `check_mix`.

    Returns:
        The task, ``Synth/s<seed>-<number>``; None where the operators do not fit together.
    """
    rng = random.Random(f"{seed}:{number}")
    count = rng.choices(list(mix), list(mix.values()))[0]
    layout = rng.choice(("matrix", "sequence", "image"))
    allowed = [operator for operator in operators if layout in operator.layouts]
    products = [operator for operator in allowed if operator.kind == "product"]
    place = rng.randrange(count) if products and rng.random() < _PRODUCTS else -1
    draft = _draft(layout, rng, _SIZES_WITH_PRODUCT if place >= 0 else _SIZES)
    used: list[Operator] = []
    for index in range(count):
        if index == place:
            choices = [operator for operator in products if operator.fits(draft)]
        else:
            last = index == count - 1
            choices = [operator for operator in allowed if _may_follow(operator, used, last) and operator.fits(draft)]
        if not choices:
            return None
        used.append(_chosen(choices, rng))
        used[-1].write(draft)
    return _task(seed, number, draft, used)


def _chosen(choices: Sequence[Operator], rng: random.Random) -> Operator:
    """Kinds are equally likely, since there are far more elementwise operators than others."""
    kinds = sorted({operator.kind for operator in choices})
    kind = rng.choice(["elementwise", *kinds] if "elementwise" in kinds else kinds)
    return rng.choice([operator for operator in choices if operator.kind == kind])


def _may_follow(operator: Operator, used: Sequence[Operator], last: bool) -> bool:
    if operator.kind == "product" or operator in used:
        return False
    before = used[-1].kind if used else ""
    if operator.kind == "reduction":
        # of rows that add up to one, or whose order alone was changed, little is left to compute
        return last and before != "rowwise" and not any(known.name in _ORDERLESS for known in used)
    if operator.kind == "rowwise":
        return before != "rowwise"
    return not (operator.kind == "layout" and before == "layout")


def _draft(
    layout: str, rng: random.Random, sizes: Mapping[str, Mapping[str, tuple[Sequence[int], Sequence[int]]]]
) -> Draft:
    drawn = {name: {"cpu": rng.choice(cpu), "cuda": rng.choice(gpu)} for name, (cpu, gpu) in sizes[layout].items()}
    shape = [Dim(name, values) for name, values in drawn.items()]
    return Draft(layout, shape, rng, constants=drawn)


def _task(seed: int, number: int, draft: Draft, used: Sequence[Operator]) -> Task:
    words = [operator.words for operator in used]
    title = ", ".join(words)
    title = title[:1].upper() + title[1:]
    summary = f"{title}, of {_article(draft.layout)}."
    return Task(
        id=f"Synth/s{seed}-{number:05d}",
        source=draft.source(summary),
        title=title,
        description=summary,
        level=1 if len(used) == 1 else 2,
        tags=("synth", draft.layout, *dict.fromkeys(operator.name for operator in used)),
        sizes={kind: {name: values[kind] for name, values in draft.constants.items()} for kind in ("cpu", "cuda")},
        origin="kernelgym_env.tasks.synth",
        licence="MIT",
    )


def _article(layout: str) -> str:
    return {"matrix": "the rows of a matrix", "sequence": "sequences", "image": "images"}[layout]
