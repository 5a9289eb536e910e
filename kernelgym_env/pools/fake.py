"""A deterministic evaluator without processes: for tests, documentation, and a user's own CI.

The format stage is the real one. After it a directive in the source decides, else the source's hash does:

    # fake: status=correct speedup=1.7 coverage=0.9

The same source always gives the same evaluation, with no wall time in it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from concurrent.futures import Future
from typing import Any

from kernelgym_env.evaluation.feedback import explain
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status, Timing
from kernelgym_env.evaluation.source import check_format
from kernelgym_env.evaluation.submission import Submission

__all__ = ["FakePool", "fake_evaluation"]

_DIRECTIVE = re.compile(r"^\s*#\s*fake:(.*)$", re.MULTILINE)
_OUTCOMES = (Status.CORRECT, Status.CORRECT, Status.CORRECT, Status.WRONG, Status.COMPILE_ERROR, Status.RUNTIME_ERROR)
_EAGER_US = 100.0


def fake_evaluation(submission: Submission) -> Evaluation:
    """The evaluation that `FakePool` gives, a pure function of the submission.

    A directive that is not understood is a `format` outcome that says so.
    """
    status, speedup, coverage, detail = Status.FORMAT, float("nan"), float("nan"), check_format(submission.source)
    if not detail:
        try:
            status, speedup, coverage = _outcome(submission)
        except ValueError as error:
            detail = str(error)
    correct = status is Status.CORRECT
    times = {}
    if correct:
        times = {
            "candidate": Timing(
                _EAGER_US / speedup, 0.98 * _EAGER_US / speedup, 1.02 * _EAGER_US / speedup, 100, "fake"
            ),
            "eager": Timing(_EAGER_US, 0.98 * _EAGER_US, 1.02 * _EAGER_US, 100, "fake"),
        }
    return Evaluation(
        task_id=submission.task.id,
        status=status,
        task_hash=submission.task.hash,
        source_hash=submission.source_hash,
        protocol=get_protocol(submission.protocol).name,
        device="fake",
        speedup=speedup if correct else float("nan"),
        speedup_low=0.98 * speedup if correct else float("nan"),
        speedup_high=1.02 * speedup if correct else float("nan"),
        times=times,
        coverage=coverage if correct else float("nan"),
        error_ratio=0.0 if correct else float("nan"),
        feedback=explain(detail or ("" if correct else "An outcome of the fake evaluator.")),
        fault="asked for by the source" if status is Status.FAULT else "",
        provenance={"evaluator": "fake"},
    )


def _outcome(submission: Submission) -> tuple[Status, float, float]:
    found = _DIRECTIVE.search(submission.source)
    if found is None:
        digest = hashlib.sha256(f"{submission.task.id}\0{submission.source_hash}".encode()).digest()
        return _OUTCOMES[digest[0] % len(_OUTCOMES)], round(0.25 + digest[1] / 64, 4), digest[2] / 255
    pairs = dict(part.partition("=")[::2] for part in found.group(1).split())
    unknown = set(pairs) - {"status", "speedup", "coverage"}
    if unknown:
        raise ValueError(
            f"Unknown key in the fake directive: {', '.join(sorted(unknown))}; allowed: status, speedup, coverage."
        )
    speedup = float(pairs.get("speedup", "1.0"))
    if not 0 < speedup < float("inf"):
        raise ValueError(f"The fake directive's speedup must be a positive number, got {speedup}.")
    return Status(pairs.get("status", "correct")), speedup, float(pairs.get("coverage", "1.0"))


class FakePool:
    """`Evaluator` that answers at once with `fake_evaluation`.

    Attributes:
        secret: has no effect; there for code that sets a pool's secret.
    """

    def __init__(self) -> None:
        self.secret = b""
        self.closed = False
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def submit(self, submission: Submission, priority: int = 0) -> Future[Evaluation]:
        """Answer at once."""
        if self.closed:
            raise RuntimeError("This pool is closed; get a new one with kernelgym_env.pools.get('fake').")
        evaluation = fake_evaluation(submission)
        with self._lock:
            self._counts[evaluation.status.value] += 1
        future: Future[Evaluation] = Future()
        future.set_result(evaluation)
        return future

    def conditions(self, submission: Submission) -> dict[str, Any]:
        """What else an evaluation follows from: the source's comments too, since directives are comments."""
        return {"evaluator": "fake", "source": submission.source_hash}

    def pause(self) -> None:
        """Nothing runs in the background, so there is nothing to hold."""

    def resume(self) -> None:
        """See `pause`."""

    def stats(self) -> dict[str, Any]:
        """Evaluations by status under ``ended``."""
        with self._lock:
            return {"waiting": 0, "paused": False, "judges": {}, "judge_restarts": 0, "ended": dict(self._counts)}

    def close(self) -> None:
        """Refuse further submissions."""
        self.closed = True
