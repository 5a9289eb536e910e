"""What runs evaluations: the protocol every pool follows."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.evaluation.submission import Submission

__all__ = ["Evaluator"]


@runtime_checkable
class Evaluator(Protocol):
    """Judges submissions somewhere, in the background.

    A future never raises for what a submission does: infrastructure that keeps failing gives an evaluation of status
    `fault`.
    """

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        ...

    def submit(self, submission: Submission, priority: int = 0) -> Future[Evaluation]:
        """Queue a submission; lower `priority` runs first, equal ones in order of arrival.

        Raises:
            RuntimeError: if the pool is closed.
            InvalidOptionError: if the pool has no such device.
        """
        ...

    def pause(self) -> None:
        """Start no further evaluation until `resume`; running ones end."""
        ...

    def resume(self) -> None:
        """Go on after `pause`."""
        ...

    def stats(self) -> dict[str, Any]:
        """Plain counters."""
        ...

    def close(self) -> None:
        """End everything the pool started; waiting submissions are cancelled. May be called twice."""
        ...
