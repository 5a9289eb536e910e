"""How published systems turn timed calls into a figure, and when a figure is measured again.

Timing itself is this package's in every protocol: interleaved blocks of cold calls, and the figure that counts is the
median of their ratios. The rules here say what another system would have reported of the same calls, so that figures
can be compared, and what makes a figure worth a second look. They are pure functions of samples.

- `TimingRule` -- the rule of one protocol; `timing_rule` looks it up, `RULES` has them all.
- `reported`, `Reported` -- what a system would have reported of blocks of calls.
- `Retest` -- when to measure again, and what counts then.
- `retest_reason` -- why a figure has to be measured again.
- `settle`, `Settled` -- which of two figures counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.result import Timing
from kernelgym_env.evaluation.statistics import bucketed, confirmed, pair_ratio
from kernelgym_env.rewards.published import round_toward_one

__all__ = [
    "ORDERS",
    "RULES",
    "SETTLEMENTS",
    "STATISTICS",
    "Reported",
    "Retest",
    "Settled",
    "TimingRule",
    "reported",
    "retest_reason",
    "settle",
    "timing_rule",
]

STATISTICS = ("pairs", "mean", "median", "buckets")
"""``pairs``: median over block pairs of the ratio of their medians. ``mean``, ``median``: ratio of each side's own.
``buckets``: median over buckets of calls of the ratio of their means."""

ORDERS = ("random", "candidate_first", "apart")
"""``random``: sides take turns in an order that is drawn. ``candidate_first``: all of the candidate's calls, then the
reference's. ``apart``: the reference in a session of its own."""

SETTLEMENTS = ("slower", "reject")
"""What counts after a re-test: the slower of two figures, or none where the second does not bear out the first."""


@dataclass(frozen=True)
class Retest:
    """When a figure is measured again, and which one counts then.

    Attributes:
        above: speedup above which it is.
        over_best: the same in multiples of the best one so far on the task.
        overstated: factor by which the clock inside of the process may fall short of the one outside.
        settlement: see `SETTLEMENTS`.
        tolerance: greatest difference, relative to the first figure, at which ``reject`` accepts it.
        source: where it comes from.

    Raises:
        UnknownNameError: for another settlement.
        InvalidOptionError: for a threshold that is not above 0.
    """

    above: float = 3.0
    over_best: float = 2.0
    overstated: float = 1.25
    settlement: str = "slower"
    tolerance: float = 0.10
    source: str = "this package"

    def __post_init__(self) -> None:
        if self.settlement not in SETTLEMENTS:
            raise unknown_name("settlement of a re-test", self.settlement, SETTLEMENTS)
        for name in ("above", "over_best", "overstated", "tolerance"):
            if not getattr(self, name) > 0:
                raise InvalidOptionError(f"Retest {name} must be above 0, got {getattr(self, name)!r}.")


