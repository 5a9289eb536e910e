"""Files that are replaced as a whole: which links are followed, and what is never replaced."""

from __future__ import annotations

import os

import pytest

from kernelgym_env.keeping import named, write_whole


def test_a_path_that_a_user_names_stands_for_what_its_link_points_to(tmp_path):
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    link.symlink_to(real)
    write_whole(named(link), "text")
    assert link.is_symlink()
    assert real.read_text() == "text"
    assert [path.name for path in real.parent.iterdir()] == ["real"]


@pytest.mark.parametrize("what", ["a pipe", "a folder", "a link to a device"])
def test_nothing_takes_the_place_of_what_is_no_file(tmp_path, what):
    path = tmp_path / "path"
    {"a pipe": os.mkfifo, "a folder": os.mkdir, "a link to a device": lambda path: path.symlink_to("/dev/full")}[what](
        path
    )
    with pytest.raises(OSError, match="no regular file"):
        named(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_in_a_folder_of_ours_is_replaced_not_followed(tmp_path):
    other, link = tmp_path / "other", tmp_path / "link"
    other.write_text("somebody's")
    link.symlink_to(other)
    write_whole(link, "ours")
    assert other.read_text() == "somebody's"
    assert not link.is_symlink()
