"""Judge one source without an environment.

- `score` -- the verdict.
- `rescore` -- the same, and never from a cache.
"""

from __future__ import annotations

from kernelgym_env import pools
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.protocols import Protocol
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.cached import uncached
from kernelgym_env.prompts import extract_source
from kernelgym_env.tasks import Task, load_task
from kernelgym_env.tasks.kernelbench.requirements import check_requirements

__all__ = ["rescore", "score"]


def score(
    task: Task | str,
    source: str,
    *,
    backend: str = "auto",
    protocol: str | Protocol = "strict",
    device: str = "auto",
    library_ops: str | None = None,
    previous_best: float | None = None,
    pool: str = "local",
) -> Evaluation:
    """Judge a submission and wait for the verdict.

    Args:
        task: a task, or anything `load_task` takes.
        source: source of `ModelNew`, or a reply that holds it.
        backend: see `Submission`.
        protocol: name of a protocol, or a `Protocol`.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:<index>``.
        library_ops: overrides the protocol's policy.
        previous_best: best speedup so far, a re-test trigger.
        pool: who evaluates.

    Raises:
        UnknownNameError: for an unknown name.
        MissingDataError: for a task whose data, or a library that it needs, is not on this machine.

    >>> score("KernelGym/ElementwiseChain", "# fake: speedup=2\\nclass ModelNew: ...", pool="fake").speedup
    2.0
    """
    return _score(pools.get(pool), pool, task, source, backend, protocol, device, library_ops, previous_best)


def rescore(
    task: Task | str,
    source: str,
    *,
    backend: str = "auto",
    protocol: str | Protocol = "strict",
    device: str = "auto",
    library_ops: str | None = None,
    previous_best: float | None = None,
    pool: str = "local",
) -> Evaluation:
    """Like `score`, and never from a cache: a second look is of use only if it is one.

    >>> rescore("KernelGym/ElementwiseChain", "# fake: speedup=2\\nclass ModelNew: ...", pool="fake").speedup
    2.0
    """
    evaluator = uncached(pools.get(pool))
    return _score(evaluator, pool, task, source, backend, protocol, device, library_ops, previous_best)


def _score(
    evaluator: pools.Evaluator,
    pool: str,
    task: Task | str,
    source: str,
    backend: str,
    protocol: str | Protocol,
    device: str,
    library_ops: str | None,
    previous_best: float | None,
) -> Evaluation:
    if not isinstance(source, str):
        raise InvalidOptionError(f"source is the text of a submission, got {type(source).__name__}: {source!r:.80}.")
    given = load_task(task) if isinstance(task, str) else task
    if pool == "local":
        check_requirements(given)
    submission = Submission(
        given,
        extract_source(source),
        backend=backend,
        protocol=protocol,
        device=device,
        library_ops=library_ops,
        previous_best=previous_best,
    )
    return evaluator.submit(submission).result()