@dataclass(frozen=True)
class TimingRule:
    """How a system times and what it reports.

    Attributes:
        name: the protocol's.
        source: where the figures come from, and which of them were not published.
        statistic: see `STATISTICS`.
        trials: timed calls of each side; 0 where their number adapts.
        warmup: calls before them.
        discard: timed calls at the beginning that do not count.
        order: see `ORDERS`.
        buckets: groups of calls for the statistic of that name, else 0.
        max_variance: greatest population variance of the buckets' ratios at which the figure counts.
        digits: significant digits that each side's time is rounded to; 0 for none.
        decimals: decimals that the speedup is rounded to, towards 1; 0 for none.
        flush_mib: size in MiB of the buffer that is written before each call to empty the L2 cache; 0 for none.
        baseline: what the speedup is over: ``eager`` or ``compile``.
        clock: what is read: ``events`` around the call, or ``busy``, the sum of the kernels' times.
        flag_above: speedup that the system itself marks as suspicious; infinite where it marks none.
        retest: when a figure is measured again here. Where a system publishes no rule it is this package's, since a
            protocol weakens no check of integrity.

    Raises:
        UnknownNameError: for another statistic or order.
        InvalidOptionError: for a number that is negative, or a statistic of buckets without any.
    """

    name: str
    source: str
    statistic: str = "mean"
    trials: int = 100
    warmup: int = 3
    discard: int = 0
    order: str = "candidate_first"
    buckets: int = 0
    max_variance: float = math.inf
    digits: int = 0
    decimals: int = 0
    flush_mib: int = 0
    baseline: str = "eager"
    clock: str = "events"
    flag_above: float = math.inf
    retest: Retest = field(default_factory=Retest)

    def __post_init__(self) -> None:
        for kind, allowed in (
            ("statistic", STATISTICS),
            ("order", ORDERS),
            ("baseline", ("eager", "compile")),
            ("clock", ("events", "busy")),
        ):
            if getattr(self, kind) not in allowed:
                raise unknown_name(f"{kind} of a timing rule", getattr(self, kind), allowed)
        for name in ("trials", "warmup", "discard", "buckets", "digits", "decimals", "flush_mib"):
            if getattr(self, name) < 0:
                raise InvalidOptionError(f"TimingRule {name} must be at least 0, got {getattr(self, name)!r}.")
        if (self.statistic == "buckets") != (self.buckets > 0):
            raise InvalidOptionError(
                f"TimingRule buckets must be above 0 with the statistic 'buckets' and 0 with any other, "
                f"got {self.buckets} with {self.statistic!r}."
            )


_KERNELBENCH_V0 = {"statistic": "mean", "trials": 100, "warmup": 3, "order": "apart", "digits": 3}
_KERNELBENCH = {**_KERNELBENCH_V0, "discard": 1, "order": "candidate_first", "flush_mib": 256, "flag_above": 10.0}
_RULES = (
    TimingRule(
        "strict",
        "This package, see Protocol: the number of calls adapts until the interval is narrow or the budget ends.",
        statistic="pairs",
        trials=0,
        order="random",
        flush_mib=256,
    ),
    TimingRule(
        "kernelbench",
        "ScalingIntelligence/KernelBench, src/kernelbench/timing.py at 423217d, method cuda_event, 100 trials as its "
        "scripts ask for (10 by default). Its scores divide a file of baselines by the candidate's mean; the reference "
        "that is timed in the same session only decides the mark.",
        **_KERNELBENCH,  # type: ignore[arg-type]
    ),
    TimingRule(
        "kernelbench_v0",
        "ScalingIntelligence/KernelBench, v0 and v0.1, and arXiv 2502.10517: baselines from a file, warm caches.",
        **_KERNELBENCH_V0,  # type: ignore[arg-type]
    ),
    TimingRule(
        "kernelgym",
        "hkust-nlp/KernelGYM, kernelgym/toolkit/kernelbench at 3a84417: 100 trials in training, 10 in the paper's "
        "evaluation scripts; warm caches; the reference is a task of its own, timed for every correct sample.",
        **_KERNELBENCH_V0,  # type: ignore[arg-type]
    ),
    TimingRule(
        "cuda_agent",
        "CUDA Agent's released workspace: torch.profiler over 10 iterations, the sum of device time a call, so gaps "
        "between kernels do not count; candidate, then eager, then torch.compile; warm caches.",
        statistic="mean",
        trials=10,
        warmup=5,
        order="candidate_first",
        clock="busy",
    ),
    TimingRule(
        "cuda_l1",
        "CUDA-L1, by secondary notes on the paper: buckets, their variance, the rounding and the re-test. 7 by 10 "
        "calls, 3 warm-ups and the ratio of a bucket's means are the released evaluator's, which takes the mean of the "
        "buckets in place of their median and does not round.",
        statistic="buckets",
        trials=70,
        warmup=3,
        order="random",
        buckets=7,
        max_variance=0.005,
        decimals=2,
        retest=Retest(settlement="reject", source="CUDA-L1, on another GPU of the same kind, by secondary notes"),
    ),
    TimingRule(
        "makora",
        "arXiv 2602.11000, by secondary notes: 3 warm-ups, the median of 100 runs, against TorchInductor. Order and "
        "cache flush are not known.",
        statistic="median",
        trials=100,
        warmup=3,
        order="apart",
        baseline="compile",
    ),
    TimingRule(
        "kevin",
        "arXiv 2507.11948 states neither statistic nor number of calls; they are those of the KernelBench release that "
        "it modified (v0).",
        **_KERNELBENCH_V0,  # type: ignore[arg-type]
    ),
    TimingRule(
        "tritonrl",
        "arXiv 2510.17891: none were found; they are those of KernelBench's current evaluator.",
        **_KERNELBENCH,  # type: ignore[arg-type]
    ),
)

