"""Other sizes of a task: small ones for a CPU or a small card, and unseen ones to check a kernel at.

Sizes are the constants of a reference's module. Those that `get_inputs` alone reads are free: another value gives
inputs of another shape and leaves the model as it is. The others, which the model or its constructor reads, are its
structure.

- `free_constants` -- names of the free ones.
- `small` -- the task with fewer elements.
- `unseen_shapes` -- other values of the free constants.
- `with_unseen_shapes` -- the task with these as its `shapes`.
"""

from __future__ import annotations

import ast
import dataclasses
import random
from collections.abc import Iterable, Iterator

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.tasks import source as text
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.source import Number
from kernelgym_env.tasks.trial import Trial, try_task

__all__ = ["free_constants", "small", "unseen_shapes", "with_unseen_shapes"]

_SMALLEST_FREE = 4
_SMALLEST_STRUCTURE = 16
_DRAWS = 24


def free_constants(task: Task) -> list[str]:
    """Return the integer constants that shape the inputs and nothing else, in the order of the text.

    Names that share a value (``height = width = 32``) are one constant, under the first of them.

    >>> from kernelgym_env.tasks import load_task
    >>> free_constants(load_task("KernelGym/RowSoftmax"))
    ['ROWS', 'COLUMNS']
    """
    tree = ast.parse(task.source)
    reads = _module_reads(tree)
    of_inputs = _reached(_names_in(tree, {"get_inputs"}), reads)
    others = {
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and node.name != "get_inputs"
        and node.name not in of_inputs
    }
    taken = _reached(_names_in(tree, others), reads)
    constants = task.constants()
    free = [
        name
        for name, value in constants.items()
        if isinstance(value, int) and value > 1 and name in of_inputs and name not in taken
    ]
    return [name for name in free if not _moved(task, name) & taken and name == _first(free, _moved(task, name))]


def small(task: Task, *, elements: int = 1 << 20) -> Task:
    """Return the task with its constants halved until it holds few elements, with ``:small`` behind its id.

    Free constants go first, to 4 at the least; then those of its structure, to 16 at the least and only as far as the
    reference still works. The reference is run for that, in this process; see `kernelgym_env.tasks.trial`.

    Args:
        task: a task whose reference works here.
        elements: how many elements inputs, parameters and outputs may have together.

    Raises:
        InvalidOptionError: if the reference does not work, or cannot be made that small.
    """
    if isinstance(elements, bool) or not isinstance(elements, int) or elements < 1:
        raise InvalidOptionError(f"elements must be an integer of at least 1, got {elements!r}.")
    task = dataclasses.replace(task, id=f"{task.id}:small", tags=(*task.tags, "small"), sizes={}, shapes=())
    trial = _working(task)
    free = free_constants(task)
    structure = [
        name
        for name, value in task.constants().items()
        if isinstance(value, int) and name not in _all_moved(task, free)
    ]
    for names, least in ((free, _SMALLEST_FREE), (structure, _SMALLEST_STRUCTURE)):
        task, trial = _shrunk(task, trial, names, least, elements)
    if trial.elements > elements:
        raise InvalidOptionError(
            f"{task.id.removesuffix(':small')} cannot be made smaller than {trial.elements} elements by its constants; "
            f"asked for were {elements}."
        )
    if not trial.works:
        _working(task)
    return task


