"""The list of what may be read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import kernelgym_env
from kernelgym_env.evaluation.sandbox.readable import private_places, punch, survey

PACKAGE = Path(kernelgym_env.__file__).resolve().parent


@pytest.fixture
def tree(tmp_path):
    """Folders a/b/c and a/d with a file in each."""
    root = Path(os.path.realpath(tmp_path))
    for name in ("a/b/c", "a/d"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_text("x")
    (root / "a" / "link").symlink_to(root / "a" / "b")
    return root


def test_without_a_hole_a_folder_is_whole(tree):
    assert punch(str(tree), ["/elsewhere", str(tree) + "-not"]) == ([str(tree)], [])


def test_a_hole_leaves_its_neighbours(tree):
    whole, listed = punch(str(tree), [str(tree / "a" / "b" / "c")])
    assert whole == [str(tree / "a" / "d")]
    assert listed == [str(tree), str(tree / "a"), str(tree / "a" / "b")]


def test_a_folder_that_is_a_hole_gives_nothing(tree):
    assert punch(str(tree), [str(tree)]) == ([], [])


def test_the_interpreter_can_be_read_and_this_package_cannot():
    readable = survey(private_places(), os.environ)
    real = [os.path.realpath(root) for root in readable.roots]

    def allowed(path):
        path = os.path.realpath(path)
        inside = any(path == root or path.startswith(root + "/") for root in real)
        return inside and not any(path == hole or path.startswith(hole + "/") for hole in readable.holes)

    for path in (os.__file__, sys.executable, sys.prefix, "/usr/bin/env", "/sys/devices"):
        assert allowed(path), path
    for path in (
        PACKAGE,
        PACKAGE.parent / "tasks",
        PACKAGE.parent / "README.md",
        __file__,
        "/etc/shadow",
        "/root/.ssh",
    ):
        assert not allowed(path), path
    assert all(os.path.isabs(path) for path in (*readable.roots, *readable.holes))


def test_an_installed_package_is_a_hole(tree, monkeypatch):
    site = tree / "lib" / "site-packages"
    for name in ("kernelgym_env/tasks", "kernelgym_env-1.0.dist-info", "torch"):
        (site / name).mkdir(parents=True)
    private = private_places(site / "kernelgym_env")
    assert str(site / "kernelgym_env") in private
    assert str(site / "kernelgym_env-1.0.dist-info") in private
    assert str(site) not in private
    monkeypatch.setattr(sys, "prefix", str(tree))
    readable = survey(private, {})
    assert set(readable.holes) >= {str(site / "kernelgym_env"), str(site / "kernelgym_env-1.0.dist-info")}
    whole, listed = punch(str(tree), readable.holes)
    assert str(site / "torch") in whole
    assert str(site) in listed


def test_a_folder_in_a_private_one_is_opened_only_if_it_is_a_home_or_packages_are_installed_there(tree, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tree / "a")
    site = tree / "a" / "b" / "site-packages"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(tree / "a" / "d"), str(tree / "a" / "b" / "c"), str(site)])
    readable = survey([str(tree / "a"), str(tree / "a" / "b")], {})
    assert {str(tree / "a" / "d"), str(site)} <= set(readable.roots)
    assert str(tree / "a" / "b" / "c") not in readable.roots


def test_folders_that_hold_private_ones_are_not_opened_by_a_search_path(tree, monkeypatch):
    private = [str(tree / "a" / "b")]
    monkeypatch.setattr(sys, "path", [str(tree), str(tree / "a" / "d")])
    readable = survey(private, {"LD_LIBRARY_PATH": str(tree / "a"), "PATH": str(tree / "a" / "b")})
    assert str(tree / "a" / "d") in readable.roots
    assert not {str(tree), str(tree / "a"), str(tree / "a" / "b")} & set(readable.roots)


def test_programs_in_a_home_are_not_opened(tree, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tree / "a")
    readable = survey([], {"PATH": f"{tree / 'a' / 'd'}:{tree}"})
    assert str(tree / "a" / "d") not in readable.roots
