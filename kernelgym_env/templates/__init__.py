"""Kernels with gaps: real source for a task, rendered from a few choices.

- `Template`, `get_template`, `templates` -- the library: C++, Triton and CuPy kernels for chains of elementwise
  operations, reductions and normalisations, matrix products and the scan of generalised advantages.
- `templates_for`, `template_for` -- what fits a task.
- `Pattern`, `recognise`, `why_not` -- what a reference computes, read off its text.

`kernelgym_env.wrappers.ScheduleAction` makes an environment of a template; the policy ``template`` plays them;
`kernelgym_env.tuning` measures them.
"""

from __future__ import annotations

from kernelgym_env.templates.library import (
    BACKENDS,
    Choices,
    Template,
    get_template,
    template_for,
    templates,
    templates_for,
)
from kernelgym_env.templates.patterns import FAMILIES, Pattern, recognise, why_not

__all__ = [
    "BACKENDS",
    "FAMILIES",
    "Choices",
    "Pattern",
    "Template",
    "get_template",
    "recognise",
    "template_for",
    "templates",
    "templates_for",
    "why_not",
]
