"""A policy without a model: templates with a schedule that changes from turn to turn.

- `TemplatePolicy` -- plays the templates that fit a task.
- `reference_of` -- the reference that a prompt shows.
- `read_choices` -- the choices that a source was rendered from.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.policies.base import Action
from kernelgym_env.tasks.model import Task
from kernelgym_env.templates.library import BACKENDS, Template, templates, templates_for
from kernelgym_env.templates.patterns import recognise, why_not

__all__ = ["STRATEGIES", "TemplatePolicy", "read_choices", "reference_of"]

STRATEGIES = ("improve", "random")
"""``improve``: a good guess first, then a change of one or two knobs of the best so far; ``random``: each alike."""

_FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NOTE = re.compile(r"^# schedule: (\{.*\})$", re.MULTILINE)
_SPEEDUP = re.compile(r"Speedup over eager ([\d.]+)x")
_NOTHING = "# No template fits this task{reason}.\n"

# what is tried first, by template: a middle of the range that is rarely bad
_GUESSES: dict[str, dict[str, Any]] = {
    "cpp/elementwise": {"math": "exact", "chunk": 4096, "unroll": 4, "threads": 0},
    "cpp/rows": {"math": "exact", "chunk": 1024, "unroll": 4, "threads": 0},
    "cpp/columns": {"math": "exact", "block": 256, "unroll": 4, "threads": 0},
    "cpp/matmul": {"math": "exact", "tile_m": 32, "tile_n": 64, "tile_k": 64, "rows": 4},
    "cpp/gae": {"math": "exact", "lanes": 4, "chunk": 16, "threads": 0},
    "triton/elementwise": {"block": 1024, "warps": 4, "items": 2, "evict": 0},
    "triton/rows": {"variant": "online", "block": 4096, "warps": 8, "stages": 2},
    "triton/columns": {"block": 128, "tile": 4, "warps": 4, "stages": 3},
    "triton/matmul": {
        "precision": "tf32x3",
        "block_m": 128,
        "block_n": 128,
        "block_k": 32,
        "warps": 8,
        "stages": 3,
        "group": 8,
        "split": 1,
    },
    "triton/gae": {"block": 128, "warps": 1, "stages": 1},
    "cupy/elementwise": {"threads": 256, "items": 4},
    "cupy/rows": {"threads": 256, "unroll": 4},
    "cupy/matmul": {"tile": 32, "rows": 4},
    "cupy/gae": {"threads": 64, "unroll": 4},
}


def reference_of(observation: Mapping[str, Any]) -> Task | None:
    """The reference that the prompt of an observation shows, as a task; None if there is none.

    Args:
        observation: of `KernelEnv`.
    """
    for text in _FENCE.findall(str(observation.get("prompt", ""))):
        if "class Model(" in text:
            try:
                return Task("Shown/Reference", text)
            except InvalidOptionError:
                return None
    return None


def read_choices(source: str) -> dict[str, Any]:
    """The choices that `TemplatePolicy` noted in a source, with ``template``; empty where there are none.

    >>> read_choices('# schedule: {"template": "cpp/rows", "math": "exact"}')
    {'template': 'cpp/rows', 'math': 'exact'}
    """
    found = _NOTE.search(source)
    if found is None:
        return {}
    try:
        data = json.loads(found[1])
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


class TemplatePolicy:
    """Renders the template that fits the task of a prompt, with another schedule each turn.

    It reads the reference off the prompt, and the schedules and speedups of earlier turns off the history, so it keeps
    no state and a run that goes on after a break plays what it would have played. What it draws follows from the
    observation's ``seed`` (0 where there is none) and turn. For a task that no template fits (`why_not`) its action has
    no source, which is judged `format`.

    Args:
        backend: one of `kernelgym_env.templates.BACKENDS`, or ``auto``: C++ where the prompt is about a CPU, else
            Triton.
        strategy: one of `STRATEGIES`.

    Raises:
        UnknownNameError: for another backend or strategy.

    >>> from kernelgym_env.env import KernelEnv
    >>> observation, _ = KernelEnv("KernelGym/RowSoftmax", device="cpu", pool="fake").reset(seed=0)
    >>> read_choices(TemplatePolicy().act([observation])[0].text)["template"]
    'cpp/rows'
    """

    def __init__(self, backend: str = "auto", strategy: str = "improve") -> None:
        if backend not in ("auto", *BACKENDS):
            raise unknown_name("backend of templates", backend, ("auto", *BACKENDS))
        if strategy not in STRATEGIES:
            raise unknown_name("strategy", strategy, STRATEGIES)
        self.backend = backend
        self.strategy = strategy
        kinds = sorted({entry.kind for entry in templates(None if backend == "auto" else backend)})
        self.covers = f"tasks that a template computes ({', '.join(kinds)}; `kernelgym_env.templates` says which)"

    def why_not(self, task: Task, kind: str) -> str:
        """Why no template fits a task on a kind of device, ``""`` if one does."""
        sized, backend = task.for_device(kind), self._backend(kind)
        if templates_for(sized, backend):
            return ""
        return why_not(sized) or f"there is no template in {backend} for its kind"

    def act(self, observations: Sequence[Mapping[str, Any]]) -> list[Action]:
        """A source for each observation."""
        return [Action(self._source(observation)) for observation in observations]

    def observe(self, evaluations: Sequence[Evaluation]) -> None:
        """It reads what became of its actions off the history."""

    def _source(self, observation: Mapping[str, Any]) -> str:
        task = reference_of(observation)
        kind = "cpu" if "this CPU" in str(observation["prompt"]).partition("\n")[0] else "cuda"
        found = [] if task is None else templates_for(task, self._backend(kind))
        if task is None or not found:
            reason = why_not(task) if task is not None else "the prompt shows no reference"
            return _NOTHING.format(reason=f": {reason}" if reason else "")
        template = found[0]
        choices = self._choose(template, task, observation)
        note = json.dumps({"template": template.name, **choices})
        return f"# schedule: {note}\n{template.render(task, choices)}"

    def _backend(self, kind: str) -> str:
        return self.backend if self.backend != "auto" else "cpp" if kind == "cpu" else "triton"

    def _choose(self, template: Template, task: Task, observation: Mapping[str, Any]) -> dict[str, Any]:
        rng = random.Random(f"{observation.get('seed', 0)}/{int(observation['turn'])}/{template.name}")
        tried = _tried(template, observation)
        seen = [choices for choices, _ in tried]
        best = max(tried, key=lambda entry: entry[1], default=None)
        for _ in range(64):
            if self.strategy == "random":
                choices = template.draw(rng)
            elif not tried:
                # other episodes of the task begin elsewhere: `seed` differs
                choices = (
                    _first(template, task) if "seed" not in observation or rng.random() < 0.5 else template.draw(rng)
                )
            elif best is None or best[1] <= 0 or rng.random() < 0.2:
                choices = template.draw(rng)
            else:
                choices = changed(template, best[0], rng)
            if choices not in seen:
                return choices
        return template.draw(rng)


def changed(template: Template, choices: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Choices that differ in one or two knobs, mostly to a neighbouring value."""
    names = [name for name, values in template.knobs.items() if len(values) > 1]
    while True:
        new = dict(choices)
        for name in rng.sample(names, min(rng.choice((1, 1, 2)), len(names))):
            values = template.knobs[name]
            place = values.index(new[name])
            near = [other for other in (place - 1, place + 1) if 0 <= other < len(values)]
            new[name] = values[rng.choice(near)] if rng.random() < 0.7 else rng.choice(values)
        if new != dict(choices) and not template.forbids(new):
            return new


