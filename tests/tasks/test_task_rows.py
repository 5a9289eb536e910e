"""Tasks as rows of a data set."""

from __future__ import annotations

import json

import gymnasium as gym
import pytest

import kernelgym_env  # noqa: F401
from kernelgym_env.errors import UnknownNameError
from kernelgym_env.prompts import messages
from kernelgym_env.tasks import load_task, load_tasks
from kernelgym_env.tasks.rows import to_dataset_rows


def test_a_row_for_each_task():
    tasks = load_tasks("core")
    rows = to_dataset_rows(tasks)
    assert [row["task_id"] for row in rows] == [task.id for task in tasks]
    assert json.loads(json.dumps(rows)) == rows
    assert len({tuple(row) for row in rows}) == 1
    for row, task in zip(rows, tasks, strict=True):
        assert row["reference"] == task.for_device("cuda").source and row["reference"] in row["prompt"]
        assert row["task_hash"] == task.for_device("cuda").hash
        assert (row["level"], row["env_id"], row["tags"]) == (task.level, task.env_id, list(task.tags))


def test_the_prompt_is_what_the_environment_says():
    with gym.make("KernelGym/RowSoftmax-v0", device="cpu", backend="cpp", protocol="kevin") as env:
        observation, _ = env.reset(seed=0)
    options = {"kind": "cpu", "backend": "cpp", "protocol": "kevin"}
    (row,) = to_dataset_rows([load_task("KernelGym/RowSoftmax")], **options)
    assert row["prompt"] == observation["prompt"]
    (row,) = to_dataset_rows([load_task("KernelGym/RowSoftmax")], **options, form="chat")
    assert row["prompt"] == messages(observation)


@pytest.mark.parametrize("options", [{"kind": "tpu"}, {"backend": "x"}, {"protocol": "x"}, {"form": "x"}])
def test_unknown_names(options):
    with pytest.raises(UnknownNameError):
        to_dataset_rows(load_tasks("KernelGym/RowSum"), **options)


def test_unknown_policy():
    with pytest.raises(UnknownNameError):
        to_dataset_rows(load_tasks("KernelGym/RowSum"), library_ops="x")
