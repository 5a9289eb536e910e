"""What published systems would have reported, and when a figure is measured again."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.presets import PRESETS
from kernelgym_env.evaluation.protocols import protocol_names
from kernelgym_env.evaluation.result import Timing
from kernelgym_env.evaluation.timing_rules import (
    RULES,
    Retest,
    Settled,
    TimingRule,
    reported,
    retest_reason,
    settle,
    timing_rule,
)

NAN = math.nan
STRICT, CUDA_L1 = RULES["strict"], RULES["cuda_l1"]
times = st.floats(0.1, 1e6)
blocks = st.lists(st.lists(times, min_size=1, max_size=12), min_size=1, max_size=12)


# --- the rules


def test_every_protocol_has_a_rule() -> None:
    assert set(RULES) == set(protocol_names())
    for name, rule in RULES.items():
        assert rule.name == name
        assert rule.source
        assert rule.warmup == PRESETS[name].warmup
        assert timing_rule(PRESETS[name].replace(trials=1).name) is rule
    assert PRESETS["strict"].flush_mib == STRICT.flush_mib
    assert timing_rule("something else") is STRICT


def test_no_protocol_measures_again_later_than_ours() -> None:
    for rule in RULES.values():
        for name in ("above", "over_best", "overstated"):
            assert getattr(rule.retest, name) <= getattr(STRICT.retest, name)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"statistic": "mode"}, UnknownNameError, "statistic of a timing rule 'mode'"),
        ({"order": "ABBA"}, UnknownNameError, "order of a timing rule"),
        ({"baseline": "numpy"}, UnknownNameError, "baseline of a timing rule"),
        ({"clock": "wall"}, UnknownNameError, "clock of a timing rule"),
        ({"trials": -1}, InvalidOptionError, "trials must be at least 0, got -1"),
        ({"buckets": 7}, InvalidOptionError, "got 7 with 'mean'"),
        ({"statistic": "buckets"}, InvalidOptionError, "got 0 with 'buckets'"),
    ],
)
def test_rules_that_are_none(changes: dict[str, object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        TimingRule("mine", "", **changes)  # type: ignore[arg-type]


def test_re_tests_that_are_none() -> None:
    with pytest.raises(UnknownNameError, match="settlement"):
        Retest(settlement="faster")
    for name in ("above", "over_best", "overstated", "tolerance"):
        with pytest.raises(InvalidOptionError, match=f"Retest {name} must be above 0, got 0"):
            Retest(**{name: 0})  # type: ignore[arg-type]


def test_the_page_says_what_the_rules_are(repo_root: Path) -> None:
    text = (repo_root / "docs/protocols.md").read_text(encoding="utf-8").partition("\n## Timing rules\n")[2]
    rows = [line.strip("|").split(" | ") for line in text.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    told = {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}
    assert list(told) == protocol_names()
    for name, rule in RULES.items():
        calls = str(rule.trials) if rule.trials else "adaptive"
        trials = f"{rule.buckets} × {rule.trials // rule.buckets}" if rule.buckets else calls
        rounding = f"{rule.digits} digits" if rule.digits else f"{rule.decimals} decimals" if rule.decimals else "–"
        assert told[name] == [
            rule.statistic,
            f"{rule.warmup} + {rule.discard}" if rule.discard else str(rule.warmup),
            trials,
            rule.order.replace("_", " "),
            str(rule.flush_mib or "–"),
            rounding,
            rule.clock,
            rule.baseline,
            rule.retest.settlement if rule.retest.source != "this package" or name == "strict" else "none",
        ], name


# --- what would have been reported


def test_strict_reports_the_estimate_from_pair_ratios() -> None:
    ones, others = [[4.0, 4.0], [6.0], [8.0], [5.0], [100.0]], [[2.0, 2.0], [3.0, 3.0], [4.0], [2.5], [10.0]]
    found = reported(ones, others, STRICT)
    assert found.speedup == pytest.approx(2.0)
    assert (found.reference_us, found.candidate_us) == (5.5, 3.0)


def test_kernelbench_s_mean_of_a_hundred_to_three_digits() -> None:
    # the first call is discarded, then 100 count, and what follows does not
    slow, fast = [1e6, *[10.0] * 99, 123.0, 1e6], [1e6, *[5.0] * 99, 60.0, 1e6]
    found = reported([slow], [fast], RULES["kernelbench"])
    assert (found.reference_us, found.candidate_us, found.n) == (11.1, 5.55, 100)
    assert found.speedup == pytest.approx(2.0)
    older = reported([slow[:100]], [fast[:100]], RULES["kernelbench_v0"])
    assert (older.reference_us, older.candidate_us, older.n) == (10000.0, 10000.0, 100)


def test_an_outlier_moves_the_mean_and_not_the_median() -> None:
    slow, fast = [[10.0] * 100], [[5.0] * 99 + [5000.0]]
    assert reported(slow, fast, RULES["makora"]).speedup == 2.0
    assert reported(slow, fast, RULES["kevin"]).speedup == 10 / 55.0


def test_cuda_agent_s_mean_of_ten() -> None:
    found = reported([[3.0] * 10 + [99.0]], [[1.0] * 10 + [99.0]], RULES["cuda_agent"])
    assert (found.speedup, found.n) == (3.0, 10)


RATIOS = (1.50, 1.52, 1.49, 1.51, 1.50, 1.53)


def test_cuda_l1_s_buckets() -> None:
    steady = reported([[ratio] * 10 for ratio in (*RATIOS, 1.512)], [[1.0] * 10] * 7, CUDA_L1)
    assert (steady.speedup, steady.discarded, steady.n) == (1.51, "", 70)
    wild = reported([[ratio] * 10 for ratio in (*RATIOS, 2.40)], [[1.0] * 10] * 7, CUDA_L1)
    assert wild.speedup == 1.51
    assert wild.discarded == "the buckets' variance 0.0975 is above 0.005"


def test_cuda_l1_rounds_towards_one() -> None:
    for ratio, rounded in ((1.118, 1.11), (0.992, 1.0), (0.985, 0.99), (1.009, 1.0), (3.499, 3.49)):
        assert reported([[ratio] * 70], [[1.0] * 70], CUDA_L1).speedup == rounded


def test_too_few_calls_for_the_buckets() -> None:
    found = reported([[2.0] * 6], [[1.0] * 6], CUDA_L1)
    assert math.isnan(found.speedup)
    assert found.discarded == "6 calls do not fill 7 buckets"
    assert reported([[2.0] * 7], [[1.0] * 7], CUDA_L1).speedup == 2.0


@given(blocks, st.sampled_from(sorted(RULES)), st.floats(0.2, 5))
def test_a_constant_factor_is_found_by_every_rule(sides: list[list[float]], name: str, factor: float) -> None:
    found = reported([[value * factor for value in block] for block in sides], sides, RULES[name])
    if math.isnan(found.speedup):
        assert "buckets" in found.discarded
    else:
        assert found.speedup == pytest.approx(factor, rel=0.011, abs=0.0101)


@given(blocks, st.sampled_from(sorted(set(RULES) - {"strict"})))
def test_only_the_order_of_calls_and_not_the_blocks_count(sides: list[list[float]], name: str) -> None:
    whole = [[value for block in sides for value in block]]
    assert str(reported(sides, sides, RULES[name])) == str(reported(whole, whole, RULES[name]))  # NaN is not NaN


@pytest.mark.parametrize(
    ("reference", "candidate", "said"),
    [
        ([], [], "got 0 and 0 blocks"),
        ([[1.0]], [], "got 1 and 0 blocks"),
        ([[]], [[1.0]], "Every block needs calls"),
        ([[1.0]], [[0.0]], "above 0"),
        ([[1.0]], [[NAN]], "finite"),
        ([[math.inf]], [[1.0]], "finite"),
    ],
)
def test_blocks_without_a_figure(reference: list[list[float]], candidate: list[list[float]], said: str) -> None:
    for rule in RULES.values():
        with pytest.raises(ValueError, match=said):
            reported(reference, candidate, rule)


def test_means_scatter_more_than_medians_of_pairs_where_a_device_drifts() -> None:
    """Why `strict` has a statistic of its own: the clock falls while the calls run."""
    rng = np.random.default_rng(3)
    drift = np.linspace(1.0, 1.3, 20)
    pairs, means = [], []
    for _ in range(50):
        noise = rng.lognormal(0, 0.3, (2, 20, 5)) ** (rng.random((2, 20, 5)) < 0.1)
        slow, fast = (2.0 * drift[:, None] * noise[0]).tolist(), (drift[:, None] * noise[1]).tolist()
        pairs.append(reported(slow, fast, STRICT).speedup)
        means.append(reported(slow, fast, RULES["kevin"]).speedup)
    assert np.std(pairs) < np.std(means)


# --- when to measure again


def timed(candidate: float) -> dict[str, Timing]:
    return {"candidate": Timing(candidate, candidate, candidate, 10, "cuda_event")}


@pytest.mark.parametrize(
    ("speedup", "candidate", "best", "floor", "overstated", "said"),
    [
        (2.9, 10.0, None, NAN, 1.0, ""),
        (3.0, 10.0, 1.5, 10.0, 1.25, ""),
        (3.1, 10.0, None, NAN, 1.0, "the speedup 3.1 is above 3"),
        (3.1, 10.0, 3.0, NAN, 1.0, "the speedup 3.1 is above 3"),
        (2.5, 10.0, 1.2, NAN, 1.0, "more than 2 times the best one before, 1.2"),
        (2.5, 10.0, NAN, NAN, 1.0, ""),
        (2.5, 10.0, 0.0, NAN, 1.0, ""),
        (1.5, 9.9, None, 10.0, 1.0, "9.9 µs are below the floor of the task on this device, 10 µs"),
        (1.5, NAN, None, 10.0, 1.0, ""),
        (1.5, 10.0, None, NAN, 1.3, "shows 1.3 times the time"),
        (NAN, 1.0, 0.1, 10.0, 9.0, ""),
    ],
)
def test_reasons(
    speedup: float, candidate: float, best: float | None, floor: float, overstated: float, said: str
) -> None:
    for rule in RULES.values():
        reason = retest_reason(speedup, timed(candidate), best, floor, rule, overstated=overstated)
        assert said in reason
        assert bool(reason) == bool(said)


def test_a_rule_of_one_s_own() -> None:
    rule = dataclasses.replace(STRICT, retest=Retest(above=10.0, over_best=5.0))
    assert retest_reason(9.0, {}, 2.0, NAN, rule) == ""
    assert "above 10" in retest_reason(11.0, {}, None, NAN, rule)
    assert "more than 5 times" in retest_reason(9.0, {}, 1.0, NAN, rule)


@pytest.mark.parametrize(
    ("first", "again", "ours", "theirs"),
    [
        (4.0, 3.7, Settled("again", True), Settled("first", True)),
        (4.0, 3.5, Settled("again", False), Settled("", False)),
        (4.0, 4.3, Settled("first", True), Settled("first", True)),
        (4.0, 5.0, Settled("first", False), Settled("", False)),
        (4.0, NAN, Settled("", False), Settled("", False)),
    ],
)
def test_what_counts(first: float, again: float, ours: Settled, theirs: Settled) -> None:
    assert settle(first, again, STRICT) == ours
    assert settle(first, again, CUDA_L1) == theirs


@given(times, times)
def test_the_slower_one_counts(first: float, again: float) -> None:
    counts = settle(first, again, STRICT).counts
    assert {"first": first, "again": again}[counts] == min(first, again)


def test_a_first_figure_that_is_none() -> None:
    with pytest.raises(ValueError, match="above 0"):
        settle(NAN, 1.0, STRICT)
