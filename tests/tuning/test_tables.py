"""Tables of measured templates: from the measurement to the pool that answers out of them."""

import json
import math

import pytest

from kernelgym_env import pools
from kernelgym_env.env import KernelEnv
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.policies import TemplatePolicy
from kernelgym_env.pools.table import TablePool
from kernelgym_env.tasks import load_task
from kernelgym_env.templates import get_template
from kernelgym_env.tuning import Entry, Table, measure_table, sized

pytestmark = pytest.mark.slow  # it renders and runs many kernels

TASK = sized(load_task("KernelGym/RowSum"), ROWS=64, COLUMNS=300)
SMALL = get_template("cpp/rows").restricted(math=["exact"], chunk=[256, 4096], unroll=[1], threads=[0, 1])
ENTRIES = (Entry({"a": 1}, "correct", 50.0, 0.01), Entry({"a": 2}, "wrong"), Entry({"a": 3}, "correct", 25.0, 0.02))
MADE = Table("Test/Made", "hash", "cpp/rows", 100.0, ENTRIES, "cpu", {"torch": "1"}, 2.0)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return measure_table(TASK, SMALL, device="cpu", budget_ms=2.0, cache=tmp_path_factory.mktemp("tables"))


def test_every_configuration_is_measured(measured):
    assert [dict(entry.choices) for entry in measured.entries] == list(SMALL.configurations())
    assert {entry.status for entry in measured.entries} == {"correct"}
    assert all(entry.latency_us > 0 and entry.spread >= 0 for entry in measured.entries)
    assert measured.eager_us > 0 and measured.best in measured.entries
    assert measured.speedup(measured.best) == max(measured.speedups())


def test_a_measured_table_is_read_and_not_measured_again(tmp_path):
    seen = []
    first = measure_table(TASK, SMALL, device="cpu", budget_ms=1.0, cache=tmp_path, progress=lambda *n: seen.append(n))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert measure_table(TASK, SMALL, device="cpu", cache=tmp_path) == first
    other = sized(load_task("KernelGym/RowSum"), ROWS=32, COLUMNS=300)
    assert measure_table(other, SMALL, device="cpu", budget_ms=1.0, cache=tmp_path).task_id != first.task_id
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_a_configuration_that_is_wrong_or_does_not_build_is_an_entry(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")  # no compiler
    unseen = sized(load_task("KernelGym/RowSum"), ROWS=16, COLUMNS=301)
    template = get_template("cpp/rows").restricted(math=["fast"], chunk=[1024], unroll=[8], threads=[1])
    table = measure_table(unseen, template, device="cpu", cache=tmp_path)
    assert [entry.status for entry in table.entries] == ["compile_error"]
    with pytest.raises(InvalidOptionError, match="No configuration"):
        _ = table.best


def test_tables_through_json(tmp_path):
    MADE.save(tmp_path / "deep" / "table.json")
    found = Table.load(tmp_path / "deep" / "table.json")
    assert found.to_dict() == MADE.to_dict()
    assert math.isnan(found.entries[1].latency_us)
    assert dict(found.entries[2].choices) == {"a": 3}


def test_tables_through_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    MADE.save(tmp_path / "table.parquet")
    assert Table.load(tmp_path / "table.parquet").to_dict() == MADE.to_dict()


def test_what_is_no_table(tmp_path):
    path = tmp_path / "table.json"
    for text in ("[1", "{}", json.dumps({**MADE.to_dict(), "schema": 99})):
        path.write_text(text)
        with pytest.raises(InvalidOptionError, match="table"):
            Table.load(path)
    with pytest.raises(InvalidOptionError, match="at least one entry"):
        Table("a/b", "", "cpp/rows", 1.0, ())
    with pytest.raises(InvalidOptionError, match="above 0"):
        Table("a/b", "", "cpp/rows", 0.0, ENTRIES)


@pytest.mark.parametrize(
    ("template", "device", "said"),
    [
        ("triton/rows", "cpu", "cannot be timed on cpu"),
        ("cpp/matmul", "cpu", "does not fit"),
    ],
)
def test_what_cannot_be_measured(template, device, said, tmp_path):
    with pytest.raises(InvalidOptionError, match=said):
        measure_table(TASK, template, device=device, cache=tmp_path)


def test_a_reference_that_fails(tmp_path):
    import dataclasses

    broken = dataclasses.replace(TASK, source=TASK.source + "\nraise RuntimeError('broken')\n")
    with pytest.raises(InvalidOptionError, match="fails on cpu"):
        measure_table(broken, SMALL, device="cpu", cache=tmp_path)


def test_the_pool_answers_with_the_table_s_times(measured):
    pool = TablePool([measured])
    for entry in measured.entries:
        source = SMALL.render(TASK, entry.choices)
        for text in (source, f'# schedule: {{"a": 1}}\n{source}'):
            found = pool.submit(Submission(TASK, text)).result()
            assert found.status is Status.CORRECT and found.device == "table"
            assert found.speedup == pytest.approx(measured.speedup(entry))
    found = pool.submit(Submission(TASK, "class ModelNew: ...")).result()
    assert found.status is Status.FORMAT and "in none" in found.feedback
    other = sized(load_task("KernelGym/RowSum"), ROWS=8, COLUMNS=8)
    assert pool.submit(Submission(other, source)).result().status is Status.FORMAT
    assert pool.stats()["tables"] == 1
    pool.close()
    assert pool.closed


def test_failures_and_noise_of_a_table():
    world = MADE.simulated(noise=0.5)
    assert world.schedules["a=2"].failures == {"wrong": 1.0}
    assert world.schedules["a=3"].latency_us == 25.0 and world.noise == 0.5
    with pytest.raises(InvalidOptionError, match="one a task"):
        TablePool([MADE, MADE])


def test_the_template_policy_plays_on_it(measured):
    pools.register("a_table", lambda: TablePool([measured], noise=0.01))
    template = get_template("cpp/rows")
    env = KernelEnv(TASK, device="cpu", pool="a_table", turns=4)
    observation, _ = env.reset(seed=0)
    statuses = []
    for _ in range(4):
        observation, *_, info = env.step(TemplatePolicy("cpp").act([observation])[0].text)
        statuses.append(info["status"])
    assert set(statuses) <= {"correct", "format"} and template.size > len(measured.entries)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(("name", "template"), [("Matmul", "triton/matmul"), ("RowSoftmax", "triton/rows")])
def test_triton_on_a_gpu(name, template, tmp_path):
    sizes = {"M": 256, "N": 256, "K": 128} if name == "Matmul" else {"ROWS": 512, "COLUMNS": 1000}
    task = sized(load_task(f"KernelGym/{name}"), **sizes)
    known = get_template(template)
    chosen = list(known.configurations())[:: max(known.size // 12, 1)]
    table = measure_table(task, known, device="cuda", configurations=chosen, workers=4, cache=tmp_path)
    assert sum(entry.status == "correct" for entry in table.entries) >= len(chosen) // 2
    assert not any(entry.status == "wrong" for entry in table.entries)
