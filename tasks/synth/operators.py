"""The operators that tasks are composed of.

- `Operator` -- one of them: where it fits and what it adds to a draft.
- `OPERATORS` -- all, by name.
- `operators_named` -- some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.tasks.synth.draft import Dim, Draft

__all__ = ["OPERATORS", "Operator", "operators_named"]

_ALL = ("matrix", "sequence", "image")


@dataclass(frozen=True)
class Operator:
    """An operator of torch, or a small expression of them.

    Attributes:
        name: as tags and options call it.
        words: as titles call it.
        kind: ``elementwise``, ``rowwise``, ``reduction``, ``pooling``, ``layout`` or ``product``. A reduction comes
            last, and there is at most one product, since those take the time.
        layouts: of `Draft`s that it fits.
        write: add it to a draft.
        fits: whether it can come next.
    """

    name: str
    words: str
    kind: str
    layouts: tuple[str, ...]
    write: Callable[[Draft], None]
    fits: Callable[[Draft], bool] = lambda draft: True


def operators_named(names: Iterable[str] | None = None) -> tuple[Operator, ...]:
    """The operators with these names, in the order of `OPERATORS`; all for None.

    Raises:
        UnknownNameError: for another name.
        InvalidOptionError: for no name at all, or what is no list of names.
    """
    if names is None:
        return tuple(OPERATORS.values())
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidOptionError(f"operators must be a list of names, e.g. ['gelu', 'softmax'], got {names!r:.200}.")
    wanted = list(names)
    for name in wanted:
        if not isinstance(name, str) or name not in OPERATORS:
            raise unknown_name("operator", name, OPERATORS)
    if not wanted:
        raise InvalidOptionError("operators must name at least one, e.g. ['gelu', 'softmax'], got none.")
    return tuple(operator for name, operator in OPERATORS.items() if name in wanted)


# elementwise: an expression in x

_ELEMENTWISE = {
    "gelu": ("GELU", "F.gelu(x)"),
    "gelu_tanh": ("GELU in its tanh form", 'F.gelu(x, approximate="tanh")'),
    "silu": ("SiLU", "F.silu(x)"),
    "mish": ("Mish", "F.mish(x)"),
    "softplus": ("softplus", "F.softplus(x)"),
    "hardswish": ("hard swish", "F.hardswish(x)"),
    "elu": ("ELU", "F.elu(x, alpha=0.7)"),
    "celu": ("CELU", "F.celu(x, alpha=1.5)"),
    "selu": ("SELU", "F.selu(x)"),
    "leaky_relu": ("leaky ReLU", "F.leaky_relu(x, 0.1)"),
    "relu_squared": ("squared ReLU", "torch.relu(x).square()"),
    "relu6": ("ReLU6", "F.relu6(x)"),
    "tanhshrink": ("tanhshrink", "F.tanhshrink(x)"),
    "softshrink": ("softshrink", "F.softshrink(x, 0.2)"),
    "logsigmoid": ("log-sigmoid", "F.logsigmoid(x)"),
    "sigmoid": ("sigmoid", "torch.sigmoid(x)"),
    "tanh": ("tanh", "torch.tanh(x)"),
    "sin": ("sine", "torch.sin(x)"),
    "snake": ("snake", "x + torch.sin(3.0 * x).square() / 3.0"),
    "erf": ("error function", "torch.erf(x)"),
    "atan": ("arctangent", "torch.atan(x)"),
    "asinh": ("inverse hyperbolic sine", "torch.asinh(x)"),
    "signed_sqrt": ("signed square root", "torch.sign(x) * torch.sqrt(x.abs() + 1e-3)"),
    "log1p_abs": ("logarithm of the magnitude", "torch.log1p(x.abs())"),
    "gaussian": ("Gaussian", "torch.exp(-0.5 * x.square())"),
    "cauchy": ("Cauchy kernel", "1.0 / (1.0 + x.square())"),
    "cube": ("cube", "0.1 * x.pow(3)"),
    "huber": ("Huber loss of each element", "F.huber_loss(x, torch.zeros_like(x), reduction='none')"),
    "clamp": ("clamp", "torch.clamp(x, -1.5, 0.8)"),
    "affine": ("affine map", "0.75 * x + 0.25"),
}


def _simple(name: str, kind: str, words: str, expression: str) -> Operator:
    return Operator(name, words, kind, _ALL, lambda draft: draft.step(expression))


# with a further argument of the same shape

_BINARY = {
    "add_input": ("addition of an input", "x + {y}"),
    "subtract_input": ("difference from an input", "x - {y}"),
    "multiply_input": ("product with an input", "x * {y}"),
    "gate_input": ("gate by an input", "x * torch.sigmoid({y})"),
    "maximum_input": ("maximum with an input", "torch.maximum(x, {y})"),
    "lerp_input": ("blend with an input", "torch.lerp(x, {y}, 0.3)"),
    "hypot_input": ("length with an input", "torch.hypot(x, {y})"),
    "select_input": ("choice by the sign of an input", "torch.where({y} > 0, x, 0.5 * x)"),
    "logaddexp_input": ("log-add-exp with an input", "torch.logaddexp(x, {y})"),
}


def _binary(name: str, words: str, expression: str) -> Operator:
    def write(draft: Draft) -> None:
        draft.step(expression.format(y=draft.tensor(draft.shape)))

    return Operator(name, words, "elementwise", _ALL, write, lambda draft: len(draft.inputs) < 3)


# with a parameter along the last dimension

_PARAMETERS = {
    "scale_columns": ("scale by column", "scale", "1.0 + 0.5 * {}", "x * {p}"),
    "shift_columns": ("bias by column", "shift", "{}", "x + {p}"),
    "threshold_columns": ("ReLU over a threshold by column", "threshold", "0.5 * {}", "torch.relu(x - {p})"),
    "decay_columns": ("damping by column", "decay", "{}.abs()", "x / (1.0 + {p}.abs())"),
}


def _parameter(name: str, words: str, stem: str, drawn: str, expression: str) -> Operator:
    def write(draft: Draft) -> None:
        draft.step(expression.format(p=draft.parameter(draft.shape[-1:], stem, drawn)))

    return Operator(name, words, "elementwise", _ALL, write)


# along the last dimension, which stays

_ROWWISE = {
    "softmax": ("row softmax", "torch.softmax(x, dim=-1)"),
    "log_softmax": ("row log-softmax", "torch.log_softmax(x, dim=-1)"),
    "tempered_softmax": ("row softmax with a temperature", "torch.softmax(x / 0.7, dim=-1)"),
    "l2_normalize": ("row normalisation", "F.normalize(x, dim=-1)"),
    "max_normalize": ("division by the row maximum", "x / (x.abs().amax(dim=-1, keepdim=True) + 1e-3)"),
    "center": ("centring of rows", "x - x.mean(dim=-1, keepdim=True)"),
    "standardize": (
        "standardisation of rows",
        "(x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + 1e-3)",
    ),
    "subtract_logsumexp": ("subtraction of the row log-sum-exp", "x - torch.logsumexp(x, dim=-1, keepdim=True)"),
    "rms_scale": ("division by the row RMS", "x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5)"),
    "cumsum": ("row prefix sums", "torch.cumsum(x, dim=-1)"),
    "cummax": ("row prefix maxima", "torch.cummax(x, dim=-1).values"),
    "logcumsumexp": ("row prefix log-sum-exp", "torch.logcumsumexp(x, dim=-1)"),
}


# torch's modules begin with ones and zeros, which a submission could leave out unnoticed
_WEIGHT, _BIAS = ("weight", "1.0 + 0.2 * {}"), ("bias", "0.2 * {}")


def _layer_norm(draft: Draft) -> None:
    width = draft.shape[-1:]
    weight, bias = draft.parameter(width, *_WEIGHT), draft.parameter(width, *_BIAS)
    draft.step(f"F.layer_norm(x, ({width[0].text},), {weight}, {bias})")


def _rms_norm(draft: Draft) -> None:
    width = draft.shape[-1:]
    draft.step(f"F.rms_norm(x, ({width[0].text},), {draft.parameter(width, *_WEIGHT)}, 1e-5)")


def _group_norm(draft: Draft) -> None:
    channels = [draft.shape[1]]
    weight, bias = draft.parameter(channels, *_WEIGHT), draft.parameter(channels, *_BIAS)
    draft.step(f"F.group_norm(x, 8, {weight}, {bias})")


# layout

_LAYOUTS = {
    "flip": ("reversal of rows", "torch.flip(x, dims=[-1])"),
    "roll": ("rotation of rows", "torch.roll(x, shifts=7, dims=-1)"),
    "shift_mix": ("blend with the left neighbour", "0.6 * x + 0.4 * torch.roll(x, shifts=1, dims=-1)"),
}


def _glu(draft: Draft) -> None:
    draft.step("F.glu(x, dim=-1)")
    draft.shape[-1] = draft.shape[-1].divided(2)


def _swap(draft: Draft) -> None:
    draft.step("x.transpose(-1, -2).contiguous()")
    draft.shape[-1], draft.shape[-2] = draft.shape[-2], draft.shape[-1]


def _shuffle(draft: Draft) -> None:
    draft.step("F.channel_shuffle(x, 4)")


def _pixel_shuffle(draft: Draft) -> None:
    draft.step("F.pixel_shuffle(x, 2)")
    batch, channels, height, width = draft.shape
    draft.shape = [batch, channels.divided(4), height.times(2), width.times(2)]


# pooling


def _pool(function: str, arguments: str, dims: int) -> Callable[[Draft], None]:
    def write(draft: Draft) -> None:
        draft.step(f"F.{function}(x, {arguments})")
        draft.shape[-dims:] = [dim.divided(2) for dim in draft.shape[-dims:]]

    return write


def _halves(dims: int) -> Callable[[Draft], bool]:
    return lambda draft: all(dim.divisible(2) and min(dim.sizes.values()) >= 8 for dim in draft.shape[-dims:])


# reductions of the last dimension, or of an image's last two

_REDUCTIONS = {
    "sum": ("row sums", "x.sum(dim={d})"),
    "mean": ("row means", "x.mean(dim={d})"),
    "amax": ("row maxima", "x.amax(dim={d})"),
    "amin": ("row minima", "x.amin(dim={d})"),
    "logsumexp": ("row log-sum-exp", "torch.logsumexp(x, dim={d})"),
    "variance": ("row variances", "x.var(dim={d})"),
    "l2_norm": ("row lengths", "torch.linalg.vector_norm(x, dim={d})"),
    "mean_square": ("row mean squares", "x.square().mean(dim={d})"),
}


def _reduction(name: str, words: str, expression: str) -> Operator:
    def write(draft: Draft) -> None:
        dims = 2 if draft.layout == "image" else 1
        draft.step(expression.format(d="(-2, -1)" if dims == 2 else "-1"))
        del draft.shape[-dims:]

    return Operator(name, words, "reduction", _ALL, write)


# products: at most one in a task


def _width(draft: Draft, gpu: Iterable[int], cpu: Iterable[int], name: str) -> Dim:
    return draft.constant(name, {"cpu": draft.rng.choice(list(cpu)), "cuda": draft.rng.choice(list(gpu))})


def _linear(draft: Draft, *, bias: bool) -> None:
    out = _width(draft, (1024, 2048, 3072), (128, 192, 256), "OUT")
    made = draft.module("linear", f"nn.Linear({draft.shape[-1].text}, {out.text}" + (")" if bias else ", bias=False)"))
    draft.step(f"{made}(x)")
    draft.shape[-1] = out


def _matmul(draft: Draft) -> None:
    out = _width(draft, (1024, 1536, 2048), (128, 192, 256), "OUT")
    # scaled, so that products have about the size of their factors
    name = draft.tensor([draft.shape[-1], out], f"{draft.shape[-1].atom} ** -0.5 * ")
    draft.step(f"x @ {name}")
    draft.shape[-1] = out


def _convolution(dims: int, kernel: int, *, depthwise: bool = False) -> Callable[[Draft], None]:
    def write(draft: Draft) -> None:
        channels = draft.shape[1]
        out = channels if depthwise else _width(draft, (48, 64, 96), (16, 32), "OUT")
        groups = f", groups={channels.text}" if depthwise else ""
        padding = f", padding={kernel // 2}" if kernel > 1 else ""
        made = draft.module("conv", f"nn.Conv{dims}d({channels.text}, {out.text}, {kernel}{padding}{groups})")
        draft.step(f"{made}(x)")
        draft.shape[1] = out

    return write


def _upsampling(draft: Draft) -> None:
    channels, out = draft.shape[1], _width(draft, (32, 48), (16, 32), "OUT")
    draft.step(f"{draft.module('up', f'nn.ConvTranspose2d({channels.text}, {out.text}, 2, stride=2)')}(x)")
    draft.shape = [draft.shape[0], out, draft.shape[2].times(2), draft.shape[3].times(2)]


def _narrow(dim: int, most: int) -> Callable[[Draft], bool]:
    """Whether what a product sums over is no longer than this, so that its weights stay small beside the inputs."""
    return lambda draft: max(draft.shape[dim].sizes.values()) <= most


def _multiplies(draft: Draft) -> bool:
    return len(draft.inputs) < 3 and _narrow(-1, 8192)(draft)


def _by_channels(by: int) -> Callable[[Draft], bool]:
    return lambda draft: draft.shape[1].divisible(by)


_LIST = (
    *(_simple(name, "elementwise", *rest) for name, rest in _ELEMENTWISE.items()),
    *(_binary(name, *rest) for name, rest in _BINARY.items()),
    *(_parameter(name, *rest) for name, rest in _PARAMETERS.items()),
    *(_simple(name, "rowwise", *rest) for name, rest in _ROWWISE.items()),
    Operator("layer_norm", "layer norm", "rowwise", _ALL, _layer_norm),
    Operator("rms_norm", "RMS norm", "rowwise", _ALL, _rms_norm),
    Operator("group_norm", "group norm", "rowwise", ("sequence", "image"), _group_norm, _by_channels(8)),
    *(_simple(name, "layout", *rest) for name, rest in _LAYOUTS.items()),
    Operator("glu", "gated linear unit", "elementwise", _ALL, _glu, _halves(1)),
    Operator("transpose", "transposition", "layout", ("matrix", "sequence"), _swap),
    Operator("channel_shuffle", "channel shuffle", "layout", ("image",), _shuffle, _by_channels(4)),
    Operator("pixel_shuffle", "pixel shuffle", "layout", ("image",), _pixel_shuffle, _by_channels(16)),
    Operator("avg_pool1d", "average pooling", "pooling", ("sequence",), _pool("avg_pool1d", "2", 1), _halves(1)),
    Operator("max_pool1d", "max pooling", "pooling", ("sequence",), _pool("max_pool1d", "2", 1), _halves(1)),
    Operator("avg_pool2d", "average pooling", "pooling", ("image",), _pool("avg_pool2d", "2", 2), _halves(2)),
    Operator("max_pool2d", "max pooling", "pooling", ("image",), _pool("max_pool2d", "2", 2), _halves(2)),
    *(_reduction(name, *rest) for name, rest in _REDUCTIONS.items()),
    Operator("linear", "linear layer", "product", _ALL[:2], lambda d: _linear(d, bias=True), _narrow(-1, 8192)),
    Operator("linear_no_bias", "linear map", "product", _ALL[:2], lambda d: _linear(d, bias=False), _narrow(-1, 8192)),
    Operator("matmul", "matrix product", "product", _ALL[:2], _matmul, _multiplies),
    Operator("conv1d", "convolution", "product", ("sequence",), _convolution(1, 5), _narrow(1, 1024)),
    Operator(
        "depthwise_conv1d",
        "depthwise convolution",
        "product",
        ("sequence",),
        _convolution(1, 7, depthwise=True),
        _narrow(1, 1024),
    ),
    Operator("conv2d", "convolution", "product", ("image",), _convolution(2, 3), _narrow(1, 1024)),
    Operator(
        "pointwise_conv2d", "convolution of single pixels", "product", ("image",), _convolution(2, 1), _narrow(1, 1024)
    ),
    Operator(
        "depthwise_conv2d",
        "depthwise convolution",
        "product",
        ("image",),
        _convolution(2, 5, depthwise=True),
        _narrow(1, 1024),
    ),
    Operator("conv_transpose2d", "transposed convolution", "product", ("image",), _upsampling, _narrow(1, 1024)),
)
OPERATORS: Mapping[str, Operator] = MappingProxyType({operator.name: operator for operator in _LIST})
"""All operators by name."""
