"""Whether a submission is right at sizes of the task that it was not shown.

- `check_shape` -- the calls at one of them.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelgym_env.evaluation.checking import check, match_weights, send_weights
from kernelgym_env.evaluation.judging import Judging, Outcome
from kernelgym_env.evaluation.reference import Reference
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.workers import WorkerEnded

__all__ = ["check_shape"]

_ELSEWHERE = "at another size of the same task, which the source's constants do not show"


def check_shape(
    judging: Judging, reference: Reference, seeds: tuple[int, int], learn: Callable[[Reference], object]
) -> None:
    """Judge the submission's values at another size, in a new process that finds what the first one compiled.

    It takes the place of the process before, and its buffers those of the first size, so nothing can follow.

    Args:
        judging: the evaluation.
        reference: of the task at that size; not constructed yet.
        seeds: of two sets of inputs.
        learn: finds out about the reference what `Reference.probe` does.

    Raises:
        Outcome: whatever fails there. Its text says that it does so at another size and, since that is secret, no more.
        TaskError: if the reference fails.
    """
    try:
        judging.quiet.enter()
        with judging.stages.time("start"):
            judging.drop_buffers()
            candidate = judging.relaunch(reference.weight_seed, reference.init_tree)
            reference.construct()
            learn(reference)
            cases = [reference.case(seed) for seed in seeds]
            judging.share(cases, reference)
            judging.started()
            judging.attach(candidate)
            send_weights(judging, candidate, reference, match_weights(judging, candidate, reference))
        check(judging, cases, reference)
    except Outcome as outcome:
        what = "The output is wrong" if outcome.status is Status.WRONG else "The code fails"
        raise Outcome(outcome.status, f"{what} {_ELSEWHERE}.", finding="B11") from outcome
    except WorkerEnded as ended:
        how = "does not end in time" if ended.status is Status.TIMEOUT else "ends its process"
        raise Outcome(ended.status, f"The code {how} {_ELSEWHERE}.", finding="B11") from ended
