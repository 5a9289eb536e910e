"""Other ways of running a reference than eagerly: what else a submission's speed can be held against.

Runs in the process of a trusted source.

- `WAYS` -- what makes a way's callable of a model, by the way's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

__all__ = ["WAYS"]

_WARM_UPS = 3


def _compiled(model: Any) -> Any:
    """`torch.compile` in its default mode, the first thing that a user would try; it compiles at the first call."""
    return torch.compile(model)


class _Graphed:
    """A model whose kernels are recorded at the first call and launched as one CUDA graph from then on.

    It reads its arguments where they lay at the first call, so they may be rewritten but not replaced.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._graph is None:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARM_UPS):
                    self._model(*arguments)
            torch.cuda.current_stream().wait_stream(side)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._result = self._model(*arguments)
        self._graph.replay()
        return self._result


WAYS: Mapping[str, Callable[[Any], Any]] = MappingProxyType({"compile": _compiled, "graph": _Graphed})
"""Ways by the name under which `Evaluation.times` has them."""
