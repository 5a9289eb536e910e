"""The compiler flags that the judge takes from a submission: those that name no file and start no program.

- `known` -- whether all of them are of that kind.
- `folders_in` -- the folders that they name.
- `profile` -- those on which a precompiled header depends, where one pays.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

__all__ = ["folders_in", "known", "profile"]

_MACRO = re.compile(r"-[DU]\w+(=[\w.\"' +:/,*()<>-]*)?")
_PLAIN = re.compile(
    r"-O[0123sg]?|-Ofast|-std=(c|gnu)\+\+\w+|-fPIC|-fpic|-w|-g[0123]?|-pthread|-fopenmp(-simd)?|-pedantic"
    r"|-W(all|extra|error|no-[\w=-]+|unused[\w-]*|conversion|shadow|sign-compare|cpp|deprecated[\w-]*)"
    r"|-m(arch|tune|cpu)=[\w.+-]+|-m(avx|fma|sse|f16c|bmi|popcnt|lzcnt|amx|prefer-vector-width=)[\w.-]*"
    r"|-f(no-)?(fast-math|unroll-(all-)?loops|math-errno|finite-math-only|signed-zeros|trapping-math|associative-math"
    r"|reciprocal-math|strict-aliasing|exceptions|rtti|omit-frame-pointer|tree-vectorize|tree-slp-vectorize"
    r"|inline-functions|unsafe-math-optimizations|rounding-math|ipa-cp-clone|strict-overflow|wrapv|peel-loops"
    r"|prefetch-loop-arrays|vect-cost-model=\w+|visibility=\w+|visibility-inlines-hidden|diagnostics-color=\w+|permissive)"
    r"|-funroll-loops|-ffp-contract=\w+|-ftree-vectorizer-verbose=\d"
)
_NVCC = re.compile(
    r"--?expt-(relaxed-constexpr|extended-lambda)|--?extended-lambda|(-gencode=|--generate-code=)?"
    r"(arch=compute_\d+[af]?,code=\[?(sm|compute)_\d+[af]?(,(sm|compute)_\d+[af]?)*\]?)|(-arch|--gpu-architecture)="
    r"(sm|compute)_\d+[af]?|(-code|--gpu-code)=(sm|compute)_\d+[af]?|--?use_fast_math|--?lineinfo|-lineinfo|--?maxrregcount=\d+"
    r"|--?(ftz|prec-div|prec-sqrt|fmad|extra-device-vectorization|restrict)(=(true|false))?|-res-usage|--resource-usage"
    r"|--?default-stream=[\w-]+|--diag-suppress=[\d,]+|-diag-suppress=[\d,]+|--threads=?\d*|-t=?\d+|-rdc=false|-DNDEBUG"
    r"|--std=c\+\+\d+|-allow-unsupported-compiler|--allow-unsupported-compiler"
)
_PTXAS = re.compile(
    r"-v|--verbose|-O[0123]|-warn-\w[\w-]*|--warn-\w[\w-]*|-dlcm=\w+|-dscm=\w+|--def-(load|store)-cache=\w+"
)
_FOR_PTXAS = re.compile(r"(?:-Xptxas|--ptxas-options)(?:=(.*))?")
_FOR_HOST = re.compile(r"(?:-Xcompiler|--compiler-options)(?:=(.*))?")
_FOLDER = re.compile(r"-I(.+)|-isystem(.+)")
_TAKES_NEXT = {
    "-gencode": _NVCC,
    "--generate-code": _NVCC,
    "-maxrregcount": re.compile(r"\d+"),
    "-t": re.compile(r"\d+"),
}
_TAKES_NEXT["-diag-suppress"] = _TAKES_NEXT["--diag-suppress"] = re.compile(r"[\d,]+")
_TAKES_NEXT["-arch"] = re.compile(r"(sm|compute)_\d+[af]?")
_TAKES_NEXT["--maxrregcount"] = _TAKES_NEXT["--threads"] = re.compile(r"\d+")
# those under which a precompiled header pays; each makes a file of some hundred megabytes
_PROFILES = tuple(
    frozenset(text.split())
    for text in (
        "",
        "-O2",
        "-O3",
        "-O3 -march=native",
        "-O3 -fopenmp",
        "-O3 -march=native -fopenmp",
        "-O3 -ffast-math",
        "-O3 -march=native -ffast-math",
        "-O3 -march=native -ffast-math -fopenmp",
    )
)
_WITHOUT_EFFECT = re.compile(r"-D\w.*|-I.*|-isystem.*|-fPIC|-std=c\+\+(17|20)")


def known(flags: Sequence[str], folders: Collection[str], *, ccbin: str = "", nvcc: bool = False) -> bool:
    """Whether all flags are known ones.

    Args:
        flags: as the compiler gets them.
        folders: folders of headers that may be named.
        ccbin: the host compiler that may be named, ``""`` for none.
        nvcc: whether they are for nvcc.

    >>> known(["-O3", "-fopenmp", "-DN=4"], ()), known(["-fplugin=a.so"], ()), known(["-I/tmp"], ())
    (True, False, False)
    """
    rest = list(flags)
    while rest:
        flag = rest.pop(0)
        if flag in ("-I", "-isystem"):
            if not rest or rest.pop(0) not in folders:
                return False
        elif match := _FOLDER.fullmatch(flag):
            if (match[1] or match[2]) not in folders:
                return False
        elif _MACRO.fullmatch(flag) or _PLAIN.fullmatch(flag):
            continue
        elif not nvcc or not _known_to_nvcc(flag, rest, ccbin):
            return False
    return True


def _known_to_nvcc(flag: str, rest: list[str], ccbin: str) -> bool:
    """Whether nvcc's own flag is known; what belongs to it is taken off the rest."""
    if flag == "-ccbin":
        return bool(rest) and bool(ccbin) and rest.pop(0) == ccbin
    for pattern, allowed in ((_FOR_PTXAS, _PTXAS), (_FOR_HOST, _PLAIN)):
        if match := pattern.fullmatch(flag):
            value = match[1] if match[1] is not None else rest.pop(0) if rest else "?"
            return all(allowed.fullmatch(part.strip("'\"")) for part in value.split(","))
    if flag in _TAKES_NEXT:
        return bool(rest) and bool(_TAKES_NEXT[flag].fullmatch(rest.pop(0)))
    return bool(_NVCC.fullmatch(flag))


