"""Did the submission compute it itself?

Three looks at the same call, for every policy but ``allow``: once with torch's computing operators refused, by what the
candidate's own dispatcher is asked for; by where its threads are seen from outside, which finds NumPy, a BLAS called by
pointer, and operators on other threads too; and, on a GPU, by what launched the kernels that ran.

- `check_denied` -- the first.
- `check_attribution` -- the second; `foreign_code` and `added_code` are the rules that it goes by.
- `check_launches` -- the third; `evidence` has its rules.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeGuard

from kernelgym_env.evaluation.attribution import PRODUCTS, Sampler, Shares, has_own_code, supported
from kernelgym_env.evaluation.buffers import Buffer
from kernelgym_env.evaluation.checking import check_again
from kernelgym_env.evaluation.correctness import Verdict
from kernelgym_env.evaluation.denied import GEMM
from kernelgym_env.evaluation.evidence import Evidence, attribute, library_kernels
from kernelgym_env.evaluation.feedback import without_values
from kernelgym_env.evaluation.judging import Judging, Outcome
from kernelgym_env.evaluation.reference import Case, Reference
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.workers import WorkerEnded

__all__ = ["added_code", "check_attribution", "check_denied", "check_launches", "foreign_code"]

_WATCHED_S, _MOST_ROUNDS, _ENOUGH = 0.1, 5, 50
"""Seconds of one round of calls, rounds at most, and samples at which no further round follows."""

_MOST_CALLS = 10**9

_LEAST_SHARE, _LITTLE = 0.25, 0.1
_LEAST_SAMPLES = 4
_LEAST_US = {"library": 10.0, "tensor": 100.0}
"""Microseconds a call below which such code is no more than what passing a tensor on takes."""

_LEAST_HOST_US = 100.0
"""The same on the host of a GPU, where launching goes through installed code too."""

_TENSOR_US = 20.0
"""What of that torch takes for a call, and for each operator in it, while operators are refused."""

_LEAST_ALONE_US = 2.0
"""The same for arithmetic libraries where a submission's own code does next to nothing."""

_TRACED_CALLS = 3
_MARGIN = 2.0
"""By what factor operators that are let through may take longer in plain calls, which use all threads."""

_LIBRARIES = "Installed libraries do the work: {}. Compute it in your own kernels."
_NO_KERNEL = "No kernel of your own ran. Compute it in your own kernels."


def _allowed(judging: Judging) -> str:
    return judging.submission.library_ops or judging.protocol.library_ops


def check_denied(judging: Judging, case: Case, reference: Reference) -> None:
    """One call in which torch's computing operators are refused, for a policy that forbids them.

    Raises:
        Outcome: `POLICY`, naming what was asked for, or saying that the output is not right without it.
    """
    allowed = _allowed(judging)
    if allowed == "allow":
        return
    with judging.stages.time("correctness"):
        verdict, failed = _watched_call(judging, case, reference, refuse=True)
        if verdict is None:
            text = f"The call fails where torch's computing operators are not available: {failed}"
            raise Outcome(Status.POLICY, text, finding="A3")
    if not verdict.ok:
        check_again(judging, case, reference)  # wrong there too, if it gives an old answer
        text = "The output is right only where torch's computing operators are available. "
        raise Outcome(Status.POLICY, text + verdict.message, finding="A3")
    if judging.device == "cpu":  # on a GPU what runs is told by what it launches
        with judging.stages.time("correctness"):
            _, failed = _watched_call(judging, case, reference, refuse=False)
        if failed:
            raise Outcome(Status.RUNTIME_ERROR, failed)


