"""What comes of two evaluations on two devices."""

import math
from typing import Any

import pytest

from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.pools.second_device import settled, wants_another

RETEST = {"retest": {"why": "above 3", "first": 4.0, "again": 4.0, "counts": "first", "confirmed": True}}


def on(device: str, speedup: float = 4.0, status: Status = Status.CORRECT, **changes: Any) -> Evaluation:
    changes = {"protocol": "strict", "provenance": RETEST, **changes}
    low, high = speedup * 0.99, speedup * 1.01
    return Evaluation("a/b", status, device=device, speedup=speedup, speedup_low=low, speedup_high=high, **changes)


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (on("cuda:0"), True),
        (on("cuda:0", provenance={}), False),
        (on("cuda:0", provenance={"retest": {}}), False),
        (on("cuda:0", math.nan), False),
        (on("cuda:0", status=Status.WRONG), False),
    ],
)
def test_only_a_figure_that_was_measured_again_and_stood_is_repeated(one: Evaluation, wanted: bool) -> None:
    assert wants_another(one) is wanted


@pytest.mark.parametrize(("second", "counts"), [(4.2, 4.0), (3.8, 3.8), (1.1, 1.1)])
def test_the_slower_one_counts(second: float, counts: float) -> None:
    found = settled(on("cuda:0"), on("cuda:1", second))
    assert found.speedup == counts
    told = found.provenance["retest"]
    assert told["first_device"] == "cuda:0"
    assert told["second_device"]["device"] == "cuda:1"
    assert told["second_device"]["confirmed"] is (second > 3.6)


def test_a_rule_that_rejects_leaves_no_speedup() -> None:
    found = settled(on("cuda:0", protocol="cuda_l1"), on("cuda:1", 2.0, protocol="cuda_l1"))
    assert found.status is Status.CORRECT
    assert math.isnan(found.speedup)


@pytest.mark.parametrize("protocol", ["strict+custom", "my own"])
def test_a_protocol_that_is_no_preset_has_the_rule_of_strict(protocol: str) -> None:
    assert settled(on("cuda:0", protocol=protocol), on("cuda:1", 3.8, protocol=protocol)).speedup == 3.8


def test_what_is_wrong_on_another_device_is_wrong() -> None:
    found = settled(on("cuda:0"), on("cuda:1", math.nan, Status.WRONG, feedback="output: 3% differ"))
    assert found.status is Status.WRONG
    assert found.provenance["retest"]["second_device"]["status"] == "wrong"


def test_a_fault_of_the_second_device_is_one_of_the_evaluation() -> None:
    found = settled(on("cuda:0"), on("cuda:1", math.nan, Status.FAULT, fault="the driver is gone"))
    assert (found.status, found.fault) == (Status.FAULT, "the driver is gone")
    assert found.provenance["retest"]["second_device"]["status"] == "fault"
