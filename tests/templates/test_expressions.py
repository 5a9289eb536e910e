"""Formulas: folding, lowering, and that C's and Triton's text compute what PyTorch does."""

import ctypes
import math
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.templates.expressions import ACTIVATIONS, Node, call, lower, number, uses, walk, write

X = Node("name", text="x")
UNARY = sorted(set(ACTIVATIONS) - {"maximum", "minimum", "clamp"})
finite = st.floats(-1e3, 1e3, allow_nan=False)


@given(finite, finite, st.sampled_from(["add", "sub", "mul"]))
def test_constants_are_folded(a, b, op):
    found = call(op, a, b)
    assert found.op == "number"
    assert found.value == {"add": a + b, "sub": a - b, "mul": a * b}[op]


def test_what_has_no_value_is_not_folded():
    assert call("div", 1.0, 0.0).op == "div"
    assert call("log", -1.0).op == "log"


@given(finite)
def test_numbers_are_written_so_that_they_come_back(value):
    assert eval(write(number(value), "triton")) == value
    assert float(write(number(value), "c").replace("f", "").strip("()")) == value


def test_infinities_have_a_form():
    assert write(number(math.inf), "c") == "(INFINITY)"
    assert write(number(-math.inf), "triton") == '(-float("inf"))'


def test_names_are_replaced_and_found():
    node = call("add", X, call("exp", Node("name", text="self.w")))
    assert write(node, "c", {"x": "p_x[i]", "self.w": "w[c]"}) == "(p_x[i] + expf(w[c]))"
    assert uses(node, "self.w") and not uses(node, "y")
    assert [part.op for part in walk(node)] == ["name", "name", "exp", "add"]


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="Did you mean"):
        lower("sigmoidd", X)
    with pytest.raises(UnknownNameError, match="language"):
        write(X, "fortran")
    with pytest.raises(InvalidOptionError, match="does not take these arguments"):
        lower("relu", X, 1.0, 2.0)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Every activation as a C function, and PyTorch's by name."""
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("c")
    lines = ["#include <cmath>"]
    for name in UNARY:
        body = write(lower(name, X), "c")
        loop = f"for (int i = 0; i < n; ++i) {{ const float x = in[i]; out[i] = {body}; }}"
        lines.append(f'extern "C" void act_{name}(const float* in, float* out, int n) {{ {loop} }}')
    (folder / "a.cpp").write_text("\n".join(lines))
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o", str(folder / "a.so"), str(folder / "a.cpp")], check=True)
    library = ctypes.CDLL(str(folder / "a.so"))

    def function(name):
        return getattr(torch, name, None) or getattr(torch.nn.functional, name)

    def run(name, values):
        given_ = np.ascontiguousarray(values, dtype=np.float32)
        out = np.empty_like(given_)
        getattr(library, f"act_{name}")(
            given_.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), len(given_)
        )
        return out, function(name)(torch.from_numpy(given_).double()).numpy()

    return run


@pytest.mark.parametrize("name", UNARY)
def test_c_computes_what_pytorch_does(compiled, name):
    scale = np.concatenate([np.linspace(-30, 30, 4001), np.geomspace(1e-6, 20, 500), -np.geomspace(1e-6, 20, 500)])
    if name in ("log", "sqrt", "rsqrt"):
        scale = np.abs(scale) + 1e-6
    elif name == "exp":
        scale = scale[np.abs(scale) < 80]
    elif name == "reciprocal":
        scale = scale[scale != 0]
    got, want = compiled(name, scale)
    # near zero too, where the obvious forms of tanh, expm1 and log1p lose their digits
    tolerance = 1e-5 if name not in ("softsign", "gelu") else 4e-5
    assert np.all(np.abs(got - want) <= tolerance * np.abs(want) + 3e-7 * np.minimum(np.abs(scale), 1) + 1e-12)
