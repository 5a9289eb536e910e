import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.evaluation.source import check_format, detect_backend, may_compile
from kernelgym_env.limits import MAX_SOURCE_CHARS


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "no source"),
        (" \n\t", "no source"),
        ("x" * (MAX_SOURCE_CHARS + 1), "at most"),
        ("class ModelNew:\n  x = '\0'", "NUL"),
        ("class ModelNew: '\ud800'", "Unicode"),
        ("class ModelNew(:", "SyntaxError"),
        ("def f(): pass", "no class ModelNew"),
        ("# class ModelNew", "no class ModelNew"),
        ("(" * 5_000 + ")" * 5_000, "parse"),
    ],
)
def test_what_cannot_be_judged_is_said(source, said):
    message = check_format(source)
    assert said in message or ("SyntaxError" in message and said == "parse")


@pytest.mark.parametrize(
    "source",
    [
        "class ModelNew: pass",
        "class A: pass\nModelNew = A",
        "from x import ModelNew",
        "from x import A as ModelNew",
        "from x import *",
        "if True:\n    class ModelNew: pass",
        "class ModelNew:\n    'é 漢字 “quotes”'",
        'x = "\\d"\nclass ModelNew: pass',
    ],
)
def test_what_may_define_the_entry_is_let_through(source):
    assert check_format(source) == ""


@given(st.text(max_size=500))
def test_any_text_gets_an_answer(text):
    assert isinstance(check_format(text), str)


def test_a_typical_source_takes_about_a_millisecond():
    source = "class ModelNew:\n" + "".join(f"    x{i} = {i}\n" for i in range(300))
    check_format(source)
    start = time.perf_counter()
    for _ in range(10):
        check_format(source)
    assert (time.perf_counter() - start) / 10 < 0.05


@pytest.mark.parametrize(
    ("source", "backend"),
    [
        ("import triton", "triton"),
        ("from triton import language", "triton"),
        ("import cupy as cp", "cupy"),
        ("load_inline(cuda_sources=[k])", "cuda"),
        ("s = '__global__ void f()'", "cuda"),
        ("import ctypes\nlib = ctypes.CDLL(x)", "cpp"),
        ("load_inline(cpp_sources=[k])", "cpp"),
        ("import torch", "torch"),
    ],
)
def test_backend_is_read_off_the_source(source, backend):
    assert detect_backend(source) == backend


def test_sources_that_compile_are_guessed():
    assert may_compile("from torch.utils.cpp_extension import load_inline")
    assert may_compile("subprocess.run(['g++'])")
    assert not may_compile("import triton")


def test_what_was_said_of_a_text_is_said_again_and_bounded(monkeypatch):
    from kernelgym_env.evaluation import source

    monkeypatch.setattr(source, "_known", {})
    monkeypatch.setattr(source, "_KEPT", 3)
    texts = [f"class ModelNew: x = {number}" for number in range(5)] + ["x =", "x = 1"]
    said = [source.check_format(text) for text in texts]
    assert [source.check_format(text) for text in texts] == said
    assert said[:5] == [""] * 5
    assert "SyntaxError" in said[5] and "no class ModelNew" in said[6]
    assert len(source._known) == 3
