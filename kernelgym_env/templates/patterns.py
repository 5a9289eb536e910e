"""What a reference computes, as far as a template can compute it.

- `Pattern` -- a reference as one of `FAMILIES`: formulas, axes and sizes.
- `Reduction` -- one pass over the reduced elements.
- `recognise` -- the pattern of a task, or `None`.
- `why_not` -- the reason where there is none.

The text is read and nothing is run. A pattern is only given where each part of the reference is understood: its inputs
are float32, each operation is known, and the shapes fit.
"""

from __future__ import annotations

import ast
import functools
import math
from dataclasses import dataclass

from kernelgym_env.tasks import load_task
from kernelgym_env.tasks.model import Task
from kernelgym_env.templates.expressions import Node, call, walk
from kernelgym_env.templates.forward import PRODUCT, Forward, Product
from kernelgym_env.templates.reading import Reference, Unread

__all__ = ["FAMILIES", "Pattern", "Reduction", "recognise", "why_not"]

FAMILIES = ("elementwise", "rows", "reduction", "matmul", "gae")
"""What there are templates for: a chain of operations per element; reductions along an axis whose results go back into
each element (softmax, normalisations); reductions alone; matrix products; the scan of generalised advantages."""

_GAE = "KernelRL/Gae"


@dataclass(frozen=True)
class Reduction:
    """A pass over the elements of the reduced axis.

    Attributes:
        kind: ``sum``, ``mean``, ``max`` or ``min``.
        formula: what is reduced; it may name earlier passes as ``r0``, ``r1``, ….
    """

    kind: str
    formula: Node


@dataclass(frozen=True)
class Pattern:
    """A reference that a template can be rendered for.

    Attributes:
        family: one of `FAMILIES`.
        head: text of imports, constants, and the class `ModelNew` with the reference's constructor and no `forward`.
        arguments: parameters of `forward`.
        tensors: those that are tensors and used.
        scalars: those that are numbers and used.
        weights: parameters that the formulas use, e.g. ``self.norm.weight``; each belongs to the trailing dimensions.
        formula: of each output element, in the names of tensors, scalars, weights and reductions; of ``matmul`` in the
            product's (`kernelgym_env.templates.forward.PRODUCT`).
        passes: of ``rows`` and ``reduction``, in order.
        shape: of the first tensor.
        start: first dimension of the reduced axis.
        count: how many dimensions it has.
        keepdim: whether a reduction keeps them, with size 1.
        product: of ``matmul``.
    """

    family: str
    head: str
    arguments: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    formula: Node | None = None
    passes: tuple[Reduction, ...] = ()
    shape: tuple[int, ...] = ()
    start: int = 0
    count: int = 0
    keepdim: bool = False
    product: Product | None = None

    @property
    def outer(self) -> int:
        """Elements in front of the reduced axis."""
        return math.prod(self.shape[: self.start])

    @property
    def length(self) -> int:
        """Elements of the reduced axis."""
        return math.prod(self.shape[self.start : self.start + self.count])

    @property
    def inner(self) -> int:
        """Elements behind the reduced axis; 1 where the axis is contiguous."""
        return math.prod(self.shape[self.start + self.count :])

    @property
    def formulas(self) -> list[Node]:
        """What the kernel computes: of each pass, then of each element."""
        return [one.formula for one in self.passes] + ([] if self.formula is None else [self.formula])

    @property
    def is_softmax(self) -> bool:
        """Whether its passes are a maximum, then the sum of what is exponential in it: they can be made in one."""
        return (
            [one.kind for one in self.passes] == ["max", "sum"]
            and self.passes[1].formula.op == "exp"
            and self.passes[1].formula.args[0] == call("sub", self.passes[0].formula, Node("name", text="r0"))
        )


def recognise(task: Task) -> Pattern | None:
    """The pattern of a task, sized for its device; None where no template fits.

    >>> from kernelgym_env.tasks import load_task
    >>> pattern = recognise(load_task("KernelGym/RowSoftmax"))
    >>> pattern.family, pattern.outer, pattern.length, pattern.is_softmax
    ('rows', 16384, 4096, True)
    """
    found = _found(task.source)
    return found if isinstance(found, Pattern) else None


def why_not(task: Task) -> str:
    """Why a task has no pattern, ``""`` if it has one.

    >>> from kernelgym_env.tasks import load_task
    >>> why_not(load_task("KernelGym/RowCumsum"))
    "it calls 'cumsum', which no template knows"
    """
    found = _found(task.source)
    return found if isinstance(found, str) else ""


@functools.lru_cache(maxsize=1024)
def _found(source: str) -> Pattern | str:
    try:
        return _read(Reference(source), source)
    except Unread as reason:
        return str(reason)
    except RecursionError:
        return "its formulas are nested too deeply"


def _read(reference: Reference, source: str) -> Pattern:
    if _is_gae(reference):
        return _gae(reference)
    forward = Forward(reference)
    head = _head(reference)
    node, shape = forward.result.node, forward.result.shape
    names = {part.text for part in walk(node) if part.op == "name"}
    used = tuple(name for name in forward.tensors if name in names)
    scalars = tuple(name for name in forward.scalars if name in names)
    weights = tuple(sorted(name for name in names if name.startswith("self.")))
    common = {"head": head, "arguments": forward.arguments, "scalars": scalars, "weights": weights, "formula": node}
    if forward.product is not None:
        if PRODUCT not in names or used or any(part.op == "reduce" for part in walk(node)):
            raise Unread("its matrix product is combined with more than weights")
        _check_weights(forward, weights, shape[-1:])
        return Pattern("matmul", shape=shape, product=forward.product, **common)  # type: ignore[arg-type]
    if not used:
        raise Unread("its output does not depend on an input")
    full = forward.shape_of(used[0])
    if any(forward.shape_of(name) != full for name in used):
        raise Unread("its inputs have different shapes")
    reduced = [part for part in walk(node) if part.op == "reduce"]
    if not reduced:
        if shape != full:
            raise Unread("its output has another shape than its inputs")
        _check_weights(forward, weights, full)
        return Pattern("elementwise", tensors=used, shape=full, **common)  # type: ignore[arg-type]
    return _with_passes(forward, node, shape, full, used, common)


