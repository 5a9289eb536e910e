"""Every kernel that CUDA-L1 released for one GPU, judged here.

    python benchmarks/cuda_l1.py --kernels cuda_l1_a100.jsonl.gz --judges 8 \
        --out benchmarks/results/cuda_l1_a100_h200.json

Each is held against the reference that was released with it: sizes in KernelBench have changed since.

Judges work side by side and time one at a time. What the file of results already holds is not judged again, so a run
that was cut short goes on where it ended. `--table docs/cuda_l1.md` writes what is there as a page.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

import kernelgym_env
from kernelgym_env.devices import cuda_device_names
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.keeping import finite
from kernelgym_env.pools.local import LocalPool
from kernelgym_env.tasks import Task


def _ids(text: str) -> frozenset[str]:
    """``"1:1-3,5 2:7"`` as ``{"1-1", "1-2", "1-3", "1-5", "2-7"}``."""
    found = set()
    for group in text.split():
        level, _, numbers = group.partition(":")
        for part in numbers.split(","):
            first, _, last = part.partition("-")
            found |= {f"{level}-{number}" for number in range(int(first), int(last or first) + 1)}
    return frozenset(found)


NON_BUILDERS = _ids(
    "1:5,15,19,24,25,27,33,36,37,41,48,49,51,52,60,65,76,89,93,98,99 "
    "2:6,13,17,20,24,27,32,43,46,48,51,54,57,58,65,67,71,91,92 3:7,8,9,10,13,49,50"
)
"""Extensions that can never build, with PyTorch behind them (read off the sources)."""

REAL_CUDA = _ids("1:2,23,29,32,35,50,82,83,84,88,91,95,97 2:4,11,16,21,23,31,47,93,97,100 3:45")
"""Sources that look like kernels of their own."""

HACKS = _ids("1:9,13,40,63,55,72 2:80,66,83,42,43,44,11,96,39,15,77 3:14,26")
"""Sources that are known not to do what the task asks for, or to be kept results."""


def load(path: Path) -> dict[str, dict[str, Any]]:
    """Rows with a source by ``level-id``."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    return {f"{row['level_id']}-{row['task_id']}": row for row in rows if str(row["custom_code"]).strip() != "None"}


def result(name: str, row: Mapping[str, Any], evaluation: Evaluation) -> dict[str, Any]:
    """What is kept of one evaluation."""
    data = evaluation.to_dict()
    kept = ("status", "speedup", "speedup_low", "speedup_high", "coverage", "own_launches", "error_ratio", "findings")
    return {
        "id": name,
        "task": evaluation.task_id,
        "claimed": row["score_default"],
        **{key: data[key] for key in kept},
        "candidate_us": evaluation.times["candidate"].median_us,
        "eager_us": evaluation.times["eager"].median_us,
        "floor_us": evaluation.times["floor"].median_us,
        "retest": evaluation.provenance.get("retest", {}),
        "feedback": evaluation.feedback[:800],
        "fault": evaluation.fault[:300],
        "stages_s": data["stages_s"],
        "group": group(name),
    }


def group(name: str) -> str:
    """What reading the source said about a row."""
    for label, ids in (("hack", HACKS), ("does not build", NON_BUILDERS), ("own CUDA", REAL_CUDA)):
        if name in ids:
            return label
    return "PyTorch"