def profile(flags: Sequence[str]) -> list[str] | None:
    """The flags on which a precompiled header depends, where one pays, else None.

    >>> profile(["-DTORCH_EXTENSION_NAME=m", "-fPIC", "-std=c++17", "-O3"]), profile(["-O1"])
    (['-std=c++17', '-O3'], None)
    """
    kept: list[str] = []
    rest = list(flags)
    while rest:
        flag = rest.pop(0)
        if flag in ("-I", "-isystem"):
            rest = rest[1:]
        elif flag.startswith("-std=") or not _WITHOUT_EFFECT.fullmatch(flag):
            kept.append(flag)
    standards = [flag for flag in kept if flag.startswith("-std=")]
    others = [flag for flag in kept if not flag.startswith("-std=")]
    if len(standards) != 1 or not _WITHOUT_EFFECT.fullmatch(standards[0]) or frozenset(others) not in _PROFILES:
        return None
    return standards + sorted(set(others), key=others.index)


def folders_in(flags: Sequence[str]) -> list[str]:
    """Folders of headers that are named by ``-isystem``; with ``-I`` there is no saying which come first.

    >>> folders_in(["-isystem", "/a", "-O3", "-isystem", "/b"]), folders_in(["-I", "/a"])
    (['/a', '/b'], ['-I'])
    """
    if any(flag.startswith("-I") or (flag.startswith("-isystem") and flag != "-isystem") for flag in flags):
        return ["-I"]
    return [after for flag, after in zip(flags, flags[1:], strict=False) if flag == "-isystem"]
