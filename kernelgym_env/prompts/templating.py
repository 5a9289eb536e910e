"""Templates: the package's, or the user's in their place.

- `render` -- fill one.
"""

from __future__ import annotations

import functools
import traceback
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, KernelGymError, unknown_name
from kernelgym_env.prompts.reply import fenced

__all__ = ["render"]

_END = ".jinja"


def render(name: str, templates: str | Path | None = None, **values: Any) -> str:
    """Fill a template.

    Args:
        name: the file's name without ``.jinja``.
        templates: a folder whose files take the place of the package's of the same name; None for the package's alone.
            Other templates may lie there for these to include.
        values: what the template may use.

    Raises:
        InvalidOptionError: if there is no such folder, a template of the user's is wrong, or one is never used, as
            happens to a misspelt name.
    """
    if templates is None:
        packaged: str = _environment(None).get_template(f"{name}.jinja").render(values)
        return packaged.strip("\n")
    folder = str(templates)
    try:
        _check_folder(folder, _listing(folder))
        text: str = _environment(folder).get_template(f"{name}.jinja").render(values)
    except KernelGymError:
        raise
    except Exception as error:  # a template may run into any
        raise InvalidOptionError(
            f"A template in {folder!r} fails{_place(error)}: {type(error).__name__}: {error}"
        ) from error
    return text.strip("\n")


def _place(error: Exception) -> str:
    """The file and line of the innermost template that an error went through."""
    import jinja2

    if isinstance(error, jinja2.TemplateSyntaxError):
        return f" ({error.name}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(_END)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _listing(folder: str) -> tuple[tuple[str, int, int], ...]:
    """The templates of a folder, with what shows that they have changed.

    Raises:
        InvalidOptionError: if the folder or one of them cannot be read.
    """
    try:
        if not Path(folder).is_dir():
            raise InvalidOptionError(f"There is no folder {folder!r} with templates.")
        found = []
        for path in sorted(Path(folder).iterdir()):
            if path.suffix.startswith(_END) or path.suffix == ".j2":
                if not path.is_file():
                    raise InvalidOptionError(
                        f"{str(path)!r} is no file: a link that leads nowhere, or no template. Mend or remove it."
                    )
                state = path.stat()
                found.append((path.name, state.st_mtime_ns, state.st_size))
    except (OSError, ValueError) as error:
        if isinstance(error, KernelGymError):
            raise
        raise InvalidOptionError(f"The folder {folder!r} with templates cannot be read: {error}.") from error
    return tuple(found)


@functools.lru_cache(maxsize=8)
def _check_folder(folder: str, listing: tuple[tuple[str, int, int], ...]) -> None:
    """Refuse templates of the user's that no template of the package's name uses."""
    from jinja2 import meta

    made = _environment(folder)
    own = {name for name, _, _ in listing}
    known = set(_environment(None).list_templates())
    if not own & known:
        first = min(own, default="")
        if first:
            raise unknown_name(f"template in {folder!r}:", first, known)
        raise InvalidOptionError(f"The folder {folder!r} has no template. It may have {', '.join(sorted(known))}.")
    reached: set[str] = set()
    waiting = sorted(own & known)
    while waiting:
        name = waiting.pop()
        reached.add(name)
        for used in meta.find_referenced_templates(made.parse(_read(folder, name), name=name)):
            if used is None:
                return  # a name that is worked out when it is filled
            if used in own and used not in reached:
                waiting.append(used)
    for name in sorted(own - reached):
        raise unknown_name(f"template in {folder!r}, which no other there includes:", name, known)


def _read(folder: str, name: str) -> str:
    try:
        return Path(folder, name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidOptionError(
            f"The template {str(Path(folder, name))!r} is not UTF-8 text: {error.reason} at byte {error.start}."
        ) from error


@functools.lru_cache(maxsize=8)
def _environment(folder: str | None) -> Any:
    import jinja2

    loaders: list[Any] = [jinja2.PackageLoader("kernelgym_env.prompts", "templates")]
    if folder is not None:
        loaders.insert(0, jinja2.FileSystemLoader(folder))
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["fenced"] = fenced
    return made
