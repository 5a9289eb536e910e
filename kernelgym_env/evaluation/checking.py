"""Correctness, step by step: what is called, on what, and what a right answer must survive.

- `renew_weights` -- new parameter values on both sides.
- `check` -- the A/B/A calls over the same argument objects.
- `check_further` -- one call on each further set of inputs.
- `check_fresh` -- one call on new objects.
- `check_denied` -- one call in which torch's computing operators are refused.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from kernelgym_env.evaluation.buffers import leaves
from kernelgym_env.evaluation.denied import GEMM
from kernelgym_env.evaluation.judging import Judging, Outcome
from kernelgym_env.evaluation.reference import Case, Reference
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.weights import is_constant, match, redraw, tensors_of
from kernelgym_env.evaluation.workers import Worker, WorkerEnded

__all__ = ["check", "check_denied", "check_fresh", "check_further", "match_weights", "renew_weights", "send_weights"]

_LATE = (
    "{path}: the output changed after the call had returned. Work was left on another stream or thread; the call must "
    "wait for it, or make the current stream wait."
)


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
    deadlines, spent = judging.protocol.deadlines, []
    for turn in range(judging.protocol.trials):
        start = time.perf_counter()
        _call(judging, cases[turn % len(cases)], reference, deadlines.run_s if turn else deadlines.first_call_s)
        spent.append(time.perf_counter() - start)
    # what the first call took longer than the next is just-in-time compilation
    jit = max(0.0, spent[0] - spent[1]) if len(spent) > 1 else 0.0
    judging.stages.add("correctness", -jit)
    judging.stages.add("build", jit)


def check_further(judging: Judging, seeds: list[int], reference: Reference) -> None:
    """Call the candidate once on inputs of each seed; a set lives no longer than its call, since there may be many.

    Raises:
        Outcome: as `check`.
    """
    assert judging.candidate is not None
    for seed in seeds:
        with judging.stages.time("correctness"):
            case = reference.case(seed)
            judging.make_room(judging.candidate, case)
        _call(judging, case, reference, judging.protocol.deadlines.run_s)


def check_fresh(judging: Judging, case: Case, reference: Reference) -> None:
    """One call on argument objects that were never seen before, at other addresses.

    Raises:
        Outcome: as `check`.
    """
    _call(judging, case, reference, judging.protocol.deadlines.run_s, fresh=True)


def _call(judging: Judging, case: Case, reference: Reference, seconds: float, *, fresh: bool = False) -> None:
    assert judging.candidate is not None
    with judging.stages.time("correctness"):
        judging.present(judging.candidate, case, reference)
        for name in ("out", "late"):
            judging.buffers[name].bytes.fill_(0xFF)
        reference.hand_over()
        message = {"op": "call", "out": reference.out_tree, "fresh": case.tree if fresh else None}
        answer = judging.command(judging.candidate, message, seconds)
        if not fresh and not reference.mutates and not reference.untouched(case, judging.views(case)):
            raise Outcome(Status.WRONG, "ModelNew changed its input tensors; Model leaves them as they are.")
        # only now: while the candidate ran, no expected value existed
        reference.expect(case)
        verdict = judging.compare(answer, case, reference)
        judging.error_ratio = max(verdict.ratio, 0.0 if math.isnan(judging.error_ratio) else judging.error_ratio)
        late = _changed_late(judging, answer, reference) if "tree" in answer else ""
        if late:
            raise Outcome(Status.WRONG, _LATE.format(path=late))
        if not verdict.ok:
            raise Outcome(Status.WRONG, verdict.message)


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


def check_denied(judging: Judging, case: Case, reference: Reference) -> None:
    """One call in which torch's computing operators are refused, for a policy that forbids them.

    Raises:
        Outcome: `POLICY`, naming what was asked for.
    """
    assert judging.candidate is not None
    allowed = judging.submission.library_ops or judging.protocol.library_ops
    if allowed == "allow":
        return
    with judging.stages.time("correctness"):
        judging.present(judging.candidate, case, reference)
        message = {"op": "denied", "allowed": sorted(GEMM) if allowed == "gemm" else []}
        answer = judging.command(judging.candidate, message, judging.protocol.deadlines.run_s)
    found, captured = answer.get("found"), answer.get("captured")
    if not isinstance(found, list) or not isinstance(captured, list):
        raise WorkerEnded("garbage", "it did not say which operators it used")
    captured = [name for name in captured if allowed != "gemm" or name not in GEMM]
    if found or captured:
        names = ", ".join(str(name)[:60] for name in dict.fromkeys([*found, *captured]))
        how = "recorded into a CUDA graph" if captured and not found else "called"
        raise Outcome(
            Status.POLICY, f"Operators of torch do the work: {names} ({how}). Compute it in your own kernels."
        )
    if "failed" in answer:
        error = answer["failed"] if isinstance(answer["failed"], dict) else {}
        detail = f"{error.get('type')}: {error.get('message')}"[:1000]
        raise Outcome(Status.POLICY, f"The call fails where torch's computing operators are not available: {detail}")
