"""A job's folder between two processes of one source."""

from __future__ import annotations

import os

import pytest

from kernelgym_env.evaluation.scratch import CACHES, HOME, TMP, keep_caches, remove_tree, write_text


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    for name in (HOME, TMP):
        (folder / name).mkdir(parents=True)
    return folder


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_only_what_was_compiled_stays(job):
    for name in (*CACHES, "kernels", ".cache"):
        (job / HOME / name).mkdir()
        (job / HOME / name / "file").write_text(name)
    (job / TMP / "left").write_text("x")
    (job / "submission.py").write_text("x")
    (job / "folder" / "inner").mkdir(parents=True)
    keep_caches(job)
    wanted = [HOME, TMP, *(f"{HOME}/{name}" for name in CACHES), *(f"{HOME}/{name}/file" for name in CACHES)]
    assert names(job) == sorted(wanted)


def test_links_go_and_what_they_point_to_stays(job, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("x")
    (job / HOME / "triton").symlink_to(outside)
    (job / "link").symlink_to(outside / "mine")
    (job / TMP).rmdir()
    (job / TMP).symlink_to(outside)
    keep_caches(job)
    assert names(job) == [HOME, TMP]
    assert not (job / TMP).is_symlink()
    assert names(outside) == ["mine"]


def test_a_home_that_is_a_link_or_a_file_is_made_anew(job, tmp_path):
    outside = tmp_path / "outside"
    (outside / "triton").mkdir(parents=True)
    (job / HOME).rmdir()
    (job / HOME).symlink_to(outside)
    keep_caches(job)
    assert (job / HOME).is_dir()
    assert not (job / HOME).is_symlink()
    assert names(outside) == ["triton"]
    (job / HOME).rmdir()
    (job / HOME).write_text("x")
    keep_caches(job)
    assert (job / HOME).is_dir()


def test_rights_that_were_taken_away_do_not_matter(job):
    (job / HOME / "secret" / "inner").mkdir(parents=True)
    os.chmod(job / HOME / "secret", 0)
    os.chmod(job / HOME, 0)
    os.chmod(job, 0)
    keep_caches(job)
    assert names(job) == [HOME, TMP]


def test_a_tree_that_is_gone_is_no_error(tmp_path):
    remove_tree(tmp_path / "none")


def test_a_file_takes_the_place_of_a_link(job, tmp_path):
    (tmp_path / "target").write_text("untouched")
    (job / "submission.py").symlink_to(tmp_path / "target")
    assert write_text(job, "submission.py", "new").read_text() == "new"
    assert (tmp_path / "target").read_text() == "untouched"
