"""KernelBench's files of baseline times, ``results/timing/<machine>/baseline_time_<what>.json``.

Such a file says how long the references took on a machine. It does not say with which torch, dtype or clock, so a
speedup over it is not comparable with one that this package measures; it serves to compare with published figures.

- `BaselineTime` -- one time.
- `read_baselines`, `write_baselines` -- a file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

from kernelgym_env.errors import InvalidOptionError, MissingDataError
from kernelgym_env.tasks.kernelbench.ids import from_path, make_id, parse_id

__all__ = ["BaselineTime", "read_baselines", "write_baselines"]

_TIMES = ("mean", "std", "min", "max")


@dataclass(frozen=True)
class BaselineTime:
    """How long a reference took.

    Attributes:
        mean: milliseconds.
        std: milliseconds; NaN where the file does not say it, as for the two below.
        min: milliseconds.
        max: milliseconds.
        num_trials: how many calls were timed; 0 where the file does not say it.
        hardware: name of the GPU.
        device: name of the device in torch.
    """

    mean: float
    std: float = math.nan
    min: float = math.nan
    max: float = math.nan
    num_trials: int = 0
    hardware: str = ""
    device: str = ""


def read_baselines(path: str | Path) -> dict[str, BaselineTime | None]:
    """Return the times of a file by task id; None where the file has null, for a reference that did not run.

    An entry is an object with the times, or a list of such objects, of which the last counts.

    Args:
        path: the file.

    Raises:
        MissingDataError: if there is no such file.
        InvalidOptionError: if its content is not of this form.
    """
    file = Path(path).expanduser()
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingDataError(f"There is no file {str(file)!r} to read baseline times from.") from None
    except ValueError as error:
        raise InvalidOptionError(f"{file} is not JSON: {error}.") from error
    if not isinstance(data, dict) or not all(isinstance(entries, dict) for entries in data.values()):
        raise InvalidOptionError(f"{file} needs an object of levels, each an object of problems: {{'level1': {{…}}}}.")
    found: dict[str, BaselineTime | None] = {}
    for level, entries in data.items():
        for name, entry in entries.items():
            problem = from_path(PurePath(level, name))
            if problem is None:
                raise InvalidOptionError(f"{file} has {level!r} with {name!r}; needs names like level1 and 19_ReLU.py.")
            found[make_id(problem[0], problem[1])] = _time(entry, f"{file}, {level}, {name}")
    return found


def write_baselines(
    path: str | Path, times: Mapping[str, BaselineTime | None], names: Mapping[str, str], *, form: str = "dict"
) -> None:
    """Write times as KernelBench's scripts read them.

    Args:
        path: the file; its folder is made if it is not there.
        times: by task id; None becomes null.
        names: names of the problems as published, by task id; `problem_names` gives them.
        form: ``dict`` for an object an entry, as KernelBench's scripts read it, or ``list`` for a list of one.

    Raises:
        InvalidOptionError: for an id that is not KernelBench's or that has no name, or another form.
        OSError: if the file cannot be written.
    """
    if form not in ("dict", "list"):
        raise InvalidOptionError(f"The form of baselines is 'dict' or 'list', got {form!r}.")
    data: dict[str, dict[str, Any]] = {}
    for task_id, time in sorted(times.items()):
        problem = parse_id(task_id)
        if problem is None:
            raise InvalidOptionError(f"{task_id!r} is no problem of KernelBench; ids are like KernelBench/L1-019.")
        if task_id not in names:
            raise InvalidOptionError(f"{task_id} has no name as published; names needs it, such as '19_ReLU'.")
        stats = None if time is None else {key: _plain(value) for key, value in asdict(time).items()}
        data.setdefault(f"level{problem[0]}", {})[names[task_id] + ".py"] = [stats] if form == "list" else stats
    file = Path(path).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(data, indent=4, allow_nan=False) + "\n", encoding="utf-8")


def _time(entry: object, where: str) -> BaselineTime | None:
    if isinstance(entry, list):
        entry = entry[-1] if entry else None
    if entry is None:
        return None
    if not isinstance(entry, dict) or not _positive(entry.get("mean")):
        raise InvalidOptionError(
            f"{where}: needs an object with a mean in milliseconds above 0, or null, got {entry!r}."
        )
    times = {name: entry.get(name) for name in _TIMES}
    return BaselineTime(
        **{name: float(value) if isinstance(value, (int, float)) else math.nan for name, value in times.items()},
        num_trials=int(entry.get("num_trials") or 0),
        hardware=str(entry.get("hardware") or ""),
        device=str(entry.get("device") or ""),
    )


def _positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _plain(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
