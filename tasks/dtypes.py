"""The same task in another floating-point type.

- `DTYPES` -- their names.
- `with_dtype` -- the task in one of them.
"""

from __future__ import annotations

import dataclasses
import io
import tokenize

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.trial import try_task

__all__ = ["DTYPES", "with_dtype"]

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""Names of types, with torch's."""

_RENAMED = {"Model": "ModelAsGiven", "get_inputs": "get_inputs_as_given"}

_TAIL = '''

class Model(ModelAsGiven):
    """The model above with its parameters and buffers in {dtype}."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.to(torch.{dtype})
'''

_INPUTS = """

def get_inputs():
    inputs = get_inputs_as_given()
    return [x.to(torch.{dtype}) if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs]
"""

_NESTED_INPUTS = """

def inputs_as_{dtype}(x):
    if isinstance(x, dict):
        return {{key: inputs_as_{dtype}(value) for key, value in x.items()}}
    if isinstance(x, (list, tuple)):
        values = [inputs_as_{dtype}(value) for value in x]
        return type(x)(*values) if hasattr(x, "_fields") else type(x)(values)
    return x.to(torch.{dtype}) if torch.is_tensor(x) and x.is_floating_point() else x


def get_inputs():
    return [inputs_as_{dtype}(x) for x in get_inputs_as_given()]
"""


def with_dtype(task: Task, dtype: str) -> Task:
    """Return the task with floating-point inputs, parameters and buffers in another type, and its name behind the id.

    Integers and booleans stay. The reference keeps its text; what converts is put behind it, so the prompt shows both.
    The reference is run once, in this process; see `kernelgym_env.tasks.trial`. The meta device does not compare types
    in every operator: a reference that makes tensors of a fixed type by itself may pass here and fail when judged.

    Args:
        task: a task whose reference works here.
        dtype: ``fp32``, ``fp16`` or ``bf16``.

    Raises:
        UnknownNameError: for another name.
        InvalidOptionError: if the reference does not work in that type, or is such a variant already.

    >>> from kernelgym_env.tasks import load_task
    >>> with_dtype(load_task("KernelGym/RowSoftmax"), "bf16").id
    'KernelGym/RowSoftmax:bf16'
    """
    if dtype not in DTYPES:
        raise unknown_name("floating-point type", dtype, DTYPES)
    tokens = list(tokenize.generate_tokens(io.StringIO(task.source).readline))
    taken = {token.string for token in tokens if token.type == tokenize.NAME} & {
        *_RENAMED.values(),
        f"inputs_as_{DTYPES[dtype]}",
    }
    if taken:
        raise InvalidOptionError(
            f"{task.id} has the name {min(taken)} already: it is a variant of another task; start there."
        )
    if "from __future__" in task.source:
        raise InvalidOptionError(f"{task.id} begins with an import from __future__, which must stay first.")
    head = "import torch\n" + _renamed(task.source, tokens).rstrip("\n") + "\n"

    def with_tail(tail: str) -> Task:
        source = head + tail.format(dtype=DTYPES[dtype])
        return dataclasses.replace(task, id=f"{task.id}:{dtype}", source=source, tags=(*task.tags, dtype))

    made = with_tail(_TAIL + _INPUTS)
    trial = try_task(made)
    if () in trial.shapes:  # an argument that is no tensor, and may hold some
        made = with_tail(_TAIL + _NESTED_INPUTS)
        trial = try_task(made)
    if trial.state == "fails":
        raise InvalidOptionError(f"The reference of {task.id} does not work in {dtype}: {trial.error}")
    return made


def _renamed(source: str, tokens: list[tokenize.TokenInfo]) -> str:
    """The source with the module's names `_RENAMED`; attributes of these names stay."""
    lines = source.splitlines(keepends=True)
    before = ""
    spots: list[tuple[int, int, str]] = []
    for token in tokens:
        if token.type == tokenize.NAME and token.string in _RENAMED and before != ".":
            spots.append((token.start[0] - 1, token.start[1], token.string))
        before = token.string
    for row, column, name in reversed(spots):
        lines[row] = lines[row][:column] + _RENAMED[name] + lines[row][column + len(name) :]
    return "".join(lines)
