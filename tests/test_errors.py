from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env import errors
from kernelgym_env.errors import (
    InvalidOptionError,
    KernelGymError,
    MissingDataError,
    NotRecordedError,
    UnknownNameError,
    unknown_name,
)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (UnknownNameError, ValueError),
        (InvalidOptionError, ValueError),
        (MissingDataError, FileNotFoundError),
        (NotRecordedError, OSError),
    ],
)
def test_each_error_is_the_packages_and_the_builtin_kind(error: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(error, KernelGymError)
    assert issubclass(error, builtin)


def test_all_is_sorted_and_complete() -> None:
    public = {name for name in vars(errors) if not name.startswith("_")} - {"annotations", "difflib", "re", "Iterable"}
    assert errors.__all__ == sorted(public)


def test_unknown_name_is_built_not_raised() -> None:
    error = unknown_name("device", "tpu:0", ["auto", "cuda"])
    assert isinstance(error, UnknownNameError)
    assert str(error) == "Unknown device 'tpu:0'. Allowed: auto, cuda."


@pytest.mark.parametrize("value", ["STRICT", "stric", "strictt", "Stirct"])
def test_hint_ignores_case_and_typing_errors(value: str) -> None:
    assert "Did you mean 'strict'?" in str(unknown_name("protocol", value, ["strict", "lenient"]))


@pytest.mark.parametrize(
    ("value", "meant"),
    [("KernelBench/L1-1", "L1-001"), ("kernelbench/l1-19", "L1-019"), ("KernelBench/L1-0100", "L1-100")],
)
def test_hint_ignores_zeros_before_a_number(value: str, meant: str) -> None:
    names = [f"KernelBench/L{level}-{number:03d}" for level in (1, 2) for number in range(1, 101)]
    assert f"Did you mean 'KernelBench/{meant}'?" in str(unknown_name("task id", value, names))


def test_hint_keeps_the_case_of_the_allowed_name() -> None:
    assert "Did you mean 'KernelGym/Softmax-v0'?" in str(
        unknown_name("id", "kernelgym/softmax-v0", ["KernelGym/Softmax-v0", "KernelGym/Matmul-v0"])
    )


def test_no_hint_where_nothing_is_close() -> None:
    assert "mean" not in str(unknown_name("protocol", "zzz", ["strict"]))


def test_nothing_allowed() -> None:
    assert str(unknown_name("pool", "x", [])) == "Unknown pool 'x'. Allowed: none."


def test_a_long_list_is_cut_and_counted() -> None:
    text = str(unknown_name("task", "t", (f"task-{i:03d}" for i in range(270))))
    assert "task-039, … (270 in all)." in text
    assert "task-040" not in text


def test_exactly_the_listed_number_is_not_cut() -> None:
    text = str(unknown_name("task", "t", (f"task-{i:03d}" for i in range(40))))
    assert text.endswith("task-039.")


def test_duplicates_and_order_do_not_matter() -> None:
    assert str(unknown_name("a", 1, ["b", "a", "b"])) == "Unknown a 1. Allowed: a, b."


@given(st.text(), st.lists(st.text(max_size=20), max_size=60))
def test_any_name_gives_a_message(value: str, allowed: list[str]) -> None:
    error = unknown_name("thing", value, allowed)
    assert repr(value) in str(error)
    assert str(error).startswith("Unknown thing ")
