"""Correctness, step by step: what is called, on what, and what a right answer must survive.

- `renew_weights` -- new parameter values on both sides.
- `check` -- the A/B/A calls over the same argument objects.
- `check_again` -- one more call.
- `check_further` -- one call on each further set of inputs.
- `check_fresh` -- one call on new objects.
- `check_near` -- calls on contents that differ from the last ones in a small part.
- `check_laws` -- calls on inputs of other values than the task's own.
"""

from __future__ import annotations

import math
import random
import time
from typing import Any

import torch

from kernelgym_env.evaluation.buffers import leaves
from kernelgym_env.evaluation.contents import Contents
from kernelgym_env.evaluation.judging import Judging, Outcome
from kernelgym_env.evaluation.lawbook import LawBook
from kernelgym_env.evaluation.laws import NATURE
from kernelgym_env.evaluation.reference import Case, Reference, derive_seed
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.weights import is_constant, match, redraw, tensors_of
from kernelgym_env.evaluation.workers import Worker

__all__ = [
    "check",
    "check_again",
    "check_fresh",
    "check_further",
    "check_laws",
    "check_near",
    "match_weights",
    "renew_weights",
    "send_weights",
]

_UNTIMED = (3, 8)
"""Least and greatest number of further calls where none is timed."""

_UNTIMED_S = 1.0
"""Wall seconds after which they end."""

_LATE = (
    "{path}: the output changed after the call had returned. Work was left on another stream or thread; the call must "
    "wait for it, or make the current stream wait."
)

_STALE = (
    "The output is the one for the parameters as they were at construction. They have been given new values in place "
    "since, as loading or training a model does: what depends on a parameter must be computed in forward."
)

_OTHER_VALUES = "The output is wrong on inputs with other values than get_inputs usually draws ({}):"
_LARGE_BYTES = 1 << 30
_PATIENCE_S, _TIMES_REFERENCE = 20.0, 200.0


def match_weights(judging: Judging, worker: Worker, reference: Reference) -> dict[str, str]:
    """The worker's name of each of the reference's parameters that it holds."""
    if not reference.weight_size:
        return {}
    answer = judging.command(worker, {"op": "tensors"}, judging.protocol.deadlines.import_s)
    return match(tensors_of(reference.model), answer.get("tensors"))


def renew_weights(reference: Reference, matched: dict[str, str], seed: int) -> bool:
    """Draw new values for the reference's parameters.

    A parameter that the submission holds is redrawn. One that it does not hold is redrawn only if it is constant, as a
    fresh norm weight or bias is: there is nothing in it to have been packed elsewhere, and a submission without it
    ignores it.

    Returns:
        Whether anything changed.
    """
    generator = torch.Generator(device=reference.device).manual_seed(seed)
    changed = False
    with torch.no_grad():
        for name, tensor in tensors_of(reference.model).items():
            if name in matched or is_constant(tensor):
                tensor.copy_(redraw(tensor, generator))
                changed = True
    return changed


def send_weights(judging: Judging, worker: Worker, reference: Reference, names: dict[str, str]) -> None:
    """Overwrite a worker's parameters with the reference's values, in place."""
    if not names:
        return
    tensors = tensors_of(reference.model)
    for name, leaf in reference.weight_leaves.items():
        judging.buffers["weights"].tensor(leaf).copy_(tensors[name].detach())
    reference.hand_over()
    places = {theirs: reference.weight_leaves[ours] for ours, theirs in names.items()}
    judging.command(worker, {"op": "weights", "leaves": places}, judging.protocol.deadlines.import_s)


def check(judging: Judging, cases: list[Case], reference: Reference) -> None:
    """Call the candidate on the cases in turn (A/B/A …) over the same argument objects, and compare.

    Raises:
        Outcome: `WRONG` or an error of the candidate.
        TaskError: if the reference fails.
    """
    spent: list[float] = []
    for turn in range(judging.protocol.trials):
        start = judging.clock_s()
        seconds = _run_s(judging, reference) if turn else judging.protocol.deadlines.first_call_s
        _call(judging, cases[turn % len(cases)], reference, seconds)
        spent.append(judging.clock_s() - start)
    # what the first call took longer than the next is just-in-time compilation
    jit = max(0.0, spent[0] - spent[1]) if len(spent) > 1 else 0.0
    judging.stages.add("correctness", -jit)
    judging.stages.add("build", jit)


def _run_s(judging: Judging, reference: Reference) -> float:
    """Seconds within which a call that is not the first must end.

    On a GPU a call that takes hundreds of times the reference's is no answer: a kernel that hangs must not hold the
    device for as long as the slowest task may.
    """
    longest = judging.protocol.deadlines.run_s
    if judging.device == "cpu":
        return longest
    return min(longest, _PATIENCE_S + _TIMES_REFERENCE * reference.expect_s)


def check_further(judging: Judging, seeds: list[int], reference: Reference) -> None:
    """Call the candidate once on inputs of each seed; a set lives no longer than its call, since there may be many.

    Raises:
        Outcome: as `check`.
    """
    assert judging.candidate is not None
    for seed in seeds:
        judging.give_way()
        with judging.stages.time("correctness"):
            case = reference.case(seed)
            judging.make_room(judging.candidate, case)
        _call(judging, case, reference, _run_s(judging, reference))


def check_fresh(judging: Judging, case: Case, reference: Reference) -> None:
    """One call on argument objects that were never seen before, at other addresses.

    Raises:
        Outcome: as `check`.
    """
    _call(judging, case, reference, _run_s(judging, reference), fresh=True, finding="C2")


