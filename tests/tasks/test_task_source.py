"""Reading and rewriting constants in the text of a reference."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.tasks.source import constants, missing_names, normalise, rewrite, summary

NUMBERS = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
# Text that may stand around an assignment, with characters of several bytes, and line ends other than LF kept out.
COMMENTS = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\u2028\u2029"),
    max_size=20,
)


@given(
    values=st.dictionaries(st.from_regex(r"[A-Z][A-Z_]{0,6}", fullmatch=True), st.tuples(NUMBERS, NUMBERS), max_size=6),
    comment=COMMENTS,
    together=st.booleans(),
)
def test_rewriting_then_reading_gives_the_value_and_other_text_stays(values, comment, together):
    names = list(values)

    def text(which):
        numbers = [repr(values[name][which]) for name in names]
        if together and len(names) > 1:
            body = f"{', '.join(names)} = {', '.join(numbers)}  # {comment}\n"
        else:
            body = "".join(f"{name} = {number}  # {comment}\n" for name, number in zip(names, numbers, strict=True))
        return f"# {comment}\n{body}LAST = 'ü'  # {comment}\n"

    def kind(name):
        old, new = values[name]
        return isinstance(old, int) and isinstance(new, float)

    wanted = {name: values[name][1] for name in names}
    if any(kind(name) for name in names):
        with pytest.raises(InvalidOptionError, match="integer"):
            rewrite(text(0), wanted)
        return
    changed = rewrite(text(0), wanted)
    assert changed == text(1)
    assert constants(changed) == wanted


@pytest.mark.parametrize(
    ("text", "sizes", "expected"),
    [
        ("N = 2048 * 2  # big", {"N": 7}, "N = 7  # big"),
        ("R, C = 128, 300", {"R": 1, "C": 2}, "R, C = 1, 2"),
        ("D, H, W = (16, 16,\n  16)", {"W": 3}, "D, H, W = (16, 16,\n  3)"),
        ("(A, [B, C]) = 1, (2, 3)", {"C": -4}, "(A, [B, C]) = 1, (2, -4)"),
        ("S = 2\nM, K = 64 * S, 128 * S", {"S": 5}, "S = 5\nM, K = 64 * S, 128 * S"),
        ("height = width = 128", {"height": 8}, "height = width = 8"),
        ("N: int = 1 << 20", {"N": 4}, "N: int = 4"),
        ("EPS = -1e-5; N = (3)", {"EPS": 0.5, "N": 4}, "EPS = 0.5; N = (4)"),
        ("t = 'ä€'; N = 3 # ß", {"N": 4}, "t = 'ä€'; N = 4 # ß"),
        ("X = 1.5", {"X": 2}, "X = 2"),
    ],
)
def test_ways_to_write_a_constant(text, sizes, expected):
    changed = rewrite(text, sizes)
    assert changed == expected
    ast.parse(changed)
    assert {name: constants(changed)[name] for name in sizes} == sizes


@pytest.mark.parametrize(
    "text",
    [
        "N = 1\nN = 2",
        "N = 1\nN += 1",
        "N = 1\nfor N in (2, 3): pass",
        "N = 1\ndef f():\n    global N\n    N = 2",
        "N = 1\nimport os as N",
        "if True:\n    N = 1",
        "N = len('ab')",
        "N = True",
        "N = 1j",
        "N = 'x'",
        "N = 10 ** 10 ** 10",
        "N = 1 << 10 ** 9",
        "N = 1 / 0",
        "N = 2 ** 63",
        "*N, M = 1, 2",
        "def f():\n    N = 1",
    ],
)
def test_what_is_not_a_constant(text):
    assert "N" not in constants(text)


def test_names_that_share_a_value_cannot_get_two():
    assert rewrite("height = width = 128", {"height": 8, "width": 8}) == "height = width = 8"
    with pytest.raises(InvalidOptionError, match="shares its value"):
        rewrite("height = width = 128", {"height": 8, "width": 9})


@pytest.mark.parametrize("value", [True, "8", None, float("nan"), float("inf"), 2**63, 1.5, [8]])
def test_a_value_that_does_not_fit_is_refused(value):
    with pytest.raises(InvalidOptionError, match="'N'"):
        rewrite("N = 4", {"N": value})


def test_numpy_numbers_are_written_as_plain_ones():
    numpy = pytest.importorskip("numpy")
    assert rewrite("N, E = 4, 0.5", {"N": numpy.int64(8), "E": numpy.float64(0.25)}) == "N, E = 8, 0.25"


def test_an_unknown_name_is_answered_with_the_allowed_ones():
    with pytest.raises(InvalidOptionError, match=r"'ROW'.*Did you mean 'ROWS'.*COLUMNS, ROWS"):
        rewrite("ROWS, COLUMNS = 4, 5", {"ROW": 1})


@pytest.mark.parametrize("text", ["def (", "a\0b", "x = '\ud800'", "(" * 5000 + ")" * 5000])
def test_whatever_is_not_python_is_a_syntax_error(text):
    with pytest.raises(SyntaxError):
        missing_names(text)


def test_names_of_the_contract():
    assert missing_names("class Model: pass") == ["function get_inputs()", "function get_init_inputs()"]
    assert missing_names("from x import Model, get_inputs\nget_init_inputs = list") == []
    assert missing_names("class A:\n    class Model: pass\n") != []


def test_summary_and_line_ends():
    assert summary('"""Module."""\nclass Model:\n    """\n    Adds.\n\n    More.\n    """') == "Adds."
    assert summary('"""Module."""\nclass Model: pass') == "Module."
    assert summary("x = 1") == ""
    assert normalise("\ufeffa\r\nb\rc\n") == "a\nb\nc\n"