def save(path: Path, document: dict[str, Any]) -> None:
    """Write the results, with NaN as null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(finite(document), indent=1))


def judge(arguments: argparse.Namespace, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Judge what is not judged yet, until the budget is spent."""
    document: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"results": []}
    done = {one["id"] for one in document["results"] if one["status"] != Status.FAULT}
    document["results"] = [one for one in document["results"] if one["id"] in done]
    document |= {
        "benchmark": "cuda_l1",
        "package": kernelgym_env.__version__,
        "device": cuda_device_names()[:1] or ["cpu"],
        "protocol": get_protocol(arguments.protocol).to_dict(),
    }
    waiting = [name for name in rows if name not in done]
    # the longest builds first, so that they run beside everything else
    waiting.sort(key=lambda name: "cpp_extension" not in rows[name]["custom_code"])
    pool = LocalPool(judges=arguments.judges)
    end = time.monotonic() + arguments.budget
    try:
        names: dict[Future[Evaluation], str] = {}
        for name in waiting:
            level, _, number = name.partition("-")
            task = Task(f"CUDA-L1/L{level}-{int(number):03d}", rows[name]["ref_code"])
            source = rows[name]["custom_code"]
            submission = Submission(task, source, device=arguments.device, protocol=arguments.protocol)
            names[pool.submit(submission)] = name
        finished = as_completed(names, timeout=max(0.0, end - time.monotonic()))
        for future in track(finished, total=len(names), console=Console(stderr=True)):
            evaluation = future.result()
            document["versions"] = evaluation.provenance.get("versions", document.get("versions"))
            document["results"].append(result(names[future], rows[names[future]], evaluation))
            save(arguments.out, document)
    except TimeoutError:
        print(f"The budget of {arguments.budget:g} s is spent; the same command goes on from here.")
    finally:
        pool.close()
    return document


def summary(results: Iterable[Mapping[str, Any]]) -> list[tuple[str, int, int, str, str]]:
    """By group: rows, credited ones, how the others ended, geometric mean of the credited ones' speedups."""
    lines = []
    results = list(results)
    for label in ("own CUDA", "does not build", "hack", "PyTorch"):
        rows = [one for one in results if one["group"] == label]
        credited = [one for one in rows if one["status"] == "correct"]
        others = sorted({one["status"] for one in rows if one["status"] != "correct"})
        ended = ", ".join(f"{status} {sum(one['status'] == status for one in rows)}" for status in others)
        speeds = [one["speedup"] for one in credited if one["speedup"]]
        mean = f"{statistics.geometric_mean(speeds):.2f}" if speeds else "–"
        lines.append((label, len(rows), len(credited), ended or "–", mean))
    return lines


NOTES = {
    "1-23": "half of the maximum is read from shared memory that another block should have written",
    "1-29": "`build_directory` does not exist, so nothing is built",
    "1-35": "`build_directory` does not exist, so nothing is built",
    "1-83": "`build_directory` does not exist, so nothing is built",
    "1-88": "`forward` calls torch's GELU; its kernel is for the case that this raises",
    "1-97": "one element of shape [1] where the reference has none",
}
"""What reading a source added to what the judge says."""


def reason(one: Mapping[str, Any]) -> str:
    """Why a row was not credited, in a few words."""
    text, name = one["feedback"], one["id"]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    if one["status"] == "correct":
        said = ""
    elif one["status"] == "compile_error":
        errors = [line for line in lines if " error: " in line or line.startswith("error:")]
        said = errors[0].partition("error: ")[2] if errors else first
    elif "as they were at construction" in text:
        said = "computed from parameters at construction"
    elif "values are float16" in text or "TF32 or half-precision" in text:
        said = "errors as of TF32 or half precision, or of a term left out"
    else:
        said = first.partition(". ")[0]
    return f"{said.rstrip('.')}; {NOTES[name]}" if name in NOTES else said.rstrip(".")