def _watched_call(judging: Judging, case: Case, reference: Reference, *, refuse: bool) -> tuple[Verdict | None, str]:
    """One call during which torch notes its operators, and refuses those that compute if `refuse` is set.

    Returns:
        What the output is worth, None if the call failed; and how it failed.

    Raises:
        Outcome: `POLICY`, naming the operators.
    """
    assert judging.candidate is not None
    allowed, seconds = _allowed(judging), judging.protocol.deadlines.run_s
    judging.give_way()
    judging.present(judging.candidate, case, reference)
    judging.buffers["out"].bytes.fill_(0xFF)
    reference.hand_over()
    message = {"op": "denied", "out": reference.out_tree, "allowed": _let_through(allowed), "refuse": refuse}
    answer = judging.command(judging.candidate, message, seconds)
    # all before it tells: until then the refusal is in force
    reference.expect(case)
    verdict = None if "failed" in answer else judging.compare(answer, case, reference)
    told = judging.command(judging.candidate, {"op": "found"}, seconds)
    found, captured = told.get("found"), told.get("captured")
    if not _are_names(found) or not _are_names(captured):
        raise WorkerEnded("garbage", "it did not say which operators it used")
    captured = [name for name in captured if allowed != "gemm" or name not in GEMM]
    if found or captured:
        names = ", ".join(str(name)[:60] for name in dict.fromkeys([*found, *captured]))
        how = "recorded into a CUDA graph" if captured and not found else "called"
        raise Outcome(
            Status.POLICY,
            f"Operators of torch do the work: {names} ({how}). Compute it in your own kernels.",
            finding="A3",
        )
    if verdict is not None:
        return verdict, ""
    error = answer["failed"] if isinstance(answer["failed"], dict) else {}
    return None, without_values(f"{error.get('type')}: {error.get('message')}")[:1000] or "it failed"


def _are_names(answer: Any) -> TypeGuard[list[str]]:
    return isinstance(answer, list) and all(isinstance(name, str) for name in answer)


def _let_through(allowed: str) -> list[str]:
    return sorted(GEMM) if allowed == "gemm" else []


def check_attribution(judging: Judging, case: Case, reference: Reference) -> None:
    """Calls for a moment, while the judge looks at whose code the candidate's threads are in.

    Raises:
        Outcome: `POLICY`, naming the files.
    """
    assert judging.candidate is not None
    allowed = _allowed(judging)
    if allowed == "allow" or not supported():
        return
    worker = judging.candidate
    judging.give_way()
    with judging.stages.time("correctness"):
        judging.buffers["inside"] = Buffer.create(1, "cpu")
        judging.attach(worker, ("inside",))
        judging.present(worker, case, reference)
        with Sampler(worker.pid, str(worker.folder), _reader(judging.buffers["inside"])) as sampler:
            message = {"op": "repeat", "seconds": _WATCHED_S, "allowed": _let_through(allowed)}
            calls = interpreted = operators = 0
            for _ in range(_MOST_ROUNDS):
                answer = judging.command(worker, message, judging.protocol.deadlines.run_s)
                if type(answer.get("calls")) is not int or not 1 <= answer["calls"] <= _MOST_CALLS:
                    raise WorkerEnded("garbage", "it did not say how often it called")
                calls += answer["calls"]
                interpreted += _count(answer.get("interpreted"))
                operators += _count(answer.get("operators"))
                # a busy machine gives few looks
                if sampler.shares.seen.total() >= _ENOUGH or sampler.shares.problem:
                    break
    on_host, gemm = judging.device != "cpu", allowed == "gemm"
    if names := foreign_code(
        sampler.shares, calls, gemm=gemm, host=on_host, interpreted=interpreted > 0, operators=operators
    ):
        raise Outcome(Status.POLICY, _LIBRARIES.format(", ".join(names)), finding="A4")
    if on_host or interpreted or gemm:
        return
    if not has_own_code(worker.pid, str(worker.folder)):
        raise Outcome(Status.POLICY, _NO_KERNEL, finding="A3")
    with judging.stages.time("correctness"):
        plain, plain_calls = _plain_calls(judging)
    if names := added_code(sampler.shares, calls, plain, plain_calls):
        raise Outcome(Status.POLICY, _LIBRARIES.format(", ".join(names)), finding="A4")


def _plain_calls(judging: Judging) -> tuple[Shares, int]:
    """What is seen of calls that nothing distinguishes from any others, and their number."""
    worker = judging.candidate
    assert worker is not None
    calls = 0
    with Sampler(worker.pid, str(worker.folder), lambda: False) as sampler:
        batch, end = 1, time.monotonic() + _WATCHED_S
        while not calls or time.monotonic() < end:
            start = time.monotonic()
            judging.command(worker, {"op": "batch", "calls": batch, "wait": 0}, judging.protocol.deadlines.run_s)
            calls += batch
            if time.monotonic() - start < _WATCHED_S / 8:
                batch *= 2
    return sampler.shares, calls


