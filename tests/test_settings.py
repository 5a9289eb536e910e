from __future__ import annotations

import os
import re
import stat
import tempfile
from pathlib import Path

import pytest

from kernelgym_env import settings
from kernelgym_env.errors import InvalidOptionError

VARIABLES = (
    "KERNELGYM_CACHE_DIR",
    "KERNELGYM_RUNTIME_DIR",
    "KERNELGYM_JUDGES",
    "KERNELBENCH_DIR",
    "CUDA_VISIBLE_DEVICES",
    "XDG_CACHE_HOME",
)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_cache_dir_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert settings.cache_dir() == tmp_path / ".cache" / "kernelgym"
    assert not settings.cache_dir().exists()


def test_cache_dir_follows_xdg_then_its_own_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert settings.cache_dir() == tmp_path / "xdg" / "kernelgym"
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", str(tmp_path / "own"))
    assert settings.cache_dir() == tmp_path / "own"


def test_cache_dir_expands_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", "~/cache")
    assert settings.cache_dir() == tmp_path / "cache"


def test_empty_values_count_as_unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KERNELGYM_CACHE_DIR", "XDG_CACHE_HOME", "KERNELBENCH_DIR"):
        monkeypatch.setenv(name, "")
    assert settings.cache_dir() == tmp_path / ".cache" / "kernelgym"
    assert settings.kernelbench_dir() is None


def test_runtime_dir_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = settings.runtime_dir()
    assert path == tmp_path / f"kernelgym-{os.getuid()}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert settings.runtime_dir() == path


def test_runtime_dir_from_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNELGYM_RUNTIME_DIR", str(tmp_path / "a" / "b"))
    assert settings.runtime_dir() == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()


def test_runtime_dir_of_somebody_else_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNELGYM_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="KERNELGYM_RUNTIME_DIR"):
        settings.runtime_dir()


def test_kernelbench_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert settings.kernelbench_dir() is None
    monkeypatch.setenv("KERNELBENCH_DIR", str(tmp_path))
    assert settings.kernelbench_dir() == tmp_path


def test_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.judges() == 1
    monkeypatch.setenv("KERNELGYM_JUDGES", "8")
    assert settings.judges() == 8
    for value in ("many", "0", "-1", "65", "2.0"):
        monkeypatch.setenv("KERNELGYM_JUDGES", value)
        with pytest.raises(InvalidOptionError, match=f"KERNELGYM_JUDGES must be a whole number.*'{value}'"):
            settings.judges()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        ("-1", []),
        ("0", ["0"]),
        ("1,0", ["1", "0"]),
        (" 0 , 2 ", ["0", "2"]),
        ("0,-1,1", ["0"]),
        ("0,,1", ["0"]),
        ("GPU-8932f937,MIG-1", ["GPU-8932f937", "MIG-1"]),
    ],
)
def test_visible_devices(monkeypatch: pytest.MonkeyPatch, value: str, expected: list[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert settings.visible_devices() == expected


def test_visible_devices_unset_means_all() -> None:
    assert settings.visible_devices() is None


def test_the_docstring_lists_every_variable_that_is_read() -> None:
    source = Path(settings.__file__).read_text(encoding="utf-8")
    read = set(re.findall(r'os\.environ(?:\.get\(|\[)"(\w+)"', source)) - {"XDG_CACHE_HOME"}
    listed = set(re.findall(r"^\| ``(\w+)``", settings.__doc__ or "", flags=re.MULTILINE))
    assert read == listed
