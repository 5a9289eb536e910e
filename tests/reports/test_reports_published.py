"""Published figures: what holds for all of them, and a file of one's own."""

from __future__ import annotations

import itertools
import json

import pytest

from kernelgym_env.errors import InvalidOptionError, MissingDataError, UnknownNameError
from kernelgym_env.reports.published import published, published_names, read_published

NAMES = ["kevin", "kevin_blog", "cuda_agent", "cuda_l1", "dr_kernel", "dr_kernel_stts", "makora", "kernelbench"]
ROWS = [(name, row) for name in published_names() for row in published(name).rows]


def figure(system: str, model: str, figure: str, *, level: int | None = None, over: str = "eager", k: int = 1) -> float:
    key = (model, level, figure, over, k)
    (found,) = [r.value for r in published(system).rows if (r.model, r.level, r.figure, r.baseline, r.k) == key]
    return found


def test_there_are_the_systems():
    assert set(NAMES) <= set(published_names())


@pytest.mark.parametrize(
    ("found", "value"),
    [
        (figure("kevin", "Kevin, multi-turn", "correct", over="", k=16), 0.82),
        (figure("kevin", "Kevin, multi-turn", "mean_speedup", k=16), 1.10),
        (figure("kevin", "multi-turn RL, 128x1", "mean_speedup", k=128), 0.65),
        (figure("kevin_blog", "Kevin", "mean_speedup", k=16), 1.41),
        (figure("cuda_agent", "CUDA Agent", "geomean", over="compile"), 2.11),
        (figure("cuda_agent", "raw-speedup reward", "fast_1", over="compile"), 0.604),
        (figure("cuda_agent", "CUDA Agent", "fast_1", level=3, over="compile"), 0.90),
        (figure("cuda_l1", "CUDA-L1", "mean_speedup_correct"), 3.12),
        (figure("dr_kernel", "Dr. Kernel 14B", "fast_1.2", level=2), 0.256),
        (figure("dr_kernel", "Dr. Kernel 14B with STTS, last turn", "fast_1.2", level=2), 0.316),
        (figure("dr_kernel_stts", "Dr. Kernel 14B with STTS", "fast_1.2", level=2), 0.478),
        (figure("makora", "GPT-5, fine-tuned", "geomean", over="compile"), 0.81),
        (figure("kernelbench", "DeepSeek R1", "fast_1", level=2), 0.36),
    ],
)
def test_figures_that_everybody_quotes(found, value):
    assert found == value


def test_each_figure_is_there_once():
    keys = [(name, row.model, row.level, row.figure, row.baseline, row.k) for name, row in ROWS]
    assert len(keys) == len(set(keys))


def test_figures_agree_with_each_other():
    """What no set of kernels can contradict: a slip of the pen would."""
    groups: dict = {}
    for name, row in ROWS:
        groups.setdefault((name, row.model, row.level, row.k), {})[row.figure, row.baseline] = row.value
    for key, found in groups.items():
        for baseline in ("eager", "compile"):
            shares = [found.get(("correct", ""), 1.0)]
            shares += [
                found[f"fast_{p}", baseline] for p in ("1", "1.2", "1.5", "2") if (f"fast_{p}", baseline) in found
            ]
            assert shares == sorted(shares, reverse=True), (key, baseline)
    for (name, model, level, k), found in groups.items():
        if k > 1 and (one := groups.get((name, model, level, 1))):
            for entry in set(one) & set(found):
                assert one[entry] <= found[entry], (name, model, entry)


def test_all_levels_are_the_mean_of_the_levels():
    """CUDA Agent tells both; there are 100, 100 and 50 tasks."""
    found = {(r.model, r.level, r.figure, r.baseline): r.value for r in published("cuda_agent").rows}
    models = {model for model, level, *_ in found if level == 1}
    kinds = (("correct", ""), ("fast_1", "eager"), ("fast_1", "compile"))
    for model, (name, over) in itertools.product(models, kinds):
        levels = [found[model, level, name, over] for level in (1, 2, 3)]
        assert found[model, None, name, over] == pytest.approx(0.4 * levels[0] + 0.4 * levels[1] + 0.2 * levels[2])


def test_the_turns_of_kevins_shapes():
    for row in published("kevin").rows:
        shape = row.model.rpartition("x")[2]
        assert row.turns == (int(shape) if shape in ("1", "4") else 8)


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="Did you mean 'kevin'"):
        published("kevni")


# --- a file of one's own

ROW = {"model": "own", "level": 1, "figure": "fast_1", "baseline": "eager", "k": 1, "value": 0.5}
SYSTEM = {
    **dict.fromkeys(("name", "title", "source", "evidence", "protocol", "selection"), "own"),
    "tasks": 3,
    "select": "best",
    "rows": [ROW],
}


def write(tmp_path, **changes):
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"schema": 1, "systems": [{**SYSTEM, **changes}]}))
    return path


def test_a_file_of_ones_own(tmp_path):
    (system,) = read_published(write(tmp_path)).values()
    assert (system.name, system.rows[0].value, system.rows[0].turns) == ("own", 0.5, None)
    (system,) = read_published(write(tmp_path, rows=[{**ROW, "turns": 1}])).values()
    assert system.rows[0].turns == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": [{**ROW, "value": 50}]}, r"rows\[0\]: fast_1 of 'own' must be from 0 to 1, got 50"),
        ({"rows": [{**ROW, "value": None}]}, "got None"),
        ({"rows": [{**ROW, "value": True}]}, "got True"),
        ({"rows": [{**ROW, "baseline": "egaer"}]}, "Did you mean 'eager'"),
        ({"rows": [{**ROW, "k": 0}]}, "at least 1, got 0"),
        ({"rows": [{**ROW, "turns": 0}]}, "turns must be a whole number of at least 1, got 0"),
        ({"rows": [{**ROW, "turns": True}]}, "got True"),
        ({"rows": [{**ROW, "colour": 1}]}, "has unknown colour"),
        ({"rows": [{"model": "own"}]}, "lacks baseline"),
        ({"rows": []}, "at least one figure"),
        ({"rows": "none"}, "must be a list"),
        ({"title": ""}, "title must be a text"),
        ({"select": "first"}, "'last', 'best' or null"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, changes, said):
    with pytest.raises(InvalidOptionError, match=said) as caught:
        read_published(write(tmp_path, **changes))
    assert "systems[0]" in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2, "systems": []}', '{"systems": 3}'])
def test_files_of_another_form(tmp_path, text):
    path = tmp_path / "own.json"
    path.write_text(text)
    with pytest.raises(InvalidOptionError, match="own.json"):
        read_published(path)
    with pytest.raises(MissingDataError, match="nowhere"):
        read_published(tmp_path / "nowhere.json")
