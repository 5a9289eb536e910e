"""Stored trajectories through every recipe: what each published system would have paid and credited.

- `replay` -- a table of scores, returns and advantages, one row for each recipe, channel and turn.
- `columns` -- the table as arrays by column.

Nothing is evaluated again. The verdicts are those that the trajectories were recorded with, so two recipes are compared
on the same evaluations; that a recipe would have led a policy to other kernels is not in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelgym_env import credit
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.recipes import Recipe, recipe, recipe_names

__all__ = ["COLUMNS", "columns", "replay"]

COLUMNS = (
    "recipe",
    "channel",
    "weight",
    "group",
    "episode",
    "task_id",
    "turn",
    "status",
    "counts",
    "score",
    "return",
    "advantage",
    "keep",
)
"""Keys of a row; see `replay`."""

_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("recipe", "channel", "task_id", "status"), np.str_),
    **dict.fromkeys(("episode", "turn"), np.int64),
    "counts": np.bool_,
}
"""The columns that are neither float64 nor objects."""

Turn = Any
"""An `Evaluation`, a mapping with ``evaluation`` (as in ``info``), or an object that has it (`TurnRecord`)."""


def replay(
    episodes: Iterable[Sequence[Turn] | Mapping[str, Any]],
    recipes: Iterable[str | Recipe] | None = None,
    *,
    groups: Sequence[Hashable] | Callable[[int], Hashable] | None = None,
) -> list[dict[str, Any]]:
    """Pay and credit the same trajectories by several recipes.

    The columns of a row:

    - ``recipe``, ``channel``, ``weight``: whose reward, for which tokens (``score`` for most), its weight in the loss.
    - ``group``, ``episode``, ``task_id``, ``turn``: the episode's group, its place in `episodes` from 0, the task, and
      the turn from 1.
    - ``status``: how the evaluation ended, ``""`` for a turn without one (the agent's stop).
    - ``counts``: False for a fault, a task that cannot be judged and a turn without an evaluation; and, for a recipe
      that pays at the end, for the whole of an episode that a fault ended. Such a turn is in no return and no group;
      its ``score`` and ``return`` are NaN and its ``advantage`` is 0.
    - ``score``, ``return``, ``advantage``: by the recipe's formulas, see `Recipe.credit`. Where a recipe needs a
      critic, its values are taken as 0.
    - ``keep``: probability with which the recipe keeps the turn in the loss; 1 except with rejection by coverage.

    Args:
        episodes: each a list of turns, or a mapping with ``turns``; `Store.episodes` gives such. A turn is an
            `Evaluation`, or has one under ``evaluation``, as data or not; an empty one stands for none.
        recipes: names or recipes; None takes all published ones.
        groups: what makes a group of trajectories (a task, a prompt), one for each episode, or a function of the
            episode's place; None takes the task.

    Returns:
        Rows in the order of recipes, channels, episodes and turns.

    Raises:
        UnknownNameError: for an unknown recipe.
        InvalidOptionError: for an episode without turns, a turn without an evaluation, episodes of several tasks, or
            another number of groups than of episodes.

    >>> turns = [Evaluation("a/b", "wrong"), Evaluation("a/b", "correct", speedup=1.0)]
    >>> rows = replay([turns, [Evaluation("a/b", "wrong")]], ["kevin"])
    >>> [(row["episode"], row["turn"], round(row["return"], 2)) for row in rows]
    [(0, 1, 0.52), (0, 2, 1.3), (1, 1, 0.0)]
    """
    played = [_evaluations(place, episode) for place, episode in enumerate(episodes)]
    names = [next((found.task_id for found in turns if found is not None), "") for turns in played]
    keys = _groups(groups, names)
    chosen = [
        entry if isinstance(entry, Recipe) else recipe(entry)
        for entry in (recipe_names() if recipes is None else recipes)
    ]
    if not played:
        return []
    counts = credit.pad([[_counts(found) for found in turns] for turns in played])[0].astype(bool)
    faulted = np.array([turns[-1] is not None and turns[-1].status is Status.FAULT for turns in played])
    return [row for entry in chosen for row in _rows(entry, played, names, keys, counts, faulted)]


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """Rows as one array for each of `COLUMNS`: float64, int64, bool or text; groups as objects.

    >>> columns(replay([[Evaluation("a/b", "correct", speedup=2.0)]], ["kevin", "cuda_l1"]))["score"].tolist()
    [2.3, 2.0]
    """
    table = {
        name: np.array([row[name] for row in rows], dtype=_TYPES.get(name, np.float64))
        for name in COLUMNS
        if name != "group"
    }
    groups = np.empty(len(rows), dtype=object)
    for place, row in enumerate(rows):
        groups[place] = row["group"]  # `np.array` would make a second axis of keys that are tuples
    return {name: groups if name == "group" else table[name] for name in COLUMNS}


def _rows(
    entry: Recipe,
    played: Sequence[Sequence[Evaluation | None]],
    names: Sequence[str],
    keys: Sequence[Hashable],
    counts: NDArray[np.bool_],
    faulted: NDArray[np.bool_],
) -> Iterable[dict[str, Any]]:
    mask = counts & ~faulted[:, None] if entry.settings.kind == "gae" else counts
    keep = _kept(played) if entry.settings.prs else np.ones(mask.shape)
    for channel in entry.channels:
        scores = credit.pad([[0.0 if found is None else channel(found) for found in turns] for turns in played])[0]
        found = entry.credit(scores, keys, mask=mask)
        for place, turns in enumerate(played):
            for turn, evaluation in enumerate(turns):
                valid = bool(mask[place, turn])
                yield {
                    "recipe": entry.name,
                    "channel": channel.name,
                    "weight": channel.weight,
                    "group": keys[place],
                    "episode": place,
                    "task_id": names[place],
                    "turn": turn + 1,
                    "status": "" if evaluation is None else evaluation.status.value,
                    "counts": valid,
                    "score": float(scores[place, turn]) if valid else np.nan,
                    "return": float(found.returns[place, turn]),
                    "advantage": float(found.advantages[place, turn]),
                    "keep": float(keep[place, turn]) if valid else 0.0,
                }


def _counts(evaluation: Evaluation | None) -> bool:
    return evaluation is not None and evaluation.status not in (Status.FAULT, Status.TASK_INVALID)


def _kept(played: Sequence[Sequence[Evaluation | None]]) -> NDArray[np.float64]:
    coverage, there = credit.pad(
        [[np.nan if found is None else found.coverage for found in turns] for turns in played], fill=np.nan
    )
    correct = credit.pad([[found is not None and found.credited for found in turns] for turns in played])[0]
    # a measured share may exceed 1 by rounding, which `LazyOptimization` takes for 1 as well
    return credit.prs_probabilities(np.clip(coverage, 0.0, 1.0), correct, mask=there)


def _evaluations(place: int, episode: Sequence[Turn] | Mapping[str, Any]) -> list[Evaluation | None]:
    turns = episode.get("turns") if isinstance(episode, Mapping) else episode
    if not isinstance(turns, Sequence) or isinstance(turns, (str, bytes)) or not turns:
        raise InvalidOptionError(f"episodes[{place}] must be a list of at least one turn, or have one in 'turns'.")
    found = [_evaluation(f"episodes[{place}], turn {number}", turn) for number, turn in enumerate(turns, 1)]
    tasks = sorted({evaluation.task_id for evaluation in found if evaluation is not None})
    if len(tasks) > 1:
        raise InvalidOptionError(f"episodes[{place}] must be on one task, it has {', '.join(tasks)}.")
    return found


def _evaluation(where: str, turn: Turn) -> Evaluation | None:
    given: Any = turn
    if isinstance(turn, Mapping) and "evaluation" in turn:
        given = turn["evaluation"]
    elif not isinstance(turn, (Evaluation, Mapping)) and hasattr(turn, "evaluation"):
        given = turn.evaluation
    elif not isinstance(turn, Evaluation):
        raise InvalidOptionError(f"{where} has no evaluation; a turn is an Evaluation or has one in 'evaluation'.")
    if isinstance(given, Evaluation):
        return given
    if not given or (isinstance(given, Mapping) and given.get("status") == ""):
        return None
    if not isinstance(given, Mapping):
        raise InvalidOptionError(f"{where}: the evaluation must be an Evaluation or its data, got {given!r:.100}.")
    return Evaluation.from_dict(given)


def _groups(groups: Sequence[Hashable] | Callable[[int], Hashable] | None, names: Sequence[str]) -> list[Hashable]:
    if groups is None:
        return list(names)
    keys = [groups(place) for place in range(len(names))] if callable(groups) else list(groups)
    if len(keys) != len(names):
        raise InvalidOptionError(f"groups must have one entry for each of the {len(names)} episodes, got {len(keys)}.")
    return keys
