"""KernelBench's way to evaluate, written from its description: what ours is held against.

Five trials with inputs of five seeds, drawn on the CPU and moved, both models constructed from one seed, outputs
compared with `torch.allclose` at 1e-4; then the mean of a hundred calls, the cache emptied before each. One process.

    python benchmarks/kernelbench_method.py REFERENCE.py SUBMISSION.py --device cuda

prints one line of JSON. It is how a sample is judged in a process of its own. There is no protection whatever: give it
sources of your own alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

__all__ = ["judge", "mean_ms"]

TRIALS, WARMUP, TIMED = 5, 3, 100
TOLERANCE = 1e-4
FLUSH_BYTES = 256 << 20
SEED = 42


def mean_ms(call: Callable[..., Any], inputs: list[Any], flush: torch.Tensor) -> float:
    """Mean milliseconds of a hundred calls after three; between events on a GPU."""
    on_gpu = flush.is_cuda
    for _ in range(WARMUP):
        call(*inputs)
    times = []
    for _ in range(TIMED):
        if on_gpu:
            torch.cuda.synchronize()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            start.record()
            call(*inputs)
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        else:
            flush.zero_()
            began = time.perf_counter()
            call(*inputs)
            times.append((time.perf_counter() - began) * 1e3)
    return statistics.fmean(times)


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _seeded(make: Callable[[], Any], seed: int) -> Any:
    torch.manual_seed(seed)
    return make()


def judge(reference: Path, submission: Path, device: str) -> dict[str, Any]:
    """Whether a submission is right, and its milliseconds a call."""
    theirs, mine = _module(reference), _module(submission)

    def moved(values: list[Any]) -> list[Any]:
        return [value.to(device) if isinstance(value, torch.Tensor) else value for value in values]

    init = _seeded(theirs.get_init_inputs, SEED)
    model = _seeded(lambda: theirs.Model(*init), SEED).to(device)
    new = _seeded(lambda: mine.ModelNew(*init), SEED).to(device)
    with torch.no_grad():
        for trial in range(TRIALS):
            inputs = moved(_seeded(theirs.get_inputs, SEED + trial))
            wanted, found = model(*inputs), new(*inputs)
            if found.shape != wanted.shape or not torch.allclose(found, wanted, atol=TOLERANCE, rtol=TOLERANCE):
                return {"correct": False, "ms": None}
        flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
        return {"correct": True, "ms": mean_ms(new, inputs, flush)}


def main() -> None:
    """Judge one sample, as a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reference", type=Path)
    parser.add_argument("submission", type=Path)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    try:
        found = judge(arguments.reference, arguments.submission, arguments.device)
    except Exception as error:  # whatever a sample raises is its result
        found = {"correct": False, "ms": None, "error": f"{type(error).__name__}: {error}"[:300]}
    json.dump(found, sys.stdout)
    print()


if __name__ == "__main__":
    main()
