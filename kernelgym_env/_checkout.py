"""Makes a checkout importable: ``kernelgym_env.tasks`` and ``kernelgym_env.wrappers`` lie beside the package there.

An installed distribution has both as folders of the package, because ``setup.cfg`` maps them there. In a checkout
they are the folders ``tasks`` and ``wrappers`` at its root, where Python does not look for them: an import with the
working directory at the root, or with the root on ``PYTHONPATH``, would fail, or would take the folders of another
checkout that is installed in editable mode.

- `adopt` -- lets the import system find the two folders of this checkout.

They are loaded when they are first imported, not before: a checkout imports in the same order and at the same cost as
an installed distribution, so neither hides an import cycle from the other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

__all__ = ["adopt"]

_NAMES = ("tasks", "wrappers")


class _CheckoutFinder(MetaPathFinder):
    """Finds each adopted package in its own file, and nothing else."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, submodule_search_locations=[os.path.dirname(file)])


def adopt() -> None:
    """Let ``kernelgym_env.<name>`` be imported from ``../<name>`` where this package has no folder of that name.

    The test is whether the folder exists, not whether the import system finds one: the editable installation of
    another checkout would answer for it, and modules of two checkouts would mix. Calling it again changes nothing.
    """
    inside = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.dirname(inside)
    files = {
        f"{__package__}.{name}": os.path.join(beside, name, "__init__.py")
        for name in _NAMES
        if not os.path.isfile(os.path.join(inside, name, "__init__.py"))
        and os.path.isfile(os.path.join(beside, name, "__init__.py"))
    }
    # First in line, since the finder of an editable installation knows these names too; and one only, after a reload.
    others = [finder for finder in sys.meta_path if type(finder).__module__ != __name__]
    sys.meta_path[:] = [_CheckoutFinder(files), *others] if files else others