def _tried(template: Template, observation: Mapping[str, Any]) -> list[tuple[dict[str, Any], float]]:
    """The schedules of earlier turns with their speedups, 0 for a turn that was not correct."""
    found = []
    for turn in observation.get("history", ()):
        choices = read_choices(turn["action"])
        if choices.pop("template", None) != template.name:
            continue
        try:
            checked = template.check(choices)
        except ValueError:  # a template of another version
            continue
        speed = _SPEEDUP.search(turn["feedback"])
        found.append((checked, float(speed[1]) if speed else 0.0))
    return found


def _first(template: Template, task: Task) -> dict[str, Any]:
    """A good guess for the task's sizes, among the values that the template has."""
    guess = dict(_GUESSES[template.name])
    pattern = recognise(task)
    product = None if pattern is None else pattern.product
    if template.name == "triton/matmul" and product is not None:
        tiles = math.ceil(product.m / 128) * math.ceil(product.n / 128) * product.batch
        if min(product.m, product.n) < 128:
            guess.update(block_m=_at_most(product.m), block_n=_at_most(product.n))
        if tiles < 64 and product.k >= 4096:
            guess["split"] = 16
    if template.name == "triton/rows" and pattern is not None and pattern.length <= 16384:
        guess["variant"] = "whole"
    if template.name == "triton/rows" and pattern is not None and pattern.length < 2048:
        guess["warps"] = 4
    allowed = {
        name: value if value in template.knobs[name] else template.knobs[name][0] for name, value in guess.items()
    }
    return allowed


def _at_most(size: int) -> int:
    return 128 if size >= 128 else 64 if size >= 64 else 32
