"""Templates: the package's, or the user's in their place.

- `render` -- fill one.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.prompts.reply import fenced

__all__ = ["render"]


def render(name: str, templates: str | Path | None = None, **values: Any) -> str:
    """Fill a template.

    Args:
        name: the file's name without ``.jinja``.
        templates: a folder whose files take the place of the package's of the same name; None for the package's alone.
        values: what the template may use.

    Raises:
        InvalidOptionError: if there is no such folder, or a template of the user's is wrong.
    """
    import jinja2

    try:
        environment = _environment(None if templates is None else str(templates))
        text: str = environment.get_template(f"{name}.jinja").render(values)
    except jinja2.TemplateError as error:
        if templates is None:
            raise
        raise InvalidOptionError(f"A template in {str(templates)!r} fails: {type(error).__name__}: {error}") from error
    return text.strip("\n")


@functools.lru_cache(maxsize=8)
def _environment(folder: str | None) -> Any:
    import jinja2

    loaders: list[Any] = [jinja2.PackageLoader("kernelgym_env.prompts", "templates")]
    if folder is not None:
        if not Path(folder).is_dir():
            raise InvalidOptionError(f"There is no folder {folder!r} with templates.")
        loaders.insert(0, jinja2.FileSystemLoader(folder))
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["fenced"] = fenced
    return made
