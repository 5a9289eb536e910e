"""A policy by the name that a user gives it.

- `make_policy` -- from such a name.
- `SamplerPolicy` -- writes sources that differ and do nothing, for the pools that run nothing.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.policies.base import Action, Policy
from kernelgym_env.policies.scripted import ScriptedPolicy, first_episode
from kernelgym_env.policies.template import TemplatePolicy

__all__ = ["NAMES", "SamplerPolicy", "make_policy"]

NAMES = ("first_episode", "sampler", "template")
"""The policies that have a name of their own."""


class SamplerPolicy:
    """A source for each seed. The pools ``fake`` and ``simulated`` draw from it what becomes of it.

    It follows from the observation alone, with the ``seed`` that `kernelgym_env.runs` adds, so that a run which goes on
    after a break plays what it would have played.

    >>> policy = SamplerPolicy()
    >>> policy.act([{"turn": 0, "seed": 7}])[0].text
    'class ModelNew:\\n    sample = (7, 0)\\n'
    """

    def act(self, observations: Sequence[Mapping[str, Any]]) -> list[Action]:
        """A source for each observation's seed and turn."""
        return [
            Action(f"class ModelNew:\n    sample = ({int(seen.get('seed', 0))}, {int(seen['turn'])})\n")
            for seen in observations
        ]

    def observe(self, evaluations: Sequence[Evaluation]) -> None:
        """It does not learn."""


def make_policy(name: str) -> Policy:
    """A policy by name.

    Args:
        name: one of `NAMES`; ``template:BACKEND[:STRATEGY]``, see `TemplatePolicy`; ``script:FILE[,FILE…]``,
            files with the replies of the turns; or ``MODULE:NAME``, a policy of your own, or a class or function that
            makes one without arguments. The module is also looked for in the working directory.

    Raises:
        UnknownNameError: for another name.
        InvalidOptionError: for a file that cannot be read, or what cannot be imported or is no policy.
    """
    if name == "first_episode":
        return first_episode()
    if name == "sampler":
        return SamplerPolicy()
    if name == "template":
        return TemplatePolicy()
    kind, colon, rest = name.partition(":")
    if not colon or not kind or not rest:
        raise unknown_name(
            "policy", name, (*NAMES, "template:BACKEND[:STRATEGY]", "script:FILE[,FILE…]", "MODULE:NAME")
        )
    if kind == "template":
        return TemplatePolicy(*rest.split(":", 1))
    if kind == "script":
        return ScriptedPolicy([_text(Path(part)) for part in rest.split(",")])
    return _imported(name, kind, rest)


def _text(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOptionError(f"The reply {str(path)!r} cannot be read: {error}.") from error


def _imported(name: str, module: str, attribute: str) -> Policy:
    if (here := os.getcwd()) not in sys.path and "" not in sys.path:
        sys.path.append(here)  # a program that pip installed does not look there
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidOptionError(f"The policy {name!r} cannot be imported: {error}.") from error
    made = isinstance(found, type) or (callable(found) and not hasattr(found, "act"))
    policy = found() if made else found
    if not isinstance(policy, Policy):
        raise InvalidOptionError(f"{name} is no policy: it gave a {type(policy).__name__} without act and observe.")
    return policy
