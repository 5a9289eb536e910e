"""Who else is on a device, what is said where that cannot be known, and what makes times worthless."""

from __future__ import annotations

import json
import math
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env import nvml
from kernelgym_env.evaluation.neighbours import BUSY, DeviceState, compare, foreign, look
from kernelgym_env.nvml import GpuProcess, GpuState

MINE, OTHER, IDLE = GpuProcess(10, 500.0, 0.9), GpuProcess(11, 900.0, 0.4), GpuProcess(12, 900.0, 0.0)


def seen(*processes: GpuProcess, own: tuple[int, ...] = (10,), reasons: tuple[str, ...] | None = ()) -> DeviceState:
    gpu = GpuState("GPU-1", processes, 1980, 3201, reasons, 41, 312.5, 0.7)
    return DeviceState(gpu, *foreign(processes, own))


# --- whose processes they are


@pytest.mark.parametrize(
    ("listed", "own", "shared", "neighbours", "said"),
    [
        pytest.param([MINE], [10], False, (), "", id="alone"),
        pytest.param([MINE, OTHER], [10], True, (OTHER,), "", id="one other"),
        pytest.param([MINE], [10, 99], False, (), "", id="one of ours has no context yet"),
        pytest.param([OTHER], [], True, (OTHER,), "", id="none of ours"),
        pytest.param([OTHER, IDLE], [10], True, (), "another namespace", id="more than ours, by other ids"),
        pytest.param([OTHER], [10], None, (), "another namespace, or hidden", id="as many as ours, by other ids"),
        pytest.param([], [10], None, (), "or hidden", id="hidden"),
        pytest.param([], [], None, (), "or hidden", id="an empty list says nothing"),
        pytest.param(None, [10], None, (), "does not list", id="no answer"),
    ],
)
def test_foreign(
    listed: list[GpuProcess] | None, own: list[int], shared: bool | None, neighbours: tuple[GpuProcess, ...], said: str
) -> None:
    found = foreign(listed, own)
    assert found[:2] == (shared, neighbours)
    assert said in found[2]
    assert bool(found[2]) == bool(said)


@given(st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)))
def test_none_of_ours_is_a_neighbour(listed: set[int], own: set[int]) -> None:
    shared, neighbours, _ = foreign([GpuProcess(pid, None, None) for pid in sorted(listed)], own)
    assert not own & {one.pid for one in neighbours}
    if listed & own:
        assert shared == bool(listed - own)


# --- two looks together


def test_alone_on_a_device() -> None:
    both = compare(seen(MINE), seen(MINE))
    assert (both.device_shared, both.busy, both.slowed, both.worthless) == (False, 0.0, (), "")


def test_a_neighbour_that_holds_memory_only_disturbs_nothing() -> None:
    both = compare(seen(MINE, IDLE), seen(MINE, IDLE))
    assert (both.device_shared, both.busy, both.worthless) == (True, 0.0, "")


def test_a_busy_neighbour_makes_times_worthless() -> None:
    both = compare(seen(MINE), seen(MINE, OTHER))
    assert (both.device_shared, both.busy) == (True, 0.4)
    assert both.worthless == "another process used the device for up to 40% of the time while it was timed"
    just = GpuProcess(11, None, BUSY - 0.001)
    assert compare(seen(MINE), seen(MINE, just)).worthless == ""


@pytest.mark.parametrize(
    ("before", "after", "shared", "busy"),
    [
        (seen(MINE), seen(own=(10,)), None, None),
        (seen(OTHER, IDLE), seen(OTHER, IDLE), True, None),
        (seen(MINE, IDLE), seen(MINE), True, 0.0),
        (seen(MINE), seen(MINE, GpuProcess(11, 1.0, None)), True, None),
        (seen(MINE), seen(MINE, OTHER, GpuProcess(13, 1.0, None)), True, 0.4),
    ],
)
def test_what_is_unknown_is_not_taken_for_nothing(
    before: DeviceState, after: DeviceState, shared: bool | None, busy: float | None
) -> None:
    both = compare(before, after)
    assert (both.device_shared, both.busy) == (shared, busy)


def test_what_held_the_clocks() -> None:
    held = ("idle", "application_clocks", "software_power_cap"), ("hardware_thermal",)
    both = compare(*(seen(MINE, reasons=reasons) for reasons in held))
    assert both.slowed == ("hardware_thermal", "software_power_cap")
    assert compare(seen(MINE, reasons=None), seen(MINE, reasons=None)).slowed is None
    assert compare(seen(MINE, reasons=None), seen(MINE, reasons=("idle",))).slowed == ()


# --- what goes into the provenance


def test_plain_data() -> None:
    data = compare(seen(MINE, OTHER, reasons=("power_brake",)), seen(MINE)).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["device_shared"] is True
    assert data["clocks_held_by"] == ["power_brake"]
    assert data["before"]["gpu"]["sm_mhz"] == 1980
    assert data["before"]["neighbours"] == 1
    assert "11" not in json.dumps(data)  # ids of others


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvml.ctypes, "CDLL", missing)
    state = look(0, [os.getpid()])
    assert (state.gpu, state.shared) == (None, None)
    assert "no NVIDIA driver" in state.unknown
    data = compare(state, look("GPU-1", [])).to_dict()
    assert (data["device_shared"], data["neighbours_busy"], data["clocks_held_by"]) == (None, None, None)
    assert not math.isnan(state.taken_us)


@pytest.mark.gpu
def test_our_own_context_is_none_of_a_stranger() -> None:
    import torch

    torch.ones(1, device="cuda:0")
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    state = look(uuid, [os.getpid()])
    assert state.gpu is not None
    assert state.shared is not None or "another namespace" in state.unknown
    assert os.getpid() not in {one.pid for one in state.neighbours}