def unseen_shapes(task: Task, count: int = 3, *, seed: int = 0) -> tuple[dict[str, Number], ...]:
    """Return other values of a task's free constants, at which a kernel that is right for any shape is right too.

    No value is greater than the task's own, so memory suffices where it did. The first choice makes sizes odd, the
    others are drawn between half of each and itself. Each is one at which the reference works, with inputs of other
    shapes than the task's and one another's.

    Args:
        task: a task, sized for its device (`Task.for_device`).
        count: how many; fewer come where the constants allow no more, none for a task without free constants.
        seed: which; the same on every machine.

    Raises:
        InvalidOptionError: if the reference does not work, or the count is no integer of at least 1.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidOptionError(f"count must be an integer of at least 1, got {count!r}.")
    shaped = {_working(task).shapes}
    own = task.constants()
    names = free_constants(task)
    draw = random.Random(f"{seed}:{task.id}")
    found: list[dict[str, Number]] = []
    for attempt in range(_DRAWS if names else 0):
        # a name that may not take just any value must not spoil the others, so each draw changes some of them
        chosen = [name for name in names if attempt == 0 or draw.random() < 0.7]
        values = {name: _odd(int(own[name])) if attempt == 0 else _between(int(own[name]), draw) for name in chosen}
        if not values:
            continue
        trial = try_task(task.with_sizes(values))
        if trial.works and trial.shapes not in shaped:
            shaped.add(trial.shapes)
            found.append(dict(values))
        if len(found) == count:
            break
    return tuple(found)


def with_unseen_shapes(task: Task, count: int = 3, *, seed: int = 0) -> Task:
    """Return the task with `unseen_shapes` as its `Task.shapes`.

    Raises:
        InvalidOptionError: as `unseen_shapes`.
    """
    return dataclasses.replace(task, shapes=unseen_shapes(task, count, seed=seed))


def _working(task: Task) -> Trial:
    trial = try_task(task)
    if trial.state == "fails":
        raise InvalidOptionError(f"The reference of {task.id} does not work here: {trial.error}")
    return trial


def _shrunk(task: Task, trial: Trial, names: list[str], least: int, elements: int) -> tuple[Task, Trial]:
    """Halve the named constants as far as needed: at first without calling the model, which can take seconds."""
    guess, _ = _halved(task, trial, names, least, elements, call=False)
    guessed = try_task(guess)
    if guessed.state != "fails":
        task, trial = guess, guessed
    return _halved(task, trial, names, least, elements, call=True)


def _halved(task: Task, trial: Trial, names: list[str], least: int, elements: int, *, call: bool) -> tuple[Task, Trial]:
    """Halve the greatest of the named constants again and again, leaving out those at which the reference fails."""
    left = set(names)
    while trial.elements > elements:
        values = task.constants()
        able = [name for name in names if name in left and int(values[name]) // 2 >= least]
        if not able:
            break
        name = max(able, key=lambda name: values[name])
        smaller = task.with_sizes({name: int(values[name]) // 2})
        tried = try_task(smaller, call=call)
        if tried.state == "fails" or tried.elements >= trial.elements:
            left.discard(name)
        else:
            task, trial = smaller, tried
    return task, trial


def _odd(value: int) -> int:
    return max(1, value - 1 - value % 2)


def _between(value: int, draw: random.Random) -> int:
    return draw.randint(max(1, value // 2), value)


def _moved(task: Task, name: str) -> set[str]:
    """The names that share a value with this one, itself among them."""
    before = task.constants()
    after = text.constants(text.rewrite(task.source, {name: int(before[name]) + 1}))
    return {other for other, value in after.items() if value != before[other]}


def _all_moved(task: Task, names: Iterable[str]) -> set[str]:
    return {other for name in names for other in _moved(task, name)}


def _first(names: list[str], among: set[str]) -> str:
    return next(name for name in names if name in among)


def _module_reads(tree: ast.Module) -> dict[str, set[str]]:
    """For each name of the module, the names that its definition reads."""
    reads: dict[str, set[str]] = {}
    for node in tree.body:
        for name in _bound(node):
            reads.setdefault(name, set()).update(_loaded(node))
    return reads


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    else:
        yield from (
            inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
        )


def _loaded(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)}


def _names_in(tree: ast.Module, definitions: set[str]) -> set[str]:
    """The names that some functions and classes of the module read."""
    nodes = [
        node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in definitions
    ]
    return {name for node in nodes for name in _loaded(node)}


def _reached(names: set[str], reads: dict[str, set[str]]) -> set[str]:
    """These names and all that they are computed from."""
    reached: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += reads.get(name, ())
    return reached