def added_code(watched: Shares, watched_calls: int, plain: Shares, plain_calls: int) -> list[str]:
    """Files of installed code that works in plain calls, and did not where it was watched; empty if there is none.

    Args:
        watched: what was seen where torch's operators are refused, and those that are let through are told.
        watched_calls: number of calls meanwhile.
        plain: what was seen of plain calls.
        plain_calls: number of these.
    """
    if not watched_calls or not plain_calls or plain.problem or watched.problem:
        return []
    before = sum(watched.seen[whose] for whose in ("allowed", "tensor", "library"))
    before_us = before * watched.period_s * 1e6 / watched_calls
    count = sum(plain.files.values())
    added_us = count * plain.period_s * 1e6 / plain_calls - _MARGIN * before_us
    share = count / max(1, count + plain.seen["own"])
    if count < _LEAST_SAMPLES or added_us < _LEAST_US["tensor"] or share < _LEAST_SHARE:
        return []
    totals = Counter({name: seen for (_, name), seen in plain.files.items()})
    return [name for name, _ in totals.most_common(4)]


def _count(told: object) -> int:
    return told if type(told) is int and told > 0 else 0


def _reader(buffer: Buffer) -> Callable[[], bool]:
    byte = ctypes.c_uint8.from_address(buffer.bytes.data_ptr())
    return lambda: byte.value != 0


def foreign_code(
    shares: Shares,
    calls: int,
    *,
    gemm: bool,
    host: bool = False,
    interpreted: bool = False,
    operators: int = 0,
) -> list[str]:
    """Files of installed code that does a quarter of the work or more, most first; empty if there is none.

    Args:
        shares: what was seen.
        calls: number of calls meanwhile.
        gemm: whether products may come from a library.
        host: whether the work is a GPU's, so that its host is to wait and launch only.
        interpreted: whether Triton's interpreter ran own kernels, whose work is not seen as own code.
        operators: number of torch's operators meanwhile; torch needs time of its own to be called.
    """
    names: list[str] = []
    if not calls:
        return names
    for whose, least_us in _LEAST_US.items():
        least_us = _LEAST_HOST_US if host else least_us
        if whose == "tensor" and not host:
            least_us = min(least_us, _TENSOR_US * (1 + operators / calls))
        files = {
            name: count
            for (kind, name), count in shares.files.items()
            if kind == whose and not (gemm and any(part in name.lower() for part in PRODUCTS))
        }
        count = sum(files.values())
        if whose == "library" and not host and not interpreted and shares.seen["own"] < _LITTLE * count:
            least_us = _LEAST_ALONE_US
        spent_us = count * shares.period_s * 1e6 / calls
        work = shares.seen.total() if host else count + shares.seen["own"]
        if count >= _LEAST_SAMPLES and spent_us >= least_us and count >= _LEAST_SHARE * work:
            names += sorted(files, key=lambda name: -files[name])
    return names[:4]


def check_launches(judging: Judging, case: Case, reference: Reference) -> Evidence:
    """Calls while what they launch is noted, on a GPU; under ``allow`` only to say what was seen.

    Raises:
        Outcome: `POLICY`, naming the libraries whose kernels did the work, or saying that no kernel of its own ran.
    """
    assert judging.candidate is not None
    allowed = _allowed(judging)
    worker = judging.candidate
    with judging.stages.time("correctness"):
        judging.present(worker, case, reference)
        names = None if allowed == "allow" else _let_through(allowed)
        message = {"op": "trace", "calls": _TRACED_CALLS, "allowed": names}
        answer = judging.command(worker, message, judging.protocol.deadlines.run_s)
    if "kernels" not in answer:
        return Evidence(problem=without_values(str(answer.get("problem")))[:200])
    kernels = attribute(answer["kernels"], _TRACED_CALLS, str(worker.folder))
    if kernels is None:
        raise WorkerEnded("garbage", "it did not say which kernels ran")
    if not kernels:
        return Evidence(problem="no kernel was seen")
    evidence = Evidence.of(kernels)
    if allowed == "allow":
        return evidence
    if libraries := library_kernels(kernels, gemm=allowed == "gemm"):
        text = f"Kernels of installed libraries do the work: {', '.join(libraries)}. Compute it in your own kernels."
        raise Outcome(Status.POLICY, text, finding="A4")
    if allowed == "forbid" and not evidence.own_launches:
        raise Outcome(Status.POLICY, _NO_KERNEL, finding="A3")
    return evidence
