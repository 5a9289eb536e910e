import json

import pytest

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.tasks import load_task

TASK = load_task("KernelGym/RowSum")


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("backend", "tritn", "triton"),
        ("protocol", "stict", "strict"),
        ("device", "gpu", "cuda"),
        ("library_ops", "alow", "allow"),
    ],
)
def test_unknown_names_say_what_is_allowed(option, value, hint):
    with pytest.raises(UnknownNameError, match=f"{value}.*{hint}"):
        Submission(TASK, "x", **{option: value})


@pytest.mark.parametrize("name", ["/etc/passwd", "../up.py", "a/../../b", "", "a//b", "a\\b"])
def test_file_names_stay_inside(name):
    with pytest.raises(InvalidOptionError, match="relative path"):
        Submission(TASK, "x", files={name: ""})


def test_source_must_be_text():
    with pytest.raises(InvalidOptionError, match="bytes"):
        Submission(TASK, b"x")


def test_hash_covers_source_and_files():
    hashes = {
        Submission(TASK, "x").source_hash,
        Submission(TASK, "y").source_hash,
        Submission(TASK, "x", files={"a.cu": "1"}).source_hash,
        Submission(TASK, "x", files={"a.cu": "2"}).source_hash,
        Submission(TASK, "x", files={"b.cu": "1"}).source_hash,
        Submission(TASK, "\ud800").source_hash,
    }
    assert len(hashes) == 6


def test_round_trip():
    submission = Submission(TASK, "x", files={"a.cu": "1"}, device="cuda:1", library_ops="gemm", previous_best=2.0)
    assert Submission.from_dict(json.loads(json.dumps(submission.to_dict()))) == submission
