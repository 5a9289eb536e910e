import pytest

from kernelgym_env import pools
from kernelgym_env.errors import UnknownNameError
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.fake import FakePool, fake_evaluation
from kernelgym_env.tasks import load_task

TASK = load_task("KernelGym/RowSum")


def ask(source):
    return fake_evaluation(Submission(TASK, source))


@pytest.mark.parametrize("status", list(Status))
def test_a_directive_decides(status):
    evaluation = ask(f"# fake: status={status} speedup=1.7 coverage=0.5\nclass ModelNew: ...")
    assert evaluation.status is status
    if status is Status.CORRECT:
        assert (evaluation.speedup, evaluation.coverage) == (1.7, 0.5)


@pytest.mark.parametrize("directive", ["stat=correct", "speedup=-1", "speedup=fast", "status=good", "speedup=nan"])
def test_a_directive_that_is_not_understood_is_said(directive):
    evaluation = ask(f"# fake: {directive}\nclass ModelNew: ...")
    assert evaluation.status is Status.FORMAT
    assert evaluation.feedback


def test_the_same_source_gives_the_same_evaluation_and_sources_differ():
    sources = [f"class ModelNew: x = {number}" for number in range(40)]
    assert [ask(source).to_dict() == ask(source).to_dict() for source in sources]
    assert len({ask(source).status for source in sources}) > 2


def test_no_wall_time_is_in_it():
    assert set(ask("class ModelNew: ...").stages_s.values()) == {0.0}


def test_keys_are_shared_and_reopened():
    pool = pools.get("fake")
    assert pools.get("fake") is pool
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(Submission(TASK, ""))
    assert pools.get("fake") is not pool
    pools.close_all()


def test_unknown_keys_are_named():
    with pytest.raises(UnknownNameError, match="'loca'.*'local'"):
        pools.get("loca")


def test_both_pools_follow_the_protocol():
    from kernelgym_env.pools.local import LocalPool

    for pool in (FakePool(), LocalPool()):
        assert isinstance(pool, pools.Evaluator)
        assert set(pool.stats()) == {"waiting", "paused", "judges", "judge_restarts", "ended"}
        pool.close()
        pool.close()