def check_again(judging: Judging, case: Case, reference: Reference) -> None:
    """One more call over the same argument objects.

    Raises:
        Outcome: as `check`.
    """
    _call(judging, case, reference, _run_s(judging, reference), finding="C4")


def check_near(judging: Judging, contents: Contents, reference: Reference, rng: random.Random, *, more: bool) -> None:
    """Calls over the same argument objects, on contents that differ from the last ones in a small part only.

    Args:
        judging: the evaluation.
        contents: makes the inputs.
        reference: the trusted side.
        rng: draws the number of calls.
        more: whether no timed calls follow, so that a number which cannot be known is made here.

    Raises:
        Outcome: as `check`.
    """
    start = judging.clock_s()
    for _ in range(rng.randint(*_UNTIMED) if more else 1):
        case = contents.near()
        _call(judging, case, reference, _run_s(judging, reference), finding="C4")
        case.forget()
        if judging.clock_s() - start > _UNTIMED_S:
            break


def check_laws(judging: Judging, case: Case, reference: Reference, book: LawBook, seed: int) -> None:
    """Calls on inputs under value laws, each of them secretly chosen, over the same argument objects.

    Finding out whether the task bears a law, and computing what is expected, is work of the judge. Its time bounds the
    number of laws, so that a task whose reference is slow is tried on one.

    Args:
        judging: the evaluation.
        case: one of the task's own cases, whose form those under laws have.
        reference: the reference.
        book: what is known of the task's laws; filled in here.
        seed: of the choice and of all values.

    Raises:
        Outcome: as `check`; the message says of what nature the values are.
    """
    protocol, tried = judging.protocol, 0
    if not protocol.law_trials or not book.names:
        return
    # of this thread alone: a submission that dawdles, or keeps the processor busy, must not save itself from a law
    start = time.thread_time()
    assert judging.candidate is not None
    # what is found out lasts, so the submission cannot keep the machine busy meanwhile
    with judging.stages.time("correctness"), judging.candidate.still():
        book.learn(reference, case)
        if reference.out_size + case.size > _LARGE_BYTES:
            case.forget()  # one set of expected values at a time
    for name in book.order(seed):
        if tried >= protocol.law_trials or time.thread_time() - start > protocol.law_budget_s:
            return
        trial, values = (derive_seed(seed.to_bytes(8, "big"), part, name) for part in ("trial", "values"))
        judging.give_way()
        with judging.stages.time("correctness"), judging.candidate.still():
            varied = book.case(reference, name, values, case) if book.admit(reference, name, trial) else None
        if varied is None:
            continue
        tried += 1
        judging.laws.append(name)
        _call(
            judging,
            varied,
            reference,
            _run_s(judging, reference),
            finding="B12",
            lead=_OTHER_VALUES.format(NATURE[name]),
            book=book,
        )


def _call(
    judging: Judging,
    case: Case,
    reference: Reference,
    seconds: float,
    *,
    fresh: bool = False,
    finding: str = "",
    lead: str = "",
    book: LawBook | None = None,
) -> None:
    assert judging.candidate is not None
    judging.give_way()
    with judging.stages.time("correctness"):
        staged = not fresh and "other" in judging.buffers
        judging.present(judging.candidate, case, reference, staged=staged)
        for name in ("out", "late"):
            judging.buffers[name].bytes.fill_(0xFF)
        reference.hand_over()
        fresh_tree = case.tree if fresh else None
        message = {"op": "call", "out": reference.out_tree, "fresh": fresh_tree, "staged": case.size if staged else 0}
        answer = judging.command(judging.candidate, message, seconds, untimed=True)
        if not fresh and not reference.mutates and not reference.untouched(case, judging.views(case)):
            text = "ModelNew changed its input tensors; Model leaves them as they are."
            raise Outcome(Status.WRONG, text, finding="C15")
        # only now: while the candidate ran, no expected value existed
        if book is None:
            reference.expect(case)
        elif not book.holds(reference, case):
            return
        verdict = judging.compare(answer, case, reference)
        judging.error_ratio = max(verdict.ratio, 0.0 if math.isnan(judging.error_ratio) else judging.error_ratio)
        late = _changed_late(judging, answer, reference) if "tree" in answer and "unfit" not in answer else ""
        if late:
            raise Outcome(Status.WRONG, _LATE.format(path=late), finding="C9")
        if verdict.ok:
            return
        if book is None and _is_stale(judging, answer, case, reference):
            raise Outcome(Status.WRONG, _STALE, finding="B26")
        raise Outcome(Status.WRONG, f"{lead} {verdict.message}".strip(), finding=finding)


def _is_stale(judging: Judging, answer: dict[str, Any], case: Case, reference: Reference) -> bool:
    """Whether a wrong output is the right one for the parameters as they were when the model was constructed."""
    if not reference.weight_size or "unfit" in answer:
        return False
    before = reference.as_constructed()
    then = reference.case_of(case.inputs)
    before.expect(then)
    return judging.compare(answer, then, before).ok


def _changed_late(judging: Judging, answer: dict[str, Any], reference: Reference) -> str:
    """Where the output at the return and the one of an idle device differ, ``""`` if nowhere."""
    wanted, found = leaves(reference.out_tree), leaves(answer["tree"])
    if len(wanted) != len(found) or any(a["t"] != b["t"] for (_, a), (_, b) in zip(wanted, found, strict=True)):
        return ""
    for path, leaf in wanted:
        if leaf["t"] == "tensor":
            now, late = (judging.buffers[name].raw(leaf) for name in ("out", "late"))
            if not torch.equal(now, late):
                return path
    return ""
