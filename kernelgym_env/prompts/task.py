"""The first message of a task, from a template.

- `STYLES` -- kinds of it.
- `task_prompt` -- the message.
- `device_facts` -- what it may say about a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelgym_env import devices
from kernelgym_env.errors import unknown_name
from kernelgym_env.evaluation.protocols import Protocol, get_protocol
from kernelgym_env.evaluation.submission import check_backend, check_library_ops
from kernelgym_env.limits import MAX_PROMPT_CHARS, clip
from kernelgym_env.prompts.examples import examples
from kernelgym_env.prompts.templating import render
from kernelgym_env.tasks.model import DEVICE_KINDS, Task

__all__ = ["STYLES", "device_facts", "task_prompt"]

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


STYLES = ("zero_shot", "one_shot", "few_shot", "refine", "kevin", "dr_kernel")
"""Kinds of prompts. ``one_shot`` and ``few_shot`` show worked examples; ``refine`` says that there are several turns
and asks for a summary; ``kevin`` and ``dr_kernel`` say in this package's words what those systems tell their models."""

_EXAMPLES = {"one_shot": 1, "few_shot": 2, "kevin": 1}
_OWN_LANGUAGE = {("kevin", "cuda"): "cuda", ("dr_kernel", "cuda"): "triton", ("dr_kernel", "cpu"): "triton"}


def task_prompt(
    task: Task,
    *,
    kind: str,
    backend: str = "auto",
    protocol: str | Protocol = "strict",
    library_ops: str | None = None,
    style: str = "zero_shot",
    facts: Sequence[str] = (),
    templates: str | Path | None = None,
) -> str:
    """What the first message of a task says: the contract, how it is judged, the reference.

    Args:
        task: the task, already sized for the device.
        kind: ``cpu`` or ``cuda``.
        backend: the kernel language to use; ``auto`` for any, in ``kevin`` CUDA and in ``dr_kernel`` Triton.
        protocol: name of the protocol, or a `Protocol`.
        library_ops: policy that overrides the protocol's.
        style: one of `STYLES`. Examples of ``auto`` are in Triton, on a CPU in C++.
        facts: what to say about the device, each a few words; see `device_facts`.
        templates: a folder with templates in place of the package's.

    Raises:
        UnknownNameError: for an unknown kind, backend, protocol, policy or style.
        InvalidOptionError: if there is no such folder, or a template in it fails.
    """
    if style not in STYLES:
        raise unknown_name("prompt style", style, STYLES)
    if kind not in DEVICE_KINDS:
        raise unknown_name("device kind", kind, DEVICE_KINDS)
    check_backend(backend)
    check_library_ops(library_ops)
    constants = get_protocol(protocol)
    if backend == "auto":
        backend = _OWN_LANGUAGE.get((style, kind), backend)
    shown = backend if backend != "auto" else "triton" if kind == "cuda" else "cpp"
    text = render(
        style,
        templates,
        task=task,
        kind=kind,
        languages=_CPU_AUTO if backend == "auto" and kind == "cpu" else _LANGUAGES[backend],
        protocol=constants,
        library_ops=library_ops or constants.library_ops,
        facts=list(facts),
        examples=examples(shown, _EXAMPLES.get(style, 0)),
    )
    return clip(text, MAX_PROMPT_CHARS)


def device_facts(device: str) -> list[str]:
    """What a prompt says about a device: a GPU's name, and its data sheet's rates where known; nothing of a CPU.

    Args:
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:<index>``; one that is not there has no facts.
    """
    from kernelgym_env.evaluation.roofline import machine

    names = devices.cuda_device_names()
    index = int(device.partition(":")[2] or 0)
    if device == "cpu" or index >= len(names):
        return []
    sheet = machine(names[index])
    rates = [f"{value / 1e12:.4g} TFLOP/s in {name}" for name, value in sheet.flops_per_s.items() if "int" not in name]
    return [sheet.name, *([f"{sheet.bytes_per_s / 1e9:.4g} GB/s of memory bandwidth", *rates] if sheet.known else [])]
