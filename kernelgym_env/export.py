"""Stored trajectories as rows for trainers.

- `Keep` -- which turns are kept.
- `export` -- rows of a kind:

  - ``sft``: prompt and reply of the best kept turn of each episode.
  - ``rft``: prompt and reply of every kept turn.
  - ``dpo``: for each prompt the best kept reply, and the worst of the other programs that scored less.
  - ``turns``: every turn that counts of the episodes that have ended and are whole: prompt, response, score, return,
    advantage, group, log-probabilities, by the formulas of a recipe.

- `write_rows` -- to JSON lines or Parquet.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.canonical import program_hash
from kernelgym_env.evaluation.result import Status
from kernelgym_env.keeping import finite, named, replacing
from kernelgym_env.prompts import extract_source
from kernelgym_env.replay import replay
from kernelgym_env.store import TurnRecord, is_whole
from kernelgym_env.tasks.files import is_parquet, parquet

__all__ = ["KINDS", "Keep", "export", "write_rows"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Keep:
    """Which turns are kept; a fault never is, nor a turn in which nothing was judged.

    Attributes:
        above: least score, exclusive.
        findings: whether a turn with a finding (severity ``hard`` or ``soft``) is kept.
        deduplicate: whether of the turns on a task that are the same program (`program_hash`) only the best is kept.
    """

    above: float = 0.0
    findings: bool = False
    deduplicate: bool = True

    def __post_init__(self) -> None:
        if math.isnan(self.above):
            raise InvalidOptionError("The least score to keep must be a number, got NaN.")

    def __call__(self, record: TurnRecord) -> bool:
        """Whether a turn is kept, as far as it alone tells."""
        return _judged(record) and record.score > self.above and (self.findings or not _found(record.evaluation))


def export(
    episodes: Iterable[Sequence[TurnRecord]], kind: str, *, keep: Keep | None = None, recipe: str = "kevin"
) -> list[Row]:
    """Rows of a kind, in the order of the episodes.

    ``prompt`` is a list of chat messages, or what the observation was; ``completion`` is a list with one message of the
    assistant, ``chosen`` and ``rejected`` likewise. Each row has ``task_id``, ``episode_id``, ``turn``, ``score`` and
    ``source_hash`` (`program_hash`) besides.

    Args:
        episodes: as `Store.episodes` gives them.
        kind: one of `KINDS`.
        keep: which turns are kept; None keeps those with a score above 0 and no findings, each source once. For
            ``turns`` it has no effect: credit needs every turn, and so leaves out episodes that go on and those that
            lack a turn (`is_whole`). In ``dpo`` it is about the chosen ones.
        recipe: whose credit; only for ``turns``.

    Raises:
        UnknownNameError: for an unknown kind or recipe.
        InvalidOptionError: for an episode on several tasks.

    >>> wrong = TurnRecord("r", "e", "a/b", 1, "p", "x = 1", {"task_id": "a/b", "status": "wrong"})
    >>> right = TurnRecord("r", "e", "a/b", 2, "p", "x = 2", {"task_id": "a/b", "status": "correct"}, score=1.3)
    >>> [(row["turn"], row["completion"][0]["content"]) for row in export([[wrong, right]], "sft")]
    [(2, 'x = 2')]
    >>> [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in export([[wrong, right]], "dpo")]
    [('x = 2', 'x = 1')]
    """
    if kind not in KINDS:
        raise unknown_name("kind of export", kind, KINDS)
    played = [list(episode) for episode in episodes]
    return _turns(played, recipe) if kind == "turns" else _MAKERS[kind](played, keep or Keep())


def write_rows(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows: Parquet if the name ends with ``.parquet``, else JSON lines (strict: NaN is null).

    The file is there whole or not at all.

    Raises:
        MissingDataError: for Parquet without pyarrow.
        InvalidOptionError: for Parquet without rows, whose columns nothing tells, or with rows whose values have
            different types in one column, or texts that are no Unicode.
        OSError: if the file cannot be written.
    """
    target = named(path)
    with replacing(target) as new:
        if is_parquet(target):
            _write_parquet(new, rows)
        else:
            with open(new, "w", encoding="ascii") as file:
                file.writelines(json.dumps(finite(row), allow_nan=False) + "\n" for row in rows)


