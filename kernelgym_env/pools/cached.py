"""A pool that remembers: what was judged before is answered without judging it again.

- `CachedPool` -- puts a cache before another pool.
- `Cacheable` -- what that pool has to tell.
- `uncached` -- the pool behind a cache, for whoever wants a second look.

**What is the same submission.** Task, protocol, policy and language, what the pool names as its conditions (device,
hardware, versions, options), and the program: sources that differ in comments, white space and docstrings alone are one
program (`kernelgym_env.evaluation.canonical`). Where feedback speaks of lines, as a compiler's does, the text must be
the same too.

**What is never answered from it.** A figure that would have been measured again because it is a jump over the best one
before; and whatever asks the pool behind the cache: `kernelgym validate`, the red team, and the re-test of `RewardJump`
(`kernelgym_env.scoring.rescore`). Faults, timeouts, crashes and invalid tasks are not kept.

**What it costs.** Inputs are drawn anew for each evaluation, so without a cache a submission that is wrong now and then
is found out sooner. And whether a program may read its own text is told by words: a source that is made to hide it can
look like an earlier, honest one. ``exact=True`` compares texts instead; use it where a policy learns from rewards.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.cache import EvaluationCache
from kernelgym_env.evaluation.canonical import program_hash
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.result import SCHEMA, Evaluation, Status
from kernelgym_env.evaluation.source import detect_backend
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.evaluation.timing_rules import retest_reason, timing_rule
from kernelgym_env.keeping import digest
from kernelgym_env.pools.base import Evaluator

__all__ = ["Cacheable", "CachedPool", "uncached"]

# Their feedback holds for any text of the program; that of others names lines.
_ANY_TEXT = frozenset({Status.CORRECT, Status.WRONG, Status.POLICY})
_NAN = float("nan")
_log = logging.getLogger(__name__)


@runtime_checkable
class Cacheable(Evaluator, Protocol):
    """A pool whose evaluations may be kept."""

    def conditions(self, submission: Submission) -> Mapping[str, Any]:
        """Plain data: everything besides the submission that its evaluation depends on.

        A pool for which comments matter has the submission's `source_hash` in it.
        """
        ...


class CachedPool:
    """`Evaluator` that answers what it has seen, and asks another one for the rest.

    A hit is the earlier evaluation with the stages at zero, the submission's own `source_hash`, and in
    ``provenance["cache"]`` the hash of the source that was judged. It takes no number of the pool behind, so the inputs
    of later evaluations are not those that they would have been without the hit.

    Args:
        evaluator: who judges; closed with this pool.
        cache: where evaluations are kept; None keeps them in memory.
        exact: whether comments, white space and docstrings count.

    Raises:
        InvalidOptionError: for an evaluator that does not tell its conditions.

    >>> from kernelgym_env.pools.fake import FakePool
    >>> from kernelgym_env.tasks import load_task
    >>> pool = CachedPool(FakePool())
    >>> submission = Submission(load_task("KernelGym/RowSum"), "# fake: speedup=2\\nclass ModelNew: ...")
    >>> [pool.submit(submission).result().speedup for _ in range(3)]
    [2.0, 2.0, 2.0]
    >>> pool.stats()["cache"]
    {'hits': 2, 'misses': 1, 'stored': 1, 'ignored': 0, 'failed': 0}
    """

    def __init__(self, evaluator: Cacheable, cache: EvaluationCache | None = None, *, exact: bool = False) -> None:
        if not isinstance(evaluator, Cacheable) or isinstance(evaluator, CachedPool):
            raise InvalidOptionError(
                "CachedPool needs a pool with a method conditions(submission), e.g. LocalPool(), "
                f"got {evaluator!r:.200}."
            )
        self.evaluator: Cacheable = evaluator
        self.cache = EvaluationCache() if cache is None else cache
        self.exact = exact
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.evaluator.closed

    @property
    def secret(self) -> bytes:
        """The secret of the pool behind; a hit has no inputs."""
        return getattr(self.evaluator, "secret", b"")

    @secret.setter
    def secret(self, value: bytes) -> None:
        self.evaluator.secret = value  # type: ignore[attr-defined]

    def submit(self, submission: Submission, priority: int = 0) -> Future[Evaluation]:
        """Answer from the cache, or queue; see `Evaluator.submit`."""
        if self.closed:
            raise RuntimeError("This pool is closed; make a new one, or get it with kernelgym_env.pools.get.")
        key = self._key(submission)
        found = self.cache.load(key)
        if found is not None and _serves(found, submission):
            self._count("hits")
            hit: Future[Evaluation] = Future()
            hit.set_result(_marked(found, submission))
            return hit
        self._count("misses")
        return self._kept(self.evaluator.submit(submission, priority), key)

    def _kept(self, inner: Future[Evaluation], key: Mapping[str, Any]) -> Future[Evaluation]:
        """A future that is done once the evaluation is kept, so that the next submission finds it."""
        outer: Future[Evaluation] = Future()

        def done(_: Future[Evaluation]) -> None:
            if inner.cancelled():
                if outer.cancel():
                    outer.set_running_or_notify_cancel()
                return
            if (error := inner.exception()) is None:
                self._save(key, inner.result())
            if not outer.set_running_or_notify_cancel():
                return
            if error is None:
                outer.set_result(inner.result())
            else:
                outer.set_exception(error)

        outer.add_done_callback(lambda _: inner.cancel() if outer.cancelled() else None)
        inner.add_done_callback(done)
        return outer

    def _save(self, key: Mapping[str, Any], evaluation: Evaluation) -> None:
        try:
            if self.cache.save(key, evaluation):
                self._count("stored")
        except (OSError, TypeError, ValueError) as error:  # a full disk must not cost the evaluation
            self._count("failed")
            _log.warning("An evaluation could not be kept: %s", error)

    def _key(self, submission: Submission) -> dict[str, Any]:
        protocol, task = get_protocol(submission.protocol), submission.task
        source = submission.source
        return {
            "schema": SCHEMA,
            "task": task.id,
            "task_hash": digest(task.to_dict()),
            "program": submission.source_hash if self.exact else program_hash(source),
            "files": dict(submission.files or {}),
            "backend": submission.backend if submission.backend != "auto" else detect_backend(source),
            "protocol": protocol.to_dict(),
            "library_ops": submission.library_ops or protocol.library_ops,
            "device": submission.device,
            "conditions": dict(self.evaluator.conditions(submission)),
        }

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def pause(self) -> None:
        """Start no further evaluation until `resume`; hits are answered."""
        self.evaluator.pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        self.evaluator.resume()

    def stats(self) -> dict[str, Any]:
        """Those of the pool behind, and under ``cache``: ``hits``, ``misses``, ``stored``, ``ignored`` (files that
        could not be trusted), ``failed`` (evaluations that could not be written).
        """
        with self._lock:
            counts = {name: self._counts[name] for name in ("hits", "misses", "stored")}
            failed = self._counts["failed"]
        return {**self.evaluator.stats(), "cache": {**counts, "ignored": self.cache.ignored, "failed": failed}}

    def close(self) -> None:
        """Close the pool behind."""
        self.evaluator.close()


def uncached(pool: Evaluator) -> Evaluator:
    """The pool behind a cache; a pool without one is returned.

    >>> from kernelgym_env.pools.fake import FakePool
    >>> pool = FakePool()
    >>> uncached(CachedPool(pool)) is uncached(pool) is pool
    True
    """
    return pool.evaluator if isinstance(pool, CachedPool) else pool


def _serves(found: Evaluation, submission: Submission) -> bool:
    """Whether a kept evaluation holds for a submission with the same key."""
    if found.source_hash != submission.source_hash and found.status not in _ANY_TEXT:
        return False
    if found.provenance.get("retest"):
        return True  # it was measured twice
    rule, best = timing_rule(found.protocol), submission.previous_best
    jumps = retest_reason(found.speedup, {}, best, _NAN, rule)
    # one for which the best before plays no role was left to the pool behind, which did not look again
    return not jumps or bool(retest_reason(found.speedup, {}, None, _NAN, rule))


def _marked(found: Evaluation, submission: Submission) -> Evaluation:
    provenance = {**found.provenance, "cache": {"hit": True, "source_hash": found.source_hash}}
    return replace(found, source_hash=submission.source_hash, stages_s={}, provenance=provenance)
