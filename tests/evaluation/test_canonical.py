"""`program_hash`: which sources are the same program."""

import pytest

from kernelgym_env.evaluation.canonical import program_hash

PROGRAM = '''
import torch

CUDA = """// comment
__global__ void f() {}"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + 1
'''


@pytest.mark.parametrize(
    "other",
    [
        "# a comment\n" + PROGRAM,
        '"""A docstring."""' + PROGRAM,
        PROGRAM.replace("x + 1", "(x  +  1)  # one"),
        PROGRAM.replace("x):\n", 'x):\n        """Adds one."""\n'),
        PROGRAM.replace("\n\n\n", "\n"),
    ],
)
def test_comments_white_space_and_docstrings_do_not_count(other):
    assert other != PROGRAM
    assert program_hash(other) == program_hash(PROGRAM)


@pytest.mark.parametrize(
    "other",
    [
        PROGRAM.replace("x", "y"),
        PROGRAM.replace("+ 1", "+ 1.0"),
        PROGRAM.replace("+ 1", "+ True"),
        PROGRAM.replace("// comment", "// another"),
        PROGRAM + "\ntorch.manual_seed(0)\n",
    ],
)
def test_names_numbers_and_strings_count(other):
    assert program_hash(other) != program_hash(PROGRAM)


@pytest.mark.parametrize(
    "line",
    [
        "text = __doc__",
        "import inspect",
        "text = open(__file__).read()",
        "from pathlib import Path; text = Path('submission.py').read_text()",
        "text = kernel.src",
        "import sys; line = sys._getframe().f_lineno",
        "import torch; data = torch.from_file('submission.py')",
    ],
)
def test_of_a_program_that_may_read_itself_the_text_counts(line):
    one, two = f'"""A"""\n{line}\n', f'"""B"""\n{line}\n'
    assert program_hash(one) != program_hash(two)
    assert program_hash(one) == program_hash(one)


def test_how_a_text_is_decoded_counts():
    assert program_hash("# coding: latin-1\nx = 'é'") != program_hash("x = 'é'")


@pytest.mark.parametrize("source", ["class (", "x = '\0'", "\ud800", "(" * 5000])
def test_what_cannot_be_parsed_is_hashed_as_it_is(source):
    assert program_hash(source) == program_hash(source) != program_hash(source + "\n")
