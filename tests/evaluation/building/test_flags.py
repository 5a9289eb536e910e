"""Which flags the judge takes, and which have a precompiled header."""

from __future__ import annotations

import shlex

import pytest

from kernelgym_env.evaluation.building.flags import known, profile

FOLDERS = frozenset({"/torch/include", "/python"})


@pytest.mark.parametrize(
    "text",
    [
        "-DTORCH_EXTENSION_NAME=m -isystem /torch/include -isystem /python -fPIC -std=c++17",
        "-O3 -march=native -fopenmp -ffast-math -funroll-loops -mavx2 -mfma",
        "-Wall -Wno-unknown-pragmas -w -g -DNDEBUG -DBLOCK=32 -fno-strict-aliasing -I/python",
    ],
)
def test_what_submissions_use_is_known(text: str) -> None:
    assert known(shlex.split(text), FOLDERS)


@pytest.mark.parametrize(
    "text",
    [
        "--expt-relaxed-constexpr -gencode=arch=compute_90,code=sm_90 --compiler-options '-fPIC'",
        "-O3 --use_fast_math -Xptxas=-v --ptxas-options=-v -Xptxas -O3 --maxrregcount=48 -std=c++14 -lineinfo",
        "-gencode arch=compute_80,code=sm_80 -arch=sm_90 -Xcompiler -O3,-fopenmp -ccbin gcc",
    ],
)
def test_what_submissions_use_is_known_of_nvcc(text: str) -> None:
    assert known(shlex.split(text), FOLDERS, nvcc=True, ccbin="gcc")


@pytest.mark.parametrize(
    "flag",
    [
        "-fplugin=x.so",
        "-include x.h",
        "-imacros x.h",
        "-I /tmp",
        "-I/torch/include/..",
        "-isystem/tmp",
        "-isystem",
        "-iquote/python",
        "-B/tmp",
        "-wrapper sh",
        "-specs=x",
        "-o x",
        "-MF x",
        "-Wp,-MD,x",
        "-Wl,-rpath,x",
        "-Wa,x",
        "-dumpdir x",
        "-save-temps",
        "@file",
        "x.cpp",
        "-x c++-header",
        "-fprofile-use=x",
        "-fdump-tree-all",
        "-idirafter /python",
        "-O3 ; rm",
        "-std=c++17 -fplugin=x",
        "-march=native\n-fplugin=x",
        "-ccbin gcc",
        "-Xcompiler -O3",
    ],
)
def test_what_names_files_or_programs_is_not(flag: str) -> None:
    assert not known(shlex.split(flag), FOLDERS)


@pytest.mark.parametrize(
    "flag",
    [
        "-ccbin /tmp/gcc",
        "-ccbin",
        "-Xcompiler -fplugin=x",
        "-Xcompiler=-O3,-B/tmp",
        "--compiler-options",
        "-Xptxas --options-file=x",
        "-Xcudafe --x",
        "--options-file x",
        "-optf x",
        "--keep-dir x",
        "-dlink",
        "--pre-include x",
        "-rdc=true",
        "-gencode",
        "-gencode arch=compute_90,code=sm_90,x",
        "-maxrregcount x",
        "--compiler-bindir=/tmp",
        "-arch=native",
    ],
)
def test_nor_for_nvcc(flag: str) -> None:
    assert not known(shlex.split(flag), FOLDERS, nvcc=True, ccbin="gcc")


def test_order_and_macros_do_not_make_another_profile() -> None:
    one = profile(shlex.split("-DA=1 -isystem /python -fPIC -std=c++17 -O3 -fopenmp"))
    assert one == ["-std=c++17", "-O3", "-fopenmp"]
    assert profile(["-std=c++17"]) == ["-std=c++17"]
    for text in ("-std=c++17 -O1", "-std=c++14", "", "-std=c++17 -std=c++20", "-std=c++17 -g"):
        assert profile(shlex.split(text)) is None
