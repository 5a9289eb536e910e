"""Workers made ahead of time: in their sandbox and with a GPU's context, before there is a submission to read.

A context takes a fifth of a second, and the driver makes one at a time: two for each evaluation were most of what
several judges on a GPU waited for. Those for the next evaluation are made while this one is checked.

The reference's process serves one evaluation after the other: what it runs is trusted, and it is emptied in between.

- `Spares` -- a judge's stock of them.
- `stock` -- how many a judge keeps.
- `kept` -- the processes that a judge keeps between evaluations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch

from kernelgym_env.evaluation.workers import Meanwhile, Worker, WorkerEnded, WorkerLost, Zygote, read_pids

__all__ = ["Spares", "kept", "stock"]

_NUMBER = 2
_LEAST_BYTES = 20 << 30
_PATIENCE_S = 120.0
_EMPTY_S = 20.0
_LIST = "kept"


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
        self._twin: Worker | None = None
        self._resting = ExitStack()

    def fill(self) -> None:
        """Begin to make what is missing, and go on with what rested; nothing is waited for.

        Raises:
            ZygoteError: if the fork server is gone.
        """
        self._resting.close()
        while len(self._workers) < self._number:
            worker = self._zygote.fork(self._environ)
            try:
                worker.post({"op": "warm", "device": self._device})
            except (WorkerEnded, WorkerLost):
                worker.close()
                return
            self._workers.append(worker)
        self._note()

    def rest(self) -> None:
        """Have those that are not ready stand still until one is wanted, while nobody looks after them."""
        self._resting.enter_context(self.still())

    @contextmanager
    def still(self) -> Iterator[None]:
        """Within the block they stand still: making a context is use of the device."""
        with ExitStack() as each:
            for worker in self._workers:
                each.enter_context(worker.still())
            yield

    def take(self, meanwhile: Meanwhile | None = None) -> Worker:
        """One of the stock, once it is ready; a new one if there is none.

        Args:
            meanwhile: called now and then until it is.

        Raises:
            ZygoteError: if the fork server is gone.
            SandboxError: if the sandbox is incomplete, and must not be.
        """
        self._resting.close()
        while self._workers:
            worker = self._workers[0]
            worker.settle(_PATIENCE_S, meanwhile)  # it stays in the stock, where it can be held still
            self._workers.popleft()
            self._note()
            try:
                if "error" not in worker.wait(0.0) and not worker.gone:
                    return worker
            except (WorkerEnded, WorkerLost):
                pass  # no submission has been in it; what ails it, a new one will tell
            worker.close()
        return self._zygote.fork(self._environ)

    def take_twin(self, meanwhile: Meanwhile | None = None) -> Worker:
        """The process that was given back, or another one if there is none; see `take`."""
        twin, self._twin = self._twin, None
        self._note()
        if twin is not None and twin.gone:
            twin.close()
            twin = None
        return self.take(meanwhile) if twin is None else twin

    def give_back(self, twin: Worker, meanwhile: Meanwhile | None = None) -> bool:
        """Empty a process of the reference and keep it for the next evaluation.

        Nobody is to have work for it, and what it has mapped must be there still.

        Args:
            twin: the process.
            meanwhile: called now and then until it is empty.

        Returns:
            Whether it is kept; if not, it is the caller's to end.
        """
        if not self._number or self._twin is not None or twin.gone:
            return False
        try:
            twin.settle(_EMPTY_S, meanwhile)
            if twin.ask({"op": "unload"}, _EMPTY_S, meanwhile=meanwhile).get("ok") is not True:
                return False
            for path in twin.folder.glob("*.py"):
                path.unlink()  # there will be many
        except (WorkerEnded, WorkerLost, OSError):  # the last also where others timed for too long
            return False
        self._twin = twin
        self._note()
        return True

    def _note(self) -> None:
        """Write down who is kept, for `kept`."""
        workers = [*self._workers, *([self._twin] if self._twin else [])]
        with suppress(OSError):  # on a full disk nothing depends on it
            (self._zygote.folder / _LIST).write_text(" ".join(str(worker.pid) for worker in workers))

    def close(self) -> None:
        """End all."""
        self._resting.close()
        if self._twin is not None:
            self._twin.close()
            self._twin = None
        while self._workers:
            self._workers.popleft().close()


def kept(folder: Path) -> list[int]:
    """Process ids, as last written down, of what a judge keeps between evaluations.

    Args:
        folder: of its fork server.
    """
    return read_pids(folder / _LIST)
