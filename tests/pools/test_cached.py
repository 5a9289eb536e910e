"""`CachedPool`: what is answered from it, what is not, and what a hit says."""

import math
from concurrent.futures import CancelledError, Future
from dataclasses import replace

import gymnasium as gym
import pytest

from kernelgym_env import pools, score
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.cache import EvaluationCache
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.cached import Cacheable, CachedPool, uncached
from kernelgym_env.pools.fake import FakePool
from kernelgym_env.pools.local import LocalPool
from kernelgym_env.pools.simulated import SimulatedConfig, SimulatedPool
from kernelgym_env.scoring import rescore
from kernelgym_env.tasks import load_task
from kernelgym_env.wrappers import RewardJump

TASK = load_task("KernelGym/RowSum").for_device("cpu")
SOURCE = "class ModelNew: ..."


class TablePool(FakePool):
    """Answers with given evaluations in turn, on conditions that can be changed; comments do not matter to it."""

    def __init__(self, *evaluations):
        super().__init__()
        self.evaluations = list(evaluations)
        self.asked = []
        self.machine = {"hardware": "a", "versions": {"torch": "1"}}

    def conditions(self, submission):
        return self.machine

    def submit(self, submission, priority=0):
        self.asked.append(submission)
        future = Future()
        answer = self.evaluations.pop(0) if len(self.evaluations) > 1 else self.evaluations[0]
        future.set_result(replace(answer, source_hash=submission.source_hash, protocol="strict"))
        return future


def answer(status=Status.CORRECT, **fields):
    return Evaluation(TASK.id, status, stages_s={"build": 3.0, "total": 9.0}, **fields)


def submission(source=SOURCE, **fields):
    return Submission(fields.pop("task", TASK), source, **fields)


def counts(pool):
    return {name: number for name, number in pool.stats()["cache"].items() if number}


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_hit_is_the_earlier_evaluation_and_says_so(where, tmp_path):
    inner = TablePool(answer(speedup=2.0, provenance={"versions": {"torch": "1"}}), answer(speedup=1.0))
    pool = CachedPool(inner, EvaluationCache(tmp_path) if where == "disk" else None)
    first = pool.submit(submission()).result()
    again = pool.submit(submission("# a comment\n" + SOURCE)).result()
    assert first.stages_s["total"] == 9.0
    assert "cache" not in first.provenance
    assert set(again.stages_s.values()) == {0.0}
    assert again.overhead_s == 0.0
    assert again.provenance == {
        "versions": {"torch": "1"},
        "cache": {"hit": True, "source_hash": submission().source_hash},
    }
    assert again.source_hash == submission("# a comment\n" + SOURCE).source_hash
    assert (again.status, again.speedup) == (Status.CORRECT, 2.0)
    assert len(inner.asked) == 1
    assert counts(pool) == {"hits": 1, "misses": 1, "stored": 1}


def test_a_folder_serves_the_next_pool(tmp_path):
    CachedPool(TablePool(answer(speedup=2.0)), EvaluationCache(tmp_path)).submit(submission()).result()
    later = TablePool(answer(speedup=1.0))
    assert CachedPool(later, EvaluationCache(tmp_path)).submit(submission()).result().speedup == 2.0
    assert later.asked == []


@pytest.mark.parametrize(
    "other",
    [
        submission("class ModelNew: x = 1"),
        submission(task=load_task("KernelGym/ColumnMax").for_device("cpu")),
        submission(task=replace(TASK, input_laws=("permuted",))),
        submission(protocol="kernelbench"),
        submission(protocol=get_protocol("strict").replace(trials=2)),
        submission(library_ops="allow"),
        submission(device="cuda"),
        submission(backend="cuda"),
        submission("# __global__\n" + SOURCE),  # which is taken for CUDA
        submission(files={"a.cu": "1"}),
    ],
)
def test_another_submission_is_judged(other):
    pool = CachedPool(TablePool(answer(speedup=2.0)))
    pool.submit(submission()).result()
    pool.submit(other).result()
    assert counts(pool) == {"misses": 2, "stored": 2}


@pytest.mark.parametrize("machine", [{"hardware": "b", "versions": {"torch": "1"}}, {"hardware": "a", "versions": {}}])
def test_on_another_machine_it_is_judged(machine):
    inner = TablePool(answer(speedup=2.0))
    pool = CachedPool(inner)
    pool.submit(submission()).result()
    inner.machine = machine
    pool.submit(submission()).result()
    assert len(inner.asked) == 2


@pytest.mark.parametrize("status", [Status.FAULT, Status.TIMEOUT, Status.TASK_INVALID, Status.CRASH, Status.FORMAT])
def test_what_is_not_kept_is_judged_each_time(status):
    pool = CachedPool(TablePool(answer(status)))
    assert [pool.submit(submission()).result().status for _ in range(2)] == [status] * 2
    assert counts(pool) == {"misses": 2}


@pytest.mark.parametrize("status", [Status.COMPILE_ERROR, Status.RUNTIME_ERROR, Status.INTEGRITY])
def test_feedback_that_speaks_of_lines_is_for_the_same_text(status):
    inner = TablePool(answer(status, feedback="line 1"), answer(status, feedback="line 2"))
    pool = CachedPool(inner)
    other = submission("\n" + SOURCE)
    assert [pool.submit(submission()).result().feedback for _ in range(2)] == ["line 1"] * 2
    assert [pool.submit(other).result().feedback for _ in range(2)] == ["line 2"] * 2
    assert len(inner.asked) == 2


