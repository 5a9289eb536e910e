"""Which of torch's operators a call used, and a call in which computing ones are denied.

A submission must do the work in kernels of its own. Its own kernels (Triton, a pybind extension, CuPy, ctypes) never
pass torch's dispatcher; torch's operators do, from Python and from C++ alike. So the call is repeated under a dispatch
mode that refuses every operator that computes. Allowed are allocation, views, copies and casts, fill, cat/stack/pad,
and anything on at most `SMALL` elements.

- `Denied` -- the mode; `found` names what was asked for, also where the submission swallowed the refusal.
- `watch_captures` -- notes computing operators that are recorded into a CUDA graph, which would replay unseen.
- `computes` -- whether one operator call counts; `is_free` whether none of an operator's does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["GEMM", "SMALL", "Denied", "computes", "is_free", "watch_captures"]

SMALL = 1024
"""Elements up to which an operator is bookkeeping, not the work."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# by line group: allocation and fill; views; copies and casts; cat, stack and pad; questions without a computation
_FREE = _names(
    """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided new_zeros new_ones new_full zeros
    zeros_like ones ones_like full full_like scalar_tensor fill fill_ zero zero_ lift lift_fresh lift_fresh_copy
    resize_ resize_as_ set_ _efficientzerotensor
    view _unsafe_view reshape _reshape_alias as_strided as_strided_ transpose transpose_ permute t t_ numpy_T
    expand expand_as slice select unsqueeze unsqueeze_ squeeze squeeze_ narrow split split_with_sizes
    unsafe_split unbind chunk detach detach_ alias unfold diagonal view_as view_as_real view_as_complex real
    imag conj _conj resolve_conj resolve_neg _neg_view movedim swapaxes flatten unflatten ravel
    clone copy copy_ _to_copy to contiguous _copy_from _copy_from_and_resize _local_scalar_dense item pin_memory
    _pin_memory is_pinned record_stream as_strided_copy view_copy slice_copy select_copy transpose_copy
    permute_copy expand_copy slice_scatter select_scatter as_strided_scatter
    cat concat concatenate _cat stack hstack vstack dstack constant_pad_nd pad
    is_same_size _has_same_storage_numel sym_size sym_stride sym_numel sym_storage_offset size stride numel dim
    storage_offset is_contiguous is_nonzero _debug_has_internal_overlap
    """
)

GEMM = _names(
    """
    _addmm_activation _conv_depthwise2d _convolution _int_mm _scaled_mm _slow_conv2d_forward addmm addmm_ addmv
    baddbmm baddbmm_ bmm conv1d conv2d conv3d conv_depthwise3d conv_transpose1d conv_transpose2d
    conv_transpose3d convolution convolution_overrideable cudnn_convolution cudnn_convolution_transpose dot
    linear matmul miopen_convolution mkldnn_convolution mm mv slow_conv3d slow_conv_transpose2d
    slow_conv_transpose3d thnn_conv2d vdot
    """
)
"""Matrix products and convolutions: what ``library_ops="gemm"`` lets a submission take from libraries."""

_OWN = ("aten", "prims", "quantized", "mkldnn", "mkldnn_prepacked", "onednn", "fbgemm", "inductor", "torchvision")


def computes(name: str, namespace: str, arguments: Any, result: Any) -> bool:
    """Whether an operator call counts as work.

    Args:
        name: the operator's name without overload, e.g. ``"relu"``.
        namespace: its namespace; operators that a submission registered itself do not count.
        arguments: the call's arguments, any pytree.
        result: its result, any pytree.
    """
    if is_free(name, namespace):
        return False
    tensors = [leaf for leaf in tree_leaves((arguments, result)) if isinstance(leaf, torch.Tensor)]
    return any(tensor.numel() > SMALL for tensor in tensors)


def is_free(name: str, namespace: str) -> bool:
    """Whether an operator does not count as work, whatever it is given.

    >>> is_free("clone", "aten"), is_free("relu", "aten"), is_free("relu", "mine")
    (True, False, True)
    """
    return namespace not in _OWN or name in _FREE


class _Refused(RuntimeError):
    """Raised inside a submission's call for an operator that is denied."""


class Denied(TorchDispatchMode):
    """Refuses operators that compute.

    Args:
        allowed: names that are let through besides those that do not compute.
        refuse: whether to raise in the submission's call, or only to note.
        inside: told True when an operator of torch that is let through begins, False when it is done.

    Attributes:
        found: names of the operators asked for, in order of first use.
    """

    def __init__(
        self,
        allowed: frozenset[str] = frozenset(),
        *,
        refuse: bool = True,
        inside: Callable[[bool], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self.allowed = allowed
        self.refuse = refuse
        self.inside = inside
        self.found: dict[str, None] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # else torch wraps the method below so that its first use imports torch._dynamo: seconds in every candidate
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, rest = func.name().partition("::")
        name = rest.partition(".")[0]
        if self.refuse and name not in self.allowed and computes(name, namespace, (args, kwargs), None):
            self.found.setdefault(name)
            raise _Refused(f"torch's operator {name} is not available to a submission here")
        # what an operator does that the submission registered is the submission's: no mode sees inside of it
        lets_through = namespace in _OWN
        if lets_through:
            self.inside(True)
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            if lets_through:
                self.inside(False)
        if name not in self.allowed and computes(name, namespace, (args, kwargs), result):
            self.found.setdefault(name)
        return result


@contextmanager
def watch_captures(note: Callable[[str], None]) -> Iterator[None]:
    """Within the block, tell `note` each computing operator that runs while a CUDA graph is being captured."""
    begin, end = torch.cuda.CUDAGraph.capture_begin, torch.cuda.CUDAGraph.capture_end
    open_modes: list[Denied] = []

    def watched_begin(graph: Any, *arguments: Any, **options: Any) -> Any:
        mode = Denied(refuse=False)
        mode.__enter__()
        open_modes.append(mode)
        return begin(graph, *arguments, **options)

    def watched_end(graph: Any) -> Any:
        try:
            return end(graph)
        finally:
            if open_modes:
                mode = open_modes.pop()
                mode.__exit__(None, None, None)
                for name in mode.found:
                    note(name)

    graphs: Any = torch.cuda.CUDAGraph
    graphs.capture_begin, graphs.capture_end = watched_begin, watched_end
    try:
        yield
    finally:
        graphs.capture_begin, graphs.capture_end = begin, end
