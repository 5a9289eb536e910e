"""Workers made ahead of time: in their sandbox and with a GPU's context, before there is a submission to read.

A context takes a fifth of a second, and the driver makes one at a time: two for each evaluation were most of what
several judges on a GPU waited for. Those for the next evaluation are made while this one is checked.

- `Spares` -- a judge's stock of them.
- `stock` -- how many a judge keeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import torch

from kernelgym_env.evaluation.workers import Worker, WorkerEnded, WorkerLost, Zygote

__all__ = ["Spares", "stock"]

_NUMBER = 2
_LEAST_BYTES = 20 << 30
_PATIENCE_S = 120.0


def stock(device: str) -> int:
    """Two on a GPU, for a submission and its reference; none on a CPU, nor on a GPU with little memory.

    >>> stock("cpu")
    0
    """
    if device == "cpu" or torch.cuda.get_device_properties(device).total_memory < _LEAST_BYTES:
        return 0
    return _NUMBER


class Spares:
    """A judge's stock.

    Args:
        zygote: forks them.
        device: as they see it.
        environ: set in each.
        number: how many there are to be.
    """

    def __init__(self, zygote: Zygote, device: str, environ: Mapping[str, str], number: int) -> None:
        self._zygote = zygote
        self._device = device
        self._environ = environ
        self._number = number
        self._workers: deque[Worker] = deque()

    def fill(self) -> None:
        """Begin to make what is missing; nothing is waited for.

        Raises:
            ZygoteError: if the fork server is gone.
        """
        while len(self._workers) < self._number:
            worker = self._zygote.fork(self._environ)
            try:
                worker.post({"op": "warm", "device": self._device})
            except (WorkerEnded, WorkerLost):
                worker.close()
                return
            self._workers.append(worker)

    def settle(self) -> None:
        """Wait until all that were begun are ready: making a context is use of the device."""
        for worker in self._workers:
            worker.settle(_PATIENCE_S)

    def take(self) -> Worker:
        """One of the stock, once it is ready; a new one if there is none.

        Raises:
            ZygoteError: if the fork server is gone.
            SandboxError: if the sandbox is incomplete, and must not be.
        """
        while self._workers:
            worker = self._workers.popleft()
            try:
                if "error" not in worker.wait(_PATIENCE_S) and not worker.gone:
                    return worker
            except (WorkerEnded, WorkerLost):
                pass  # no submission has been in it; what ails it, a new one will tell
            worker.close()
        return self._zygote.fork(self._environ)

    def close(self) -> None:
        """End all."""
        while self._workers:
            self._workers.popleft().close()
