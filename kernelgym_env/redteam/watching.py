"""What a submission must not leave behind: marker files, processes, a secret that it carried out.

- `Markers` -- files named ``kg_marker_*`` that appear while a case runs.
- `Canary` -- secrets planted where a judge's candidate must not see them, and the search for them.
- `Processes` -- those of a judge that outlive an evaluation.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import site
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.spares import kept

__all__ = ["Canary", "Markers", "Processes"]

_PATTERN = "kg_marker_*"
_CANARY_HOME = Path("/tmp/kg_canary_home")
_CANARY_NAMES = ("KG_CANARY_TOKEN", "KG_CANARY_API_KEY")
_LARGEST_MARKER = 1 << 20
_SHALLOW = 2

# Cases that carry something out write this word before it. A seed or a value of an input that follows is a leak.
_CARRIED = re.compile(r"KGLEAK.{0,500}?(?:seed\W{0,3}\d{4,}|-?\d+\.\d{3,})", re.DOTALL)


def _places() -> list[Path]:
    """Folders in which cases leave markers: temporary ones, the default caches of compilers, start-up folders."""
    home = Path.home()
    sites = {sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages()}
    caches = (home / ".triton" / "cache", home / ".cache" / "torch_extensions", home / ".cupy" / "kernel_cache")
    return list(
        dict.fromkeys(
            Path(str(place))
            for place in ("/tmp", "/var/tmp", "/dev/shm", tempfile.gettempdir(), home, *caches, *sorted(sites))
        )
    )


class Markers:
    """Marker files that are new or changed since this object was made."""

    def __init__(self) -> None:
        self._before = self._look()

    @staticmethod
    def _look() -> dict[Path, int]:
        found = {}
        for place in _places():
            for path in place.glob(_PATTERN):
                with contextlib.suppress(OSError):
                    found[path] = path.lstat().st_mtime_ns
        return found

    def new(self) -> list[Path]:
        """Those that appeared or changed."""
        return [path for path, when in self._look().items() if self._before.get(path) != when]

    def clear(self) -> list[tuple[str, str]]:
        """Remove what is new; returns path and text of each."""
        found = []
        for path in self.new():
            text = ""
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink():
                    with path.open("rb") as file:
                        text = file.read(_LARGEST_MARKER).decode("utf-8", "replace")
            found.append((str(path), text))
            with contextlib.suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        return found


class Canary:
    """Secrets of the judge: in its environment, and in a home folder while `planted` is entered."""

    def __init__(self) -> None:
        self.values = {name: secrets.token_hex(16) for name in _CANARY_NAMES}
        self._before: dict[str, str | None] = {}

    def set(self) -> None:
        """Put them into this process's environment, which a judge inherits."""
        self._before = {name: os.environ.get(name) for name in self.values}
        os.environ.update(self.values)

    def unset(self) -> None:
        """Restore the environment."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Within the block, a home folder with secrets lies in the temporary folder; one that is there is spared."""
        mine = not _CANARY_HOME.exists()
        if mine:
            (_CANARY_HOME / ".ssh").mkdir(mode=0o700, parents=True)
            token = self.values[_CANARY_NAMES[0]]
            (_CANARY_HOME / ".netrc").write_text(f"machine localhost password {token}\n", encoding="utf-8")
            (_CANARY_HOME / ".ssh" / "id_canary").write_text(f"{token}\n", encoding="utf-8")
        try:
            yield
        finally:
            if mine:
                shutil.rmtree(_CANARY_HOME, ignore_errors=True)

    def search(self, text: str) -> list[str]:
        """What of a judge's secrets stands in a text: a planted value, a seed, a value of a hidden input."""
        found = [f"the planted {name}" for name, value in self.values.items() if value in text]
        if not found and _CARRIED.search(text):
            found.append("a seed or values of hidden inputs")
        return found


class Processes:
    """What runs on this machine when this object is made; later, which of a judge's processes are left over."""

    def __init__(self) -> None:
        self._before = _births()

    def left(self, judges: Iterable[int], seconds: float) -> list[int]:
        """Processes of candidates that are still alive.

        Below a judge itself stand only its fork servers, and below these what a judge keeps between evaluations. A
        process elsewhere counts if it is new, and works in the folder of one of these fork servers or has its
        environment.

        Args:
            judges: process ids of living judges, children of this process.
            seconds: how long what is left may take to go.
        """
        end = time.monotonic() + seconds
        judges = set(judges)
        while True:
            servers = {pid for judge in judges for pid in processes.children(judge)}
            alive = {pid for judge in judges for pid in processes.descendants(judge)} - servers
            folders = [folder for folder in map(_cwd, servers) if len(Path(folder).parts) > _SHALLOW]
            spares = {pid for folder in folders for pid in kept(Path(folder))}
            spares |= set(processes.descendants(*spares))
            new = {pid for pid, birth in _births().items() if self._before.get(pid) != birth}
            alive |= {pid for pid in new - judges - servers if any(_works_in(pid, folder) for folder in folders)}
            alive -= spares
            if not alive or time.monotonic() > end:
                return sorted(alive)
            time.sleep(0.05)


def _births() -> dict[int, bytes]:
    """Every process that is not a zombie, with the time at which it started."""
    table = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
                if fields[0] != b"Z":
                    table[int(entry)] = fields[19]
    return table


def _works_in(pid: int, folder: str) -> bool:
    if f"{_cwd(pid)}/".startswith(f"{folder}/"):
        return True
    try:
        # a forked process shows the environment that its fork server was started with
        return f"HOME={folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _cwd(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""