def _with_passes(
    forward: Forward, node: Node, shape: tuple[int, ...], full: tuple[int, ...], used: tuple[str, ...], common: dict
) -> Pattern:
    """Reductions along one axis, and what is made of them."""
    passes: list[Reduction] = []
    axes: set[tuple[int, ...]] = set()
    keeps: set[bool] = set()
    known: dict[Node, int] = {}

    def replaced(part: Node) -> Node:
        args = tuple(replaced(arg) for arg in part.args)
        if part.op != "reduce":
            return Node(part.op, args, part.value, part.text) if args else part
        if part not in known:
            axes.add(part.dims)
            keeps.add(part.keepdim)
            passes.append(Reduction(part.text, args[0]))
            known[part] = len(passes) - 1
        return Node("name", text=f"r{known[part]}")

    final = replaced(node)
    if len(axes) != 1 or len(keeps) != 1:
        raise Unread("it reduces along several axes")
    (dims,), (keepdim,) = axes, keeps
    if list(dims) != list(range(dims[0], dims[0] + len(dims))):
        raise Unread("it reduces along dimensions that are not beside each other")
    pattern = Pattern(
        "rows",
        **{**common, "formula": final},
        tensors=used,
        passes=tuple(passes),
        shape=full,
        start=dims[0],
        count=len(dims),
        keepdim=keepdim,
    )
    in_final = {part.text for part in walk(final) if part.op == "name"}
    if not in_final & set(used):
        if pattern.weights or len(passes) != 1:
            raise Unread("its reduction has several passes or weights")
        return Pattern(**{**vars(pattern), "family": "reduction"})
    if shape != full or not keepdim:
        raise Unread("what it reduces does not go back into each element")
    if pattern.weights and pattern.inner != 1:
        raise Unread("its weights do not lie along the reduced axis")
    _check_weights(forward, pattern.weights, full[pattern.start :], whole=True)
    return pattern


def _check_weights(forward: Forward, weights: tuple[str, ...], trailing: tuple[int, ...], whole: bool = False) -> None:
    shapes = {forward.shape_of(weight) for weight in weights}
    if len(shapes) > 1:
        raise Unread("its weights have different shapes")
    for shape in shapes:
        fits = shape == trailing if whole else bool(shape) and shape == trailing[len(trailing) - len(shape) :]
        if not fits:
            raise Unread(f"a weight of shape {shape} does not belong to the trailing dimensions")


# --- the head of a source


class _Renamed(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name("ModelNew", node.ctx), node) if node.id == "Model" else node


def _head(reference: Reference) -> str:
    """Imports, the constants that the constructor reads, and the class without its forward."""
    init = reference.method("__init__")
    extra = [node for node in reference.model.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    if any(node.name not in ("__init__", "forward") for node in extra):
        raise Unread("its model has methods of its own")
    read = {node.id for node in ast.walk(init) if isinstance(node, ast.Name)} if init is not None else set()
    kept: list[ast.stmt] = []
    assignments = [node for node in reference.tree.body if isinstance(node, ast.Assign)]
    for node in reversed(assignments):
        targets = {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        if targets & read:
            kept.insert(0, node)
            read |= {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
    defined = {name for node in reference.tree.body if isinstance(node, ast.FunctionDef) for name in [node.name]}
    if defined & read:
        raise Unread("its constructor calls functions of the module")
    imports = [node for node in reference.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    body: list[ast.stmt] = [init] if init is not None else []
    model = ast.ClassDef("ModelNew", reference.model.bases, [], body or [ast.Pass()], [])
    if not body:
        model.body = [ast.parse("def __init__(self):\n    super().__init__()").body[0]]
    parts = [ast.unparse(ast.fix_missing_locations(node)) for node in [*imports, *kept]]
    parts += ["", "", ast.unparse(ast.fix_missing_locations(_Renamed().visit(model)))]
    return "\n".join(parts)


# --- generalised advantages


@functools.lru_cache(maxsize=1)
def _gae_model() -> str:
    return ast.dump(Reference(load_task(_GAE).source).model)


def _is_gae(reference: Reference) -> bool:
    """Whether the model is that of ``KernelRL/Gae``, to the letter."""
    return ast.dump(reference.model) == _gae_model()


def _gae(reference: Reference) -> Pattern:
    inputs = _returned_shapes(reference)
    return Pattern(
        "gae",
        head=_head(reference),
        arguments=("rewards", "values", "done", "last_value"),
        shape=inputs,
        start=1,
        count=1,
    )


def _returned_shapes(reference: Reference) -> tuple[int, ...]:
    sizes = [reference.constants.get(name) for name in ("ENVIRONMENTS", "STEPS")]
    if not all(isinstance(size, int) for size in sizes):
        raise Unread("its sizes are not known")
    return tuple(int(size) for size in sizes)  # type: ignore[arg-type]