RULES: Mapping[str, TimingRule] = MappingProxyType({rule.name: rule for rule in _RULES})
"""The rule of every preset by the protocol's name."""


def timing_rule(protocol: str) -> TimingRule:
    """The rule of a protocol by its name: a changed copy (``<name>+custom``) has that of its origin, and one that is no
    preset that of ``strict``.

    >>> timing_rule("cuda_l1+custom").buckets, timing_rule("my own").statistic
    (7, 'pairs')
    """
    return RULES.get(protocol.partition("+")[0], RULES["strict"])


@dataclass(frozen=True)
class Reported:
    """What a system would have reported.

    Attributes:
        speedup: reference time / candidate time; NaN where there is none.
        reference_us: the reference's time in microseconds, by the rule's statistic.
        candidate_us: the candidate's.
        n: timed calls of each side that entered.
        discarded: why the system would discard the figure, ``""`` if it would not.
    """

    speedup: float
    reference_us: float
    candidate_us: float
    n: int
    discarded: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the provenance."""
        return asdict(self)


def reported(reference: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]], rule: TimingRule) -> Reported:
    """What a system would have reported of these calls.

    Its own calls would have come in another order and with warm or cold caches as the rule says; that cannot be made up
    for. It takes the first `TimingRule.trials` calls of each side, or all where there are fewer.

    Args:
        reference: microseconds per call by block, shape [blocks][calls].
        candidate: the same for the candidate, same number of blocks.
        rule: the system's.

    Raises:
        ValueError: if the numbers of blocks differ, or a block is empty or has a time that is not above 0.

    >>> reported([[4.0], [6.0]], [[2.0], [3.004]], RULES["kernelbench_v0"])
    Reported(speedup=2.0, reference_us=5.0, candidate_us=2.5, n=2, discarded='')
    """
    blocks = [*reference, *candidate]
    if len(reference) != len(candidate) or not reference:
        raise ValueError(f"Block pairs needed, got {len(reference)} and {len(candidate)} blocks.")
    if not all(len(block) and all(0 < value < math.inf for value in block) for block in blocks):
        raise ValueError("Every block needs calls, and every call a finite time above 0.")
    theirs, mine = (np.array([value for block in side for value in block]) for side in (reference, candidate))
    if rule.statistic == "pairs":
        speedup, _, _ = pair_ratio(reference, candidate)
        return Reported(speedup, float(np.median(theirs)), float(np.median(mine)), min(len(theirs), len(mine)))
    n = min(len(theirs), len(mine))
    first = min(rule.discard, n - 1)
    last = min(n, first + rule.trials)
    theirs, mine = theirs[first:last], mine[first:last]
    if rule.statistic == "buckets":
        return _buckets(theirs, mine, rule)
    middle = np.median if rule.statistic == "median" else np.mean
    slow, fast = (_significant(float(middle(side)), rule.digits) for side in (theirs, mine))
    return Reported(_rounded(slow / fast, rule), slow, fast, len(mine))


def _buckets(theirs: NDArray[np.float64], mine: NDArray[np.float64], rule: TimingRule) -> Reported:
    means = float(np.mean(theirs)), float(np.mean(mine)), len(mine)
    if len(mine) < rule.buckets:
        return Reported(math.nan, *means, f"{len(mine)} calls do not fill {rule.buckets} buckets")
    groups = zip(np.array_split(theirs, rule.buckets), np.array_split(mine, rule.buckets), strict=True)
    found = bucketed([float(np.mean(a) / np.mean(b)) for a, b in groups], max_variance=rule.max_variance)
    why = "" if found.steady else f"the buckets' variance {found.variance:.3g} is above {rule.max_variance:g}"
    return Reported(_rounded(found.speedup, rule), *means, why)


def _significant(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}") if digits else value


def _rounded(speedup: float, rule: TimingRule) -> float:
    return round_toward_one(speedup, rule.decimals) if rule.decimals else speedup


def retest_reason(
    speedup: float,
    times: Mapping[str, Timing],
    previous_best: float | None,
    floor_us: float,
    rule: TimingRule,
    *,
    overstated: float = 1.0,
) -> str:
    """Why a figure has to be measured again, ``""`` if it need not.

    Args:
        speedup: the figure; NaN needs no re-test.
        times: by name; the candidate's is held against the floor.
        previous_best: best speedup so far on the task; None or NaN where there is none.
        floor_us: the task's floor on the device in microseconds, NaN where it is unknown.
        rule: says what is too much.
        overstated: factor by which the clock inside of the process falls short of the one outside.

    >>> retest_reason(2.5, {}, None, float("nan"), RULES["strict"])
    ''
    >>> retest_reason(2.5, {}, 1.1, float("nan"), RULES["strict"])
    'the speedup 2.5 is more than 2 times the best one before, 1.1'
    """
    if math.isnan(speedup):
        return ""
    limit, candidate = rule.retest, times.get("candidate", Timing()).median_us
    if overstated > limit.overstated:
        return f"the clock outside of the process shows {overstated:.3g} times the time of the one inside"
    if candidate < floor_us:
        return f"{candidate:.4g} µs are below the floor of the task on this device, {floor_us:.4g} µs"
    if speedup > limit.above:
        return f"the speedup {speedup:.4g} is above {limit.above:g}"
    if previous_best is not None and previous_best > 0 and speedup > limit.over_best * previous_best:
        return (
            f"the speedup {speedup:.4g} is more than {limit.over_best:g} times the best one before, {previous_best:.4g}"
        )
    return ""


@dataclass(frozen=True)
class Settled:
    """What a re-test says.

    Attributes:
        counts: the figure that counts: ``first``, ``again``, or ``""`` where no speed counts.
        confirmed: whether the second figure lies within the rule's tolerance of the first.
    """

    counts: str
    confirmed: bool


def settle(first: float, again: float, rule: TimingRule, *, cleared: bool = False) -> Settled:
    """Which of two speedups counts.

    Args:
        first: the one that was to be confirmed, above 0.
        again: that of the re-test; NaN if it gave none.
        rule: ``slower`` takes the lower one; ``reject`` takes the first if the second lies within the tolerance.
        cleared: whether the clocks were at odds in the first measurement, and nothing is the matter with later ones.
            Then these count where the lower one would: the first one was made lower by the disagreement.

    Raises:
        ValueError: if `first` is not above 0.

    >>> settle(4.0, 3.7, RULES["strict"]), settle(4.0, 3.5, RULES["cuda_l1"])
    (Settled(counts='again', confirmed=True), Settled(counts='', confirmed=False))
    >>> settle(0.5, 1.5, RULES["strict"]).counts, settle(0.5, 1.5, RULES["strict"], cleared=True).counts
    ('first', 'again')
    """
    agree = confirmed(first, again, tolerance=rule.retest.tolerance)
    if math.isnan(again) or (rule.retest.settlement == "reject" and not agree):
        return Settled("", agree)
    return Settled("again" if rule.retest.settlement == "slower" and (cleared or again < first) else "first", agree)
