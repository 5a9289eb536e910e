"""Baselines on disk."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.evaluation.baselines import DRIFT, Baseline, BaselineCache
from kernelgym_env.evaluation.result import Timing

KEY = {"task": "abc", "device": {"name": "x"}}
ONE = {"compile": Baseline(2.0, 100.0, Timing(50.0, 49.0, 51.0, 10, "cuda_event")), "graph": Baseline(problem="no")}


def test_what_was_kept_is_found_under_its_key_only(tmp_path):
    cache = BaselineCache(tmp_path)
    assert cache.load(KEY) == {}
    cache.save(KEY, ONE)
    found = BaselineCache(tmp_path).load(KEY)
    assert found["compile"] == ONE["compile"]
    assert found["graph"].problem == "no"
    assert math.isnan(found["graph"].over_eager)
    assert cache.load({**KEY, "task": "abd"}) == {}


def test_a_file_that_cannot_be_read_is_measured_anew(tmp_path):
    cache = BaselineCache(tmp_path)
    cache.save(KEY, ONE)
    (file,) = tmp_path.rglob("*.json")
    for content in ("", "[]", "{", '{"baselines": {"compile": {"other": 1}}}', '{"baselines": []}'):
        file.write_text(content)
        assert cache.load(KEY) == {}
    cache.save(KEY, ONE)
    assert set(cache.load(KEY)) == set(ONE)


@given(st.floats(1e-3, 1e6), st.floats(0.5, 2.0))
def test_drift_is_relative(eager_us, factor):
    assert Baseline(1.0, eager_us).drifted(eager_us * factor) == (abs(eager_us * factor / eager_us - 1) > DRIFT)


def test_a_speedup_over_a_way_that_does_not_work_is_none():
    assert math.isnan(Baseline(problem="no").speedup(3.0))
    assert Baseline(1.5, 10.0).speedup(3.0) == 2.0
