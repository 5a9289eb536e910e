"""KernelBench's ``runs/`` folders: generated kernels, their prompts, and what became of them.

A folder holds ``level_<L>_problem_<P>_sample_<S>_kernel.py``, the same with ``_prompt.txt``, and ``eval_results.json``.
The latter names problems by their number alone, so a folder with results is about one level.

- `Sample` -- one kernel.
- `is_run` -- whether a folder is one.
- `read_run`, `write_run` -- a folder.
- `to_result` -- an `Evaluation` as KernelBench's record of a result.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, MissingDataError, unknown_name
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.tasks.files import read_source
from kernelgym_env.tasks.kernelbench.ids import LEVELS, make_id

__all__ = ["RESULTS", "Sample", "is_run", "read_run", "to_result", "write_run"]

RESULTS = "eval_results.json"
"""Name of the file with the results."""

_FORMS = ("list", "dict")
_FILE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_(kernel\.py|prompt\.txt)")
_NOT_BUILT = (Status.FORMAT, Status.COMPILE_ERROR)


@dataclass(frozen=True)
class Sample:
    """One kernel of a run.

    Attributes:
        level: 1 to 4.
        problem: number of the problem in its level, from 1.
        sample: which of the problem's kernels, from 0.
        source: its text, ``""`` where there is no file.
        prompt: what it was generated from, ``""`` where there is no file.
        result: KernelBench's record: ``compiled``, ``correctness``, ``metadata``, ``runtime`` and ``runtime_stats``
            (milliseconds, -1 where nothing was timed); None where there is none.

    Raises:
        InvalidOptionError: for a level, problem or sample that KernelBench cannot have.
    """

    level: int
    problem: int
    sample: int = 0
    source: str = field(default="", repr=False)
    prompt: str = field(default="", repr=False)
    result: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise unknown_name("level of KernelBench", self.level, map(str, LEVELS))
        if not 1 <= self.problem <= LEVELS[self.level]:
            raise InvalidOptionError(
                f"Level {self.level} of KernelBench has problems 1 to {LEVELS[self.level]}, not {self.problem!r}."
            )
        if self.sample < 0:
            raise InvalidOptionError(f"Samples are counted from 0, got {self.sample!r}.")
        for name in ("source", "prompt"):
            if not isinstance(getattr(self, name), str):
                raise InvalidOptionError(f"The {name} of a sample must be text, got {getattr(self, name)!r:.200}.")
        if self.result is not None and not isinstance(self.result, Mapping):
            raise InvalidOptionError(f"The result of a sample must be a mapping or None, got {self.result!r:.200}.")

    @property
    def task_id(self) -> str:
        """The task's id, e.g. ``KernelBench/L1-019``."""
        return make_id(self.level, self.problem)


def is_run(folder: str | Path) -> bool:
    """Whether a folder has kernels or results by KernelBench's names."""
    root = Path(folder).expanduser()
    return root.is_dir() and any(path.name == RESULTS or _FILE.fullmatch(path.name) for path in root.iterdir())