def page(document: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    results = sorted(document["results"], key=lambda one: tuple(map(int, one["id"].split("-"))))
    text = [
        "# CUDA-L1's released A100 kernels, judged here",
        "",
        f"{len(results)} kernels on one {document['device'][0]} with torch {document['versions']['torch']}, protocol",
        f"`{document['protocol']['name']}`, each against the reference that was released with it. Made by",
        "`python benchmarks/cuda_l1.py --table`; the figures are those of its JSON file. Groups are what reading the",
        "sources said before anything ran. A row is credited if its output is right and its own kernels computed it.",
        "",
        "| group | kernels | credited | the others | geometric mean of the credited |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(map(str, line))} |" for line in summary(results)),
        "",
        *_section(
            "Sources that look like kernels of their own",
            "Most do not compile with this torch: a binding is written twice (`functions=` and a `PYBIND11_MODULE`),",
            "`x.type()` is no scalar type any more, or a header is missing. What fails to build is not judged by what",
            "it falls back to.",
            [one for one in results if one["group"] == "own CUDA"],
        ),
        *_section(
            "Sources that were known as hacks",
            "None is credited.",
            "",
            "",
            [one for one in results if one["group"] == "hack"],
        ),
        *_section(
            "Credited",
            "All rows whose speedup counts.",
            "",
            "",
            [one for one in results if one["status"] == "correct"],
        ),
        "## Why the others are not",
        "",
        "| reason | kernels |",
        "|---|---|",
        *(f"| {why} | {count} |" for why, count in _reasons(results)),
        "",
        "## All",
        "",
        "| id | group | status | findings | coverage | speedup here | 95% interval | claimed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    text += [f"| {' | '.join(_cells(one))} |" for one in results]
    return "\n".join(text) + "\n"


def _section(title: str, one: str, two: str, three: str, rows: list[Mapping[str, Any]]) -> list[str]:
    table = [
        f"| {row['id']} | {row['status']} | {_figure(row['speedup'], '.2f')} | {_figure(row['claimed'], '.2f')} "
        f"| {reason(row) or '–'} |"
        for row in rows
    ]
    head = ["| id | status | speedup here | claimed | why |", "|---|---|---|---|---|"]
    return [f"## {title}", "", *(line for line in (one, two, three) if line), "", *head, *table, ""]


def _reasons(results: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    kinds = {
        "as they were at construction": "computed from parameters at construction, which the judge renews",
        "values are float16": "errors as of TF32 or half precision, or of a term left out",
        "TF32 or half-precision": "errors as of TF32 or half precision, or of a term left out",
        "changed its input": "overwrites its inputs",
        "Operators of torch": "torch's operators do the work",
        "installed libraries": "a library's kernels do the work",
        "did not compile": "does not build",
        "asks for no computation": "the task asks for no computation",
        "not deterministic": "the reference is not deterministic",
    }
    found: Counter[str] = Counter()
    for one in results:
        if one["status"] == "correct":
            continue
        why = next((name for part, name in kinds.items() if part in one["feedback"]), "")
        if one["status"] == "compile_error":
            why = "does not build"
        found[why or f"other: {one['status']}"] += 1
    return found.most_common()


def _cells(one: Mapping[str, Any]) -> list[str]:
    return [
        one["id"],
        one["group"],
        one["status"],
        ", ".join(found["id"] for found in one["findings"]) or "–",
        _figure(one["coverage"], ".0%"),
        _figure(one["speedup"], ".2f"),
        f"{one['speedup_low']:.2f} to {one['speedup_high']:.2f}" if one["speedup"] else "–",
        _figure(one["claimed"], ".2f"),
    ]


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None or math.isnan(value) else format(value, form)


def main() -> None:
    """Judge, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=Path, help="the released file, JSON lines")
    parser.add_argument("--out", type=Path, required=True, help="the results; what they hold is not judged again")
    parser.add_argument("--only", nargs="*", default=[], metavar="LEVEL-ID")
    parser.add_argument("--protocol", default="strict")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--judges", type=int, default=8)
    parser.add_argument("--budget", type=float, default=540.0, help="seconds after which what is left waits")
    parser.add_argument("--table", type=Path, help="write the results as a page and judge nothing")
    arguments = parser.parse_args()
    if arguments.table:
        arguments.table.write_text(page(json.loads(arguments.out.read_text())))
        return
    if arguments.kernels is None:
        parser.error("--kernels is needed to judge")
    rows = load(arguments.kernels)
    document = judge(
        arguments, {name: row for name, row in rows.items() if not arguments.only or name in arguments.only}
    )
    for line in summary(document["results"]):
        print(*line)


if __name__ == "__main__":
    main()
