"""Every environment variable the package reads, in one place and at call time.

| variable | meaning | default |
|---|---|---|
| ``KERNELGYM_CACHE_DIR`` | where caches live | ``$XDG_CACHE_HOME/kernelgym`` or ``~/.cache/kernelgym`` |
| ``KERNELGYM_RUNTIME_DIR`` | scratch folders and device locks | ``kernelgym-<uid>`` in the temporary folder |
| ``KERNELGYM_JUDGES`` | judges on each device of the pool ``local``, see `LocalPool` | ``1`` |
| ``KERNELGYM_FAST_BUILDS`` | ``0`` has torch alone build extensions, see ``docs/builds.md`` | ``1`` |
| ``KERNELBENCH_DIR`` | a KernelBench checkout, its ``KernelBench`` folder, or a table of its tasks | none |
| ``HF_ENDPOINT`` | where the Hugging Face Hub answers, as for `huggingface_hub` | ``https://huggingface.co`` |
| ``HF_HUB_CACHE`` | where the Hub's models lie, as for `huggingface_hub` | ``hub`` in ``HF_HOME`` |
| ``HF_HOME`` | the Hub's folder on this machine | ``$XDG_CACHE_HOME/huggingface`` or ``~/.cache/huggingface`` |
| ``CUDA_VISIBLE_DEVICES`` | the devices that ``device="auto"`` may use | all |
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kernelgym_env.errors import InvalidOptionError

__all__ = [
    "MOST_JUDGES",
    "cache_dir",
    "fast_builds",
    "hub_cache",
    "hub_endpoint",
    "judges",
    "kernelbench_dir",
    "runtime_dir",
    "visible_devices",
]


MOST_JUDGES = 64
"""Greatest number of judges on a device."""


def cache_dir() -> Path:
    """The folder for caches; not created here."""
    if value := os.environ.get("KERNELGYM_CACHE_DIR"):
        return Path(value).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kernelgym"


def fast_builds() -> bool:
    """Whether the judge compiles the extensions of submissions."""
    return os.environ.get("KERNELGYM_FAST_BUILDS", "1") != "0"


def judges() -> int:
    """How many judges the pool ``local`` has on each device.

    Raises:
        InvalidOptionError: if it is no whole number from 1 to `MOST_JUDGES`.
    """
    value = os.environ.get("KERNELGYM_JUDGES") or "1"
    if not value.isdecimal() or not 1 <= int(value) <= MOST_JUDGES:
        raise InvalidOptionError(f"KERNELGYM_JUDGES must be a whole number from 1 to {MOST_JUDGES}, got {value!r}.")
    return int(value)


def runtime_dir() -> Path:
    """The folder for scratch space and device locks, created for this user alone.

    Raises:
        PermissionError: if the folder exists and belongs to somebody else.
    """
    value = os.environ.get("KERNELGYM_RUNTIME_DIR")
    path = Path(value).expanduser() if value else Path(tempfile.gettempdir()) / f"kernelgym-{os.getuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user; set KERNELGYM_RUNTIME_DIR to a folder of your own.")
    return path


def kernelbench_dir() -> Path | None:
    """Where KernelBench's tasks lie, or None."""
    value = os.environ.get("KERNELBENCH_DIR")
    return Path(value).expanduser() if value else None


def hub_endpoint() -> str:
    """The address of the Hugging Face Hub, without a slash at its end."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def hub_cache() -> Path:
    """The folder in which `huggingface_hub` keeps models; it may not exist."""
    if value := os.environ.get("HF_HUB_CACHE"):
        return Path(value).expanduser()
    if value := os.environ.get("HF_HOME"):
        return Path(value).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "huggingface" / "hub"


def visible_devices() -> list[str] | None:
    """The entries of ``CUDA_VISIBLE_DEVICES``, or None where it is not set.

    As in CUDA, an empty value and an entry of ``-1`` mean that nothing from there on is visible.
    """
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    entries: list[str] = []
    for entry in value.split(","):
        entry = entry.strip()
        if entry in ("", "-1"):
            break
        entries.append(entry)
    return entries
