"""The first message of a task, from a template."""

from __future__ import annotations

import functools
from typing import Any

from kernelgym_env.evaluation.protocols import Protocol, get_protocol
from kernelgym_env.limits import MAX_PROMPT_CHARS, clip
from kernelgym_env.tasks.model import Task

__all__ = ["task_prompt"]

_LANGUAGES = {
    "auto": "Triton, CUDA through torch.utils.cpp_extension.load_inline, or CuPy (RawKernel, RawModule)",
    "triton": "Triton",
    "cuda": "CUDA through torch.utils.cpp_extension.load_inline",
    "cupy": "CuPy (RawKernel, RawModule)",
    "cpp": "C++ through torch.utils.cpp_extension.load_inline, or a compiler and ctypes",
}
_CPU_AUTO = (
    "C++ through torch.utils.cpp_extension.load_inline, or a compiler and ctypes; Triton is checked but not timed"
)


@functools.lru_cache(maxsize=1)
def _templates() -> Any:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("kernelgym_env.prompts", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )


def task_prompt(
    task: Task, *, kind: str, backend: str = "auto", protocol: str | Protocol = "strict", library_ops: str | None = None
) -> str:
    """What the first message of a task says: the contract, how it is judged, the reference.

    Args:
        task: the task, already sized for the device.
        kind: ``cpu`` or ``cuda``.
        backend: the kernel language to use, ``auto`` for any.
        protocol: name of the protocol, or a `Protocol`.
        library_ops: policy that overrides the protocol's.
    """
    constants = get_protocol(protocol)
    languages = _CPU_AUTO if backend == "auto" and kind == "cpu" else _LANGUAGES[backend]
    text = (
        _templates()
        .get_template("task.jinja")
        .render(
            task=task,
            kind=kind,
            languages=languages,
            protocol=constants,
            library_ops=library_ops or constants.library_ops,
        )
    )
    return clip(text, MAX_PROMPT_CHARS)