def test_exact_compares_texts():
    pool = CachedPool(TablePool(answer(speedup=2.0)), exact=True)
    for source in (SOURCE, SOURCE, "# a comment\n" + SOURCE):
        pool.submit(submission(source)).result()
    assert counts(pool) == {"hits": 1, "misses": 2, "stored": 2}


def test_a_jump_over_the_best_before_is_measured_and_not_remembered():
    inner = TablePool(answer(speedup=2.5), answer(speedup=2.4, provenance={"retest": {"why": "a jump"}}))
    pool = CachedPool(inner)
    assert pool.submit(submission()).result().speedup == 2.5
    assert pool.submit(submission(previous_best=2.0)).result().speedup == 2.5  # no jump
    assert pool.submit(submission(previous_best=1.1)).result().speedup == 2.4
    assert pool.submit(submission(previous_best=1.1)).result().speedup == 2.4  # measured twice, so it may be kept
    assert len(inner.asked) == 2


def test_a_second_look_is_never_from_the_cache():
    inner = TablePool(answer(speedup=4.0), answer(speedup=3.9))
    pools.register("remembers", lambda: CachedPool(inner))
    assert score(TASK, SOURCE, pool="remembers").speedup == 4.0
    assert score(TASK, SOURCE, pool="remembers").speedup == 4.0
    assert rescore(TASK, SOURCE, pool="remembers").speedup == 3.9
    assert len(inner.asked) == 2
    env = RewardJump(gym.make("KernelGym/Kernel-v0", task=TASK, pool="remembers"))
    env.reset()
    info = env.step(SOURCE)[4]
    assert (info["speedup"], info["retest"]) == (4.0, "agreed")
    assert info["evaluation"]["provenance"]["cache"]["hit"]
    assert len(inner.asked) == 3


def test_validate_judges_on_a_pool_of_its_own(repo_root):
    source = (repo_root / "kernelgym_env/cli/validate.py").read_text(encoding="utf-8")
    assert "LocalPool(" in source
    assert "pools.get" not in source


def test_directives_of_the_fake_and_simulated_pools_are_no_comments():
    pool = CachedPool(FakePool())
    speeds = [pool.submit(submission(f"# fake: speedup={n}\n{SOURCE}")).result().speedup for n in (1, 2, 1)]
    assert speeds == [1.0, 2.0, 1.0]
    assert counts(pool) == {"hits": 1, "misses": 2, "stored": 2}
    one, two = (
        SimulatedPool(SimulatedConfig(), seed=1).conditions(submission()),
        SimulatedPool(SimulatedConfig(lazy_speedup=2.0), seed=1).conditions(submission()),
    )
    assert one != two


def test_the_local_pool_tells_its_conditions(monkeypatch):
    pool = LocalPool(threads=1)
    mine = pool.conditions(submission(device="cpu"))
    assert mine["software"]["torch"]
    assert mine["cpu"]
    assert mine["device"] == "cpu"
    assert LocalPool(threads=2).conditions(submission(device="cpu")) != mine
    assert isinstance(CachedPool(pool).evaluator, Cacheable)


def test_a_cache_that_cannot_be_written_costs_no_evaluation(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    pool = CachedPool(TablePool(answer(speedup=2.0)), EvaluationCache(tmp_path / "file" / "kept"))
    assert pool.submit(submission()).result().speedup == 2.0
    assert counts(pool)["failed"] == 1
    assert "could not be kept" in caplog.text


def test_cancelling_reaches_the_pool_behind_and_back():
    inner = SimulatedPool()
    pool = CachedPool(inner)
    pool.pause()
    given_up, closed = pool.submit(submission()), pool.submit(submission("class ModelNew: x = 1"))
    assert given_up.cancel()
    pool.resume()
    assert given_up.cancelled()
    assert closed.result(timeout=10)
    pool.pause()
    waiting = pool.submit(submission("class ModelNew: x = 2"))
    pool.close()
    with pytest.raises(CancelledError):
        waiting.result(timeout=10)
    assert pool.closed and inner.closed
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(submission())


def test_an_error_of_the_pool_behind_arrives():
    class Broken(TablePool):
        def submit(self, submission, priority=0):
            future = Future()
            future.set_exception(OSError("a bug"))
            return future

    with pytest.raises(OSError, match="a bug"):
        CachedPool(Broken()).submit(submission()).result(timeout=10)


def test_the_secret_is_that_of_the_pool_behind():
    inner = FakePool()
    pool = CachedPool(inner)
    pool.secret = b"mine"
    assert inner.secret == pool.secret == b"mine"
    assert uncached(pool) is inner


@pytest.mark.parametrize("evaluator", [None, "local", CachedPool(FakePool())])
def test_pools_that_cannot_be_cached(evaluator):
    with pytest.raises(InvalidOptionError, match=r"conditions\(submission\)"):
        CachedPool(evaluator)


@pytest.mark.slow
def test_a_real_submission_is_judged_once(tmp_path, local_pool):
    wrong = (
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, *x):\n        return torch.zeros(1)\n"
    )
    pool = CachedPool(local_pool, EvaluationCache(tmp_path))
    first, again = (
        pool.submit(Submission(TASK, source, device="cpu")).result() for source in (wrong, wrong + "# end\n")
    )
    assert first.status is again.status is Status.WRONG
    assert again.provenance["cache"]["hit"]
    assert again.provenance["versions"] == first.provenance["versions"]
    assert math.isnan(again.speedup)