def read_run(folder: str | Path, *, level: int | None = None) -> list[Sample]:
    """Return the kernels of a run, by level, problem and sample.

    Args:
        folder: a run's folder. Its results may be in the list form (a list of records for each problem) or in the older
            dict form (one record for each problem).
        level: what level its results are about; None takes it from the names of the kernels' files.

    Raises:
        MissingDataError: if there is no such folder.
        InvalidOptionError: if the folder holds no run, its results are malformed, or nothing tells their level.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise MissingDataError(f"There is no folder {str(root)!r} to read a run from.")
    texts: dict[tuple[int, int, int], dict[str, str]] = defaultdict(dict)
    for path in sorted(root.iterdir()):
        if name := _FILE.fullmatch(path.name):
            texts[int(name[1]), int(name[2]), int(name[3])][name[4]] = read_source(path)
    results = _results(root / RESULTS)
    if results and level is None:
        level = _level_of({key[0] for key in texts}, root)
    records = {(level or 0, problem, sample): record for (problem, sample), record in results.items()}
    if not texts and not records:
        raise InvalidOptionError(
            f"{root} holds no run: needs files like level_1_problem_1_sample_0_kernel.py, or {RESULTS}."
        )
    return [
        Sample(*key, texts[key].get("kernel.py", ""), texts[key].get("prompt.txt", ""), records.get(key))
        for key in sorted(texts.keys() | records.keys())
    ]


def write_run(folder: str | Path, samples: Iterable[Sample], *, form: str = "list") -> None:
    """Write a run as KernelBench's scripts read it; files of the same names are replaced, others stay.

    Of each sample that is written, what the folder held before goes: a kernel is never left with the prompt or the
    result of another. Nothing is written where something is wrong.

    Args:
        folder: the run's folder, made if it is not there.
        samples: its kernels. Those with a result must be of one level.
        form: ``list``, or ``dict`` for scripts of v0 and v0.1, which know one sample a problem.

    Raises:
        InvalidOptionError: for results of several levels, a sample that comes twice, several samples of a problem in
            the form ``dict``, what cannot be written as JSON or UTF-8, or results in the folder that cannot be read.
        UnknownNameError: for another form.
        OSError: if the folder cannot be written.
    """
    if form not in _FORMS:
        raise unknown_name("form of results", form, _FORMS)
    listed = sorted(samples, key=lambda sample: (sample.level, sample.problem, sample.sample))
    for (level, problem, number), count in Counter((s.level, s.problem, s.sample) for s in listed).items():
        if count > 1:
            raise InvalidOptionError(f"Sample {number} of {make_id(level, problem)} comes {count} times.")
    results: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for sample in listed:
        if sample.result is not None:
            results[str(sample.problem)].append(_plain({**sample.result, "sample_id": sample.sample}, sample))
    levels = sorted({sample.level for sample in listed if sample.result is not None})
    if len(levels) > 1:
        raise InvalidOptionError(
            f"{RESULTS} names problems by number alone, so a run has results of one level; got levels "
            f"{', '.join(map(str, levels))}. Write a folder for each."
        )
    if form == "dict" and (several := [problem for problem, records in results.items() if len(records) > 1]):
        raise InvalidOptionError(
            f"The form 'dict' has one sample a problem, and problem {several[0]} has {len(results[several[0]])}; "
            f"use the form 'list'."
        )
    root = Path(folder).expanduser()
    contents: dict[str, bytes] = {}
    for sample in listed:
        stem = f"level_{sample.level}_problem_{sample.problem}_sample_{sample.sample}"
        for end, text in (("kernel.py", sample.source), ("prompt.txt", sample.prompt)):
            contents[f"{stem}_{end}"] = _encoded(text, f"{stem}_{end}")
    if results:
        data = results if form == "list" else {problem: records[0] for problem, records in results.items()}
        contents[RESULTS] = (json.dumps(data, indent=4) + "\n").encode()
    elif listed and (root / RESULTS).exists():
        contents[RESULTS] = _kept_results(root, listed)
    root.mkdir(parents=True, exist_ok=True)
    (root / RESULTS).unlink(missing_ok=True)  # and written last: no result stands beside another's kernel meanwhile
    for name, content in contents.items():
        if content:
            (root / name).write_bytes(content)
        else:
            (root / name).unlink(missing_ok=True)


def to_result(evaluation: Evaluation) -> dict[str, Any] | None:
    """Return an evaluation as KernelBench's record of a result, for `Sample.result`.

    ``correctness`` is whether it is credited: a kernel that gives right values without doing the work is not. The time
    is the median in milliseconds, also under ``mean``, which is what KernelBench's scripts read. ``metadata`` says the
    status, the speedup with its interval, and under which protocol they were measured.

    Returns:
        The record; None for a fault, which says nothing of the kernel.

    >>> to_result(Evaluation("KernelBench/L1-001", Status.WRONG))["correctness"]
    False
    """
    if not evaluation.valid:
        return None
    time = evaluation.times["candidate"]
    timed = math.isfinite(time.median_us)
    stats = {
        "mean": time.median_us / 1000,
        "median": time.median_us / 1000,
        "low": _number(time.low_us / 1000),
        "high": _number(time.high_us / 1000),
        "num_trials": time.n,
        "device": evaluation.device,
    }
    return {
        "compiled": evaluation.status not in _NOT_BUILT,
        "correctness": evaluation.credited,
        "metadata": {
            "device": evaluation.device,
            "status": evaluation.status.value,
            "feedback": evaluation.feedback,
            "protocol": evaluation.protocol,
            "task_hash": evaluation.task_hash,
            "source_hash": evaluation.source_hash,
            "speedup": _number(evaluation.speedup),
            "speedup_low": _number(evaluation.speedup_low),
            "speedup_high": _number(evaluation.speedup_high),
        },
        "runtime": time.median_us / 1000 if timed else -1.0,
        "runtime_stats": stats if timed else {},
    }


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def _plain(record: dict[str, Any], sample: Sample) -> dict[str, Any]:
    """A record as JSON gives it back."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOptionError(
            f"The result of sample {sample.sample} of {sample.task_id} cannot be written as JSON: {error}. It needs "
            "texts, finite numbers, lists and mappings; None stands for a number that is not known."
        ) from error
    return plain


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidOptionError(
            f"The text for {name} cannot be written as UTF-8: it has {text[error.start]!r} at {error.start}."
        ) from error