def _write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    library = parquet()
    import pyarrow

    if not rows:
        raise InvalidOptionError("There are no rows, and a Parquet file needs some for its columns; write JSON lines.")
    try:
        table = pyarrow.Table.from_pylist([dict(row) for row in rows])
    except (pyarrow.ArrowException, UnicodeEncodeError) as error:
        raise InvalidOptionError(f"The rows have no form in Parquet: {error}; write JSON lines.") from error
    library.write_table(table, path)


def _judged(record: TurnRecord) -> bool:
    status = record.evaluation.get("status", "")
    if not record.valid or not status or status in (Status.FAULT.value, Status.TASK_INVALID.value):
        return False
    return not math.isnan(record.score)


def _found(evaluation: Mapping[str, Any]) -> list[str]:
    return [found["id"] for found in evaluation.get("findings", ()) if found["severity"] != "note"]


def _hash(record: TurnRecord) -> str:
    return program_hash(extract_source(record.action) if isinstance(record.action, str) else repr(record.action))


def _about(record: TurnRecord) -> Row:
    return {
        "task_id": record.task_id,
        "episode_id": record.episode_id,
        "turn": record.turn,
        "score": record.score,
        "source_hash": _hash(record),
    }


def _reply(record: TurnRecord) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": str(record.action)}]


def _prompt(record: TurnRecord) -> Any:
    return record.prompt if not isinstance(record.prompt, str) else [{"role": "user", "content": record.prompt}]


def _without_doubles(records: Sequence[TurnRecord], keep: Keep) -> list[TurnRecord]:
    if not keep.deduplicate:
        return list(records)
    best: dict[tuple[str, str], TurnRecord] = {}
    for record in records:
        key = record.task_id, _hash(record)
        if key not in best or record.score > best[key].score:
            best[key] = record
    chosen = {id(record) for record in best.values()}
    return [record for record in records if id(record) in chosen]


def _completions(records: Sequence[TurnRecord], keep: Keep) -> list[Row]:
    return [
        {"prompt": _prompt(record), "completion": _reply(record), **_about(record)}
        for record in _without_doubles(records, keep)
    ]


def _sft(episodes: Sequence[Sequence[TurnRecord]], keep: Keep) -> list[Row]:
    kept = [[record for record in episode if keep(record)] for episode in episodes]
    return _completions([max(turns, key=lambda record: record.score) for turns in kept if turns], keep)


def _rft(episodes: Sequence[Sequence[TurnRecord]], keep: Keep) -> list[Row]:
    return _completions([record for episode in episodes for record in episode if keep(record)], keep)


def _dpo(episodes: Sequence[Sequence[TurnRecord]], keep: Keep) -> list[Row]:
    groups: dict[tuple[str, str], list[TurnRecord]] = {}
    for record in (record for episode in episodes for record in episode if _judged(record)):
        same = record.task_id, json.dumps(record.prompt, sort_keys=True, default=str)
        groups.setdefault(same, []).append(record)
    rows = []
    for records in groups.values():
        kept = [record for record in records if keep(record)]
        if not kept:
            continue
        chosen = max(kept, key=lambda record: record.score)
        others = [record for record in records if record.score < chosen.score and _hash(record) != _hash(chosen)]
        if others:
            rejected = min(others, key=lambda record: record.score)
            rows.append(
                {
                    "prompt": _prompt(chosen),
                    "chosen": _reply(chosen),
                    "rejected": _reply(rejected),
                    **_about(chosen),
                    "rejected_score": rejected.score,
                }
            )
    return rows


def _turns(episodes: Sequence[Sequence[TurnRecord]], recipe: str) -> list[Row]:
    ended = [episode for episode in episodes if is_whole(episode) and (episode[-1].terminated or episode[-1].truncated)]
    rows = []
    for credited in replay(ended, [recipe]):
        record = ended[credited["episode"]][credited["turn"] - 1]
        if not credited["counts"]:
            continue
        rows.append(
            {
                "prompt": _prompt(record),
                "response": str(record.action),
                **_about(record),
                "channel": credited["channel"],
                "reward": credited["score"],
                "return": credited["return"],
                "advantage": credited["advantage"],
                "keep": credited["keep"],
                "group": str(credited["group"]),
                "tokens": None if record.tokens is None else list(record.tokens),
                "logprobs": None if record.logprobs is None else list(record.logprobs),
            }
        )
    return rows


_MAKERS: Mapping[str, Callable[[Sequence[Sequence[TurnRecord]], Keep], list[Row]]] = {
    "sft": _sft,
    "rft": _rft,
    "dpo": _dpo,
}
KINDS = (*_MAKERS, "turns")
"""What `export` makes."""
