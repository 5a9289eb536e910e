"""Sizes that a task declares and a submission is not shown."""

from __future__ import annotations

import dataclasses

import pytest
from programs import QUICK

from kernelgym_env.evaluation.result import Status
from kernelgym_env.tasks import Task

TASK = Task(
    "Test/Scaled",
    """
import torch
from torch import nn

ROWS = 32
COLUMNS = 64


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return torch.relu(x * self.scale)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
""",
    shapes=({"ROWS": 31, "COLUMNS": 48}, {"ROWS": 7, "COLUMNS": 96}),
)
ANY = TASK.source.replace("class Model(", "class ModelNew(")
WRONG_ELSEWHERE = ANY.replace(
    "return torch.relu(x * self.scale)",
    """y = torch.relu(x * self.scale)
        return y if x.shape[0] % 32 == 0 else y + 1""",
)
FAILS_ELSEWHERE = ANY.replace(
    "return torch.relu",
    """assert x.shape == (32, 64), x.shape
        return torch.relu""",
)
DIES_ELSEWHERE = ANY.replace(
    "return torch.relu",
    """if x.shape[0] != 32:
            import os
            os._exit(3)
        return torch.relu""",
)


def test_a_submission_for_all_sizes_is_right(judge):
    evaluation = judge(ANY, TASK)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.speedup > 0


@pytest.mark.parametrize(
    ("source", "status"),
    [(WRONG_ELSEWHERE, Status.WRONG), (FAILS_ELSEWHERE, Status.RUNTIME_ERROR), (DIES_ELSEWHERE, Status.CRASH)],
    ids=["wrong", "fails", "dies"],
)
def test_one_for_the_shown_size_is_not_and_learns_no_other(judge, source, status):
    evaluation = judge(source, TASK)
    assert evaluation.status is status, evaluation.feedback
    assert "another size" in evaluation.feedback
    assert [finding.id for finding in evaluation.findings] == ["B11"]
    assert not any(size in evaluation.feedback for size in ("31", "48", "96", "(7"))


def test_a_protocol_may_look_at_none(judge):
    assert judge(WRONG_ELSEWHERE, TASK, QUICK.replace(shape_trials=0)).status is Status.CORRECT
    shown = dataclasses.replace(TASK, shapes=())
    assert judge(WRONG_ELSEWHERE, shown).status is Status.CORRECT
