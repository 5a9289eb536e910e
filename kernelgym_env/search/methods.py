"""The searches.

- `best_of_n`, `refine`, `beam`, `stts`, `islands` -- one each.
- `grid` -- `refine` in several shapes of the same size.
- `METHODS`, `run_method` -- by name.

They rank by speed: the speedup of what is correct, 0 for anything else; `stts`, as published, by the score.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgym_env.env import MAX_TURNS
from kernelgym_env.episode import Turn
from kernelgym_env.errors import InvalidOptionError, check_whole, unknown_name
from kernelgym_env.policies.base import Policy
from kernelgym_env.search.explorer import Explorer, Position
from kernelgym_env.search.result import Budget, SearchResult, Trial
from kernelgym_env.tasks import load_task
from kernelgym_env.tasks.model import Task
from kernelgym_env.wrappers.exemplars import Kernel, draw

__all__ = ["METHODS", "beam", "best_of_n", "grid", "islands", "refine", "run_method", "stts"]

_EDGES = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0)


def best_of_n(task: Task | str, policy: Policy, n: int = 16, **common: Any) -> SearchResult:
    """Independent samples, none of which sees another.

    Args:
        task: a task, or anything `kernelgym_env.load_task` takes.
        policy: who acts.
        n: number of samples.
        **common: see `refine`.

    Raises:
        InvalidOptionError: for a number below 1, and as `refine` does.

    >>> from kernelgym_env.policies.choosing import SamplerPolicy
    >>> result = best_of_n("KernelGym/RowSum", SamplerPolicy(), n=8, pool="simulated")
    >>> len(result.trials), result.complete, {trial.depth for trial in result.trials}
    (8, True, {1})
    """
    return _refined("best_of_n", task, policy, {"n": n}, check_whole("n", n), 1, common)


def refine(task: Task | str, policy: Policy, trajectories: int = 1, turns: int = 16, **common: Any) -> SearchResult:
    """Trajectories of several turns; each turn sees the kernels and results of those before it.

    Args:
        task: a task, or anything `kernelgym_env.load_task` takes.
        policy: who acts.
        trajectories: how many, side by side.
        turns: of each.
        **common: of every search: ``budget`` (a `Budget`), ``folder`` (records every evaluation there; the same call
            goes on after a break), ``seed`` (of what the policy draws), ``at_once`` (evaluations side by side),
            ``trial_done`` (called with each new `Trial`), ``policy_name`` (a folder goes on only with the same one),
            and options of `KernelEnv`: ``pool``, ``device``, ``backend``, ``protocol``, ``library_ops``.

    Raises:
        InvalidOptionError: for a number below 1, a folder that holds another search, or options that do not fit.
        UnknownNameError: for an unknown option.
    """
    given = {"trajectories": trajectories, "turns": turns}
    return _refined(
        "refine", task, policy, given, check_whole("trajectories", trajectories), check_whole("turns", turns), common
    )


def beam(
    task: Task | str, policy: Policy, width: int = 16, turns: int = 4, keep: int = 4, rounds: int = 2, **common: Any
) -> SearchResult:
    """Trajectories of which the best are kept and copied.

    A round is `turns` turns of `width` trajectories. They are ranked by their fastest kernel so far, `keep` stay, and
    each is copied ``width / keep`` times for the next round, with all that it has seen.

    Source: Kevin (Cognition, Stanford): 16 trajectories x 4 turns, 4 kept, copied 4 times.

    Args:
        task: a task, or anything `kernelgym_env.load_task` takes.
        policy: who acts.
        width: trajectories side by side.
        turns: of a round.
        keep: how many stay; divides `width`.
        rounds: how many.
        **common: see `refine`.

    Raises:
        InvalidOptionError: for a number below 1, a width that `keep` does not divide, and as `refine` does.
    """
    for name, value in {"width": width, "turns": turns, "keep": keep, "rounds": rounds}.items():
        check_whole(name, value)
    if width % keep:
        raise InvalidOptionError(f"keep must divide width, got keep={keep} and width={width}.")

    def search(explorer: Explorer) -> None:
        beams = [explorer.start()] * width
        for _ in range(rounds):
            for _ in range(turns):
                beams = explorer.expand(beams)
                if explorer.spent:
                    return
            best = sorted(beams, key=lambda position: -position.best)[:keep]
            beams = [position for position in best for _ in range(width // keep)]

    settings = {"width": width, "turns": turns, "keep": keep, "rounds": rounds}
    return _run("beam", task, policy, settings, turns * rounds, search, common)


def stts(
    task: Task | str,
    policy: Policy,
    turns: int = 5,
    keep: int = 4,
    iterations: int = 10,
    chains: int = 1,
    **common: Any,
) -> SearchResult:
    """One long memory, of which a window of the best turns is shown: sequential test-time scaling.

    The first iteration plays `turns` turns. Each later one shows the `keep` best turns of all before, the slowest
    first, and plays ``turns - keep`` more: with the defaults 5 + 9 x 1 = 14 turns.

    Source: Dr. Kernel (HKUST, TikTok), STTS: the memory holds all turns, the prompt the top 4 by reward.

    Args:
        task: a task, or anything `kernelgym_env.load_task` takes.
        policy: who acts.
        turns: shown and played in an iteration.
        keep: turns that are shown at its start, below `turns`.
        iterations: how many.
        chains: memories side by side, which share nothing.
        **common: see `refine`.

    Raises:
        InvalidOptionError: for a number below 1, `keep` not below `turns`, and as `refine` does.
    """
    for name, value in {"turns": turns, "keep": keep, "iterations": iterations, "chains": chains}.items():
        check_whole(name, value)
    if keep >= turns:
        raise InvalidOptionError(f"keep must be below turns, got keep={keep} and turns={turns}.")

    def search(explorer: Explorer) -> None:
        memories: list[list[Position]] = [[] for _ in range(chains)]
        for iteration in range(iterations):
            now = [explorer.start(_window(memory, keep)) for memory in memories]
            for _ in range(turns if iteration == 0 else turns - keep):
                now = explorer.expand(now)
                for memory, position in zip(memories, now, strict=False):
                    memory.append(position)
                if explorer.spent:
                    return

    settings = {"turns": turns, "keep": keep, "iterations": iterations, "chains": chains}
    return _run("stts", task, policy, settings, turns, search, common)


def islands(
    task: Task | str,
    policy: Policy,
    count: int = 4,
    generations: int = 32,
    shown: int = 2,
    migrate: int = 8,
    temperature: float = 1.0,
    **common: Any,
) -> SearchResult:
    """Populations whose members are made by looking at kernels of different speed.

    In each generation each island shows `shown` of its correct kernels, drawn from different buckets of speed (a bucket
    with the softmax of its mean speedup), the slowest first, and adds what the policy makes of them. Every `migrate`
    generations each island gets the best kernel of the one before it. With one island it is CUDA-L1's bucket variant.

    Source: CUDA-L1 (DeepReinforce): bucket and island exemplars.

    Args:
        task: a task, or anything `kernelgym_env.load_task` takes.
        policy: who acts.
        count: islands.
        generations: how many.
        shown: kernels that the policy is shown; 0 shows none.
        migrate: generations between migrations, 0 for none.
        temperature: of the softmax, from 1e-6 (the fastest bucket alone) to 1e6 (all alike).
        **common: see `refine`.

    Raises:
        InvalidOptionError: for a number outside its range, and as `refine` does.
    """
    for name, value, low in (("count", count, 1), ("generations", generations, 1), ("shown", shown, 0)):
        check_whole(name, value, low)
    check_whole("migrate", migrate, 0)
    # outside of it the softmax overflows, or says nothing
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 1e-6 <= temperature <= 1e6:
        raise InvalidOptionError(f"temperature must be a number from 1e-6 to 1e6, got {temperature!r:.100}.")

    def search(explorer: Explorer) -> None:
        rng = np.random.default_rng(explorer.seed)
        living: list[list[Position]] = [[] for _ in range(count)]
        for generation in range(generations):
            starts = [explorer.start(_exemplars(members, shown, temperature, rng)) for members in living]
            born = explorer.expand(starts)
            for members, position in zip(living, born, strict=False):
                members.append(position)
            if explorer.spent:
                return
            if migrate and (generation + 1) % migrate == 0 and count > 1:
                best = [max(members, key=lambda position: position.best) for members in living]
                for place, members in enumerate(living):
                    members.append(best[place - 1])

    settings = {
        "count": count,
        "generations": generations,
        "shown": shown,
        "migrate": migrate,
        "temperature": temperature,
    }
    return _run("islands", task, policy, settings, 1, search, common)


def grid(
    task: Task | str,
    policy: Policy,
    shapes: Sequence[tuple[int, int]] = ((16, 8), (32, 4), (128, 1)),
    *,
    folder: str | os.PathLike[str] | None = None,
    **common: Any,
) -> dict[str, SearchResult]:
    """`refine` in several shapes, e.g. the 128 evaluations of Kevin's table.

    Args:
        task: a task, or anything `kernelgym_env.load_task` takes.
        policy: who acts.
        shapes: pairs (trajectories, turns), all with the same product.
        folder: each shape gets a folder in it.
        **common: see `refine`.

    Returns:
        The results by shape: ``"16x8"``, ….

    Raises:
        InvalidOptionError: for shapes of different sizes, and as `refine` does.
    """
    pairs = isinstance(shapes, Sequence) and all(isinstance(pair, Sequence) and len(pair) == 2 for pair in shapes)
    if not pairs or not shapes or any(not isinstance(size, int) for pair in shapes for size in pair):
        raise InvalidOptionError(f"The shapes of a grid are pairs (trajectories, turns), got {shapes!r:.200}.")
    if len({wide * long for wide, long in shapes}) != 1:
        raise InvalidOptionError(f"The shapes of a grid must have the same number of evaluations, got {shapes!r}.")
    return {
        name: refine(task, policy, *shape, folder=None if folder is None else Path(folder) / name, **common)
        for name, shape in ((f"{wide}x{long}", (wide, long)) for wide, long in shapes)
    }


METHODS: dict[str, Callable[..., SearchResult]] = {
    "best_of_n": best_of_n,
    "refine": refine,
    "beam": beam,
    "stts": stts,
    "islands": islands,
}
"""The searches by name."""


def run_method(method: str, task: Task | str, policy: Policy, **options: Any) -> SearchResult:
    """A search by name.

    Args:
        method: a key of `METHODS`.
        task: a task, or anything `kernelgym_env.load_task` takes.
        policy: who acts.
        **options: of the search.

    Raises:
        UnknownNameError: for another method.
        InvalidOptionError: as the search does.
    """
    if method not in METHODS:
        raise unknown_name("search", method, METHODS)
    return METHODS[method](task, policy, **options)


# --- parts


def _refined(
    method: str,
    task: Task | str,
    policy: Policy,
    settings: dict[str, Any],
    trajectories: int,
    turns: int,
    common: dict[str, Any],
) -> SearchResult:
    def search(explorer: Explorer) -> None:
        positions = [explorer.start()] * trajectories
        for _ in range(turns):
            positions = explorer.expand(positions)
            if explorer.spent:
                return

    return _run(method, task, policy, settings, turns, search, common)


def _run(
    method: str,
    task: Task | str,
    policy: Policy,
    settings: dict[str, Any],
    turns: int,
    search: Callable[[Explorer], None],
    common: dict[str, Any],
) -> SearchResult:
    own: dict[str, Any] = {
        "budget": None,
        "folder": None,
        "seed": 0,
        "at_once": 16,
        "trial_done": None,
        "policy_name": "",
    }
    given = {name: common.pop(name, default) for name, default in own.items()} if common else own
    if turns > MAX_TURNS:
        raise InvalidOptionError(f"A trajectory may have {MAX_TURNS} turns, this search would have {turns}.")
    if given["budget"] is not None and not isinstance(given["budget"], Budget):
        raise InvalidOptionError(f"budget must be a Budget, got {given['budget']!r}.")
    known = load_task(task) if isinstance(task, str) else task
    explorer = Explorer(known, policy, method=method, settings=settings, turns=turns, options=common, **given)
    try:
        search(explorer)
        return SearchResult(method, known.id, tuple(explorer.trials), not explorer.spent, round(explorer.seconds, 3))
    finally:
        explorer.close()


def _window(memory: Sequence[Position], keep: int) -> list[Turn]:
    """The best turns of a memory, the slowest first; of equals the later ones."""
    played = [position for position in memory if _counts(position.trial)]
    order = sorted(range(len(played)), key=lambda place: (_score(played[place].trial), place))
    return [played[place].turn for place in order[-keep:]]


def _exemplars(members: Sequence[Position], shown: int, temperature: float, rng: np.random.Generator) -> list[Turn]:
    correct: dict[str, Position] = {}
    for position in members:
        if position.trial is not None and position.trial.speed > 0:
            correct.setdefault(position.trial.action, position)
    kernels = [Kernel(source, position.trial.speed) for source, position in correct.items() if position.trial]
    if not kernels or not shown:
        return []
    return [correct[kernel.source].turn for kernel in draw(kernels, shown, _EDGES, temperature, rng)]


def _counts(trial: Trial | None) -> bool:
    return trial is not None and trial.valid


def _score(trial: Trial | None) -> float:
    return 0.0 if trial is None else trial.score
