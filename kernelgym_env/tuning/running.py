"""Trusted source in this process: building, checking and timing it.

- `build` -- a module of a rendered source.
- `Problem` -- a task's reference on a device, with inputs, expected values, and the clock.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import statistics
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.tasks.model import Task

__all__ = ["Built", "Problem", "build"]

_FEWEST, _MOST = 5, 40
_FLUSHED_BYTES = 256 << 20


@dataclass(frozen=True)
class Built:
    """A source that was built.

    Attributes:
        module: with `ModelNew`; None if the compiler refused it.
        said: the error.
    """

    module: types.ModuleType | None
    said: str = ""


@functools.lru_cache(maxsize=4096)
def build(source: str) -> Built:
    """Run a rendered source as a module. Trusted ones alone: this process is not protected from it."""
    name = f"kernelgym_rendered_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    # Triton reads the source of its functions from the file
    folder = _folder()
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        return Built(None, f"{type(error).__name__}: {error}")
    return Built(module)


_lock = threading.Lock()
_folders: list[tempfile.TemporaryDirectory[str]] = []


def _folder() -> Path:
    """The folder of this process's modules, removed at its end."""
    with _lock:
        if not _folders:
            _folders.append(tempfile.TemporaryDirectory(prefix="kernelgym-rendered-"))
        return Path(_folders[0].name)


class Problem:
    """A task's reference, ready to compare with.

    Args:
        task: sized for the device; its reference is run in this process.
        device: of torch.
        quick: only to call it: no expected values, and the reference is not timed.

    Attributes:
        eager_us: median time of the reference in microseconds; on a CPU with all threads or with one, the better.
        own_error: of the reference in its own precision against float64, as a share of the output's root mean square.

    Raises:
        InvalidOptionError: if the reference fails.
    """

    def __init__(self, task: Task, device: str, *, quick: bool = False) -> None:
        import torch

        self._torch, self.device = torch, torch.device(device)
        names: dict[str, Any] = {"__name__": "kernelgym_reference"}
        try:
            exec(compile(task.source, f"<{task.id}>", "exec"), names)
            torch.manual_seed(0)
            self._init = names["get_init_inputs"]()
            self._reference = names["Model"](*self._init).to(self.device)
            self.inputs = [self._placed(value) for value in names["get_inputs"]()]
            if quick:
                return
            with torch.no_grad():
                own = self._leaves(self._reference(*self.inputs))
                self._expected = self._exact(own)
        except Exception as error:
            raise InvalidOptionError(f"The reference of {task.id} fails on {device}: {error!r}.") from error
        self.own_error = self._distance(own)
        self._flushed: Any = None
        self.eager_us = 1e6 * statistics.median(self.times(self._reference, 0.1))
        if self.device.type == "cpu":
            with self.alone():  # which is faster for little work, and where other programs use the cores
                self.eager_us = min(self.eager_us, 1e6 * statistics.median(self.times(self._reference, 0.1)))

    def model(self, module: types.ModuleType) -> Any:
        """`ModelNew` of a module with the reference's parameters."""
        made = module.ModelNew(*self._init).to(self.device)
        made.load_state_dict(self._reference.state_dict())
        return made

    def error(self, model: Any) -> float:
        """Greatest error of a model's output against float64, as a share of the output's root mean square.

        Raises:
            Exception: whatever the model raises, or if its output has another shape.
        """
        with self._torch.no_grad():
            return self._distance(self._leaves(model(*self.inputs)))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block torch computes with one thread on a CPU.

        A kernel brings an OpenMP of its own. The idle threads of torch's would spin beside it, and on a small machine
        each of its calls would wait for them.
        """
        torch = self._torch
        before = torch.get_num_threads()
        if self.device.type == "cpu":
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def times(self, model: Any, budget_s: float) -> list[float]:
        """Seconds of some calls of a model, with a cold cache on a GPU; about `budget_s` in all."""
        with self._torch.no_grad():
            return self._on_gpu(model, budget_s) if self.device.type == "cuda" else self._on_cpu(model, budget_s)

    # parts

    def _on_cpu(self, model: Callable[..., Any], budget_s: float) -> list[float]:
        times: list[float] = []
        model(*self.inputs)
        end = time.perf_counter() + budget_s
        while len(times) < _FEWEST or (len(times) < _MOST and time.perf_counter() < end):
            start = time.perf_counter()
            model(*self.inputs)
            times.append(time.perf_counter() - start)
        return times

    def _on_gpu(self, model: Callable[..., Any], budget_s: float) -> list[float]:
        cuda = self._torch.cuda
        if self._flushed is None:
            self._flushed = self._torch.empty(_FLUSHED_BYTES // 4, dtype=self._torch.int32, device=self.device)
        with cuda.device(self.device):
            first = self._events(model, 2)[-1]
            count = int(min(max(budget_s / (first + 1e-4), _FEWEST), _MOST))
            return self._events(model, count)

    def _events(self, model: Callable[..., Any], count: int) -> list[float]:
        cuda = self._torch.cuda
        pairs = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(count)]
        for start, stop in pairs:
            self._flushed.zero_()
            start.record()
            model(*self.inputs)
            stop.record()
        cuda.synchronize(self.device)
        return [start.elapsed_time(stop) / 1e3 for start, stop in pairs]

    def _placed(self, value: Any) -> Any:
        return value.to(self.device) if isinstance(value, self._torch.Tensor) else value

    def _leaves(self, value: Any) -> list[Any]:
        return list(value) if isinstance(value, tuple | list) else [value]

    def _exact(self, own: list[Any]) -> list[Any]:
        """The output in float64, where the reference can be computed so."""
        torch = self._torch

        def wide(value: Any) -> Any:
            floats = isinstance(value, torch.Tensor) and value.is_floating_point()
            return value.double() if floats else value

        self._reference.double()
        try:
            return self._leaves(self._reference(*(wide(value) for value in self.inputs)))
        except (RuntimeError, TypeError):
            return [wide(value) for value in own]
        finally:
            self._reference.float()

    def _distance(self, outputs: list[Any]) -> float:
        if [tuple(one.shape) for one in outputs] != [tuple(one.shape) for one in self._expected]:
            raise InvalidOptionError("The output has another shape than the reference's.")
        worst = 0.0
        for got, want in zip(outputs, self._expected, strict=True):
            size = want.square().mean().sqrt().clamp_min(1e-30)
            found = ((got.double() - want).abs().max() / size).item()
            worst = max(worst, found if found == found else float("inf"))
        return worst