def _kept_results(root: Path, samples: Iterable[Sample]) -> bytes:
    """The content of the file of results without the records of samples that are written anew; empty if none stay."""
    levels = {int(name[1]) for path in root.iterdir() if (name := _FILE.fullmatch(path.name))}
    # where the folder does not tell whose they are, a record that may be another kernel's goes
    known = next(iter(levels)) if len(levels) == 1 else None
    gone = {(sample.problem, sample.sample) for sample in samples if known in (None, sample.level)}
    path = root / RESULTS
    if not gone & _results(path).keys():
        return path.read_bytes()
    kept: dict[str, Any] = {}
    for problem, records in json.loads(path.read_text(encoding="utf-8")).items():
        listed = records if isinstance(records, list) else [records]
        left = [record for record in listed if (int(problem), record.get("sample_id", 0)) not in gone]
        if left:
            kept[problem] = left if isinstance(records, list) else left[0]
    return (json.dumps(kept, indent=4) + "\n").encode() if kept else b""


def _level_of(levels: set[int], root: Path) -> int:
    if len(levels) != 1:
        found = f"kernels of levels {', '.join(map(str, sorted(levels)))}" if levels else "no kernels"
        raise InvalidOptionError(
            f"{root / RESULTS} does not say its level, and the folder has {found}: give it, as level=1."
        )
    return next(iter(levels))


def _results(path: Path) -> dict[tuple[int, int], Mapping[str, Any]]:
    """The records of a file by problem and sample."""
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidOptionError(f"{path} is not JSON: {error}.") from error
    if not isinstance(data, dict):
        raise InvalidOptionError(f"{path} needs an object with the problems' numbers, got {type(data).__name__}.")
    found: dict[tuple[int, int], Mapping[str, Any]] = {}
    for problem, records in data.items():
        if not problem.isdecimal():
            raise InvalidOptionError(f"{path} has {problem!r} where a problem's number belongs.")
        for record in records if isinstance(records, list) else [records]:
            if not isinstance(record, dict) or not isinstance(record.get("sample_id", 0), int):
                raise InvalidOptionError(
                    f"{path}, problem {problem}: a record is an object with sample_id, got {record!r}."
                )
            key = int(problem), record.get("sample_id", 0)
            if found.setdefault(key, record) is not record:
                raise InvalidOptionError(f"{path} has sample {key[1]} of problem {problem} more than once.")
    return found
