"""Whose kernels did the work: the rules, on reports such as CUPTI's."""

from __future__ import annotations

import math

import pytest

from kernelgym_env.evaluation.attribution import installed_folders
from kernelgym_env.evaluation.evidence import Evidence, KernelShare, attribute, coverage, library_kernels
from kernelgym_env.evaluation.feedback import at_level
from kernelgym_env.evaluation.result import Evaluation, Status

SITE = next(path for path in installed_folders() if path.endswith("-packages/"))
CUDA = ["/usr/lib/libcuda.so.580", "/usr/lib/libcudart.so.13"]


def kernel(*files, name="kernel", python="", allowed=False, launches=2, us=10.0):
    return {"name": name, "files": [*CUDA, *files], "python": python, "allowed": allowed,
            "launches": launches, "us": us}  # fmt: skip


def whose(one):
    (share,) = attribute([one], 2, "/job")
    return share.whose, share.file


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (kernel("/job/home/torch_extensions/k/k.so"), ("own", "")),
        (kernel("/job/home/triton/x/launcher.so", python="/job/submission.py"), ("own", "")),
        (kernel("/job/home/triton/x/launcher.so", python="/job/home/inductor/ab/cab.py"), ("library", "cab.py")),
        (kernel(SITE + "torch/lib/libtorch_python.so", python=SITE + "liger/ops.py"), ("library", "ops.py")),
        (kernel(SITE + "torch/lib/libtorch_cuda.so", "/job/k.so"), ("library", "libtorch_cuda.so")),
        (kernel(SITE + "torch/lib/libtorch_cuda.so", allowed=True), ("allowed", "")),
        (kernel(SITE + "torch/lib/libtorch_cuda.so", name="at::native::direct_copy_kernel_cuda"), ("allowed", "")),
        (
            kernel(SITE + "torch/lib/libtorch_cuda.so", name="at::native::tanh_kernel_cuda"),
            ("library", "libtorch_cuda.so"),
        ),
        (kernel("/job/k.so", name="direct_copy_kernel"), ("own", "")),
        (kernel("/usr/lib/libcublasLt.so.13", "/usr/lib/libcublas.so.13"), ("library", "libcublasLt.so.13")),
        (kernel("/usr/lib/libffi.so.8", "/usr/lib/python3/lib-dynload/_ctypes.so"), ("own", "")),
        (kernel(), ("own", "")),
        (kernel(SITE + "cupy/cuda/function.so", SITE + "cupy/_core/raw.so"), ("own", "")),
        (kernel(SITE + "cupy/_core/_kernel.so", name="swish"), ("own", "")),
        (kernel(SITE + "cupy/_core/_kernel.so", name="cupy_maximum__float32"), ("library", "cupy")),
        (kernel(SITE + "cupy/_core/_kernel.so", name="cupy_copy__float32"), ("allowed", "")),
        (kernel(SITE + "cupy/_core/_fusion_kernel.so", name="anything"), ("library", "cupy")),
    ],
)
def test_owners_of_kernels(one, expected):
    assert whose(one) == expected


@pytest.mark.parametrize(
    "report",
    [None, {}, [1], [{}], [kernel(us=-1.0)], [kernel(launches=0)], [kernel(launches=True)], [kernel(us=math.nan)],
     [kernel() | {"files": "x"}], [kernel() | {"allowed": 1}], [kernel() | {"name": b"x"}], [kernel(us=math.inf)]],
)  # fmt: skip
def test_what_is_no_report_is_refused(report):
    assert attribute(report, 1, "/job") is None


def share(whose, us, file=""):
    return KernelShare("k", whose, us, 1.0, file)


def test_coverage_is_own_time_over_all():
    assert coverage([share("own", 30.0), share("library", 50.0, "x"), share("allowed", 20.0)]) == pytest.approx(0.3)
    assert math.isnan(coverage([]))
    evidence = Evidence.of([share("own", 3.0), share("own", 1.0)])
    assert (evidence.coverage, evidence.own_launches) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("kernels", "gemm", "named"),
    [
        ([share("own", 74.0), share("library", 26.0, "libcublas.so")], False, ["libcublas.so"]),
        ([share("own", 76.0), share("library", 24.0, "libcublas.so")], False, []),
        ([share("own", 1.0), share("library", 99.0, "libcublas.so")], True, []),
        ([share("own", 1.0), share("library", 99.0, "cupy")], True, ["cupy"]),
        # copies count for neither side
        ([share("own", 10.0), share("library", 5.0, "a"), share("allowed", 1000.0)], False, ["a"]),
        ([share("library", 1.0, "a"), share("library", 2.0, "b")], False, ["b", "a"]),
    ],
)
def test_a_quarter_of_the_work_is_too_much(kernels, gemm, named):
    assert library_kernels(kernels, gemm=gemm) == named


def test_the_profile_names_kernels_by_their_share_and_reveals_no_value():
    kernels = [share("own", 60.0), share("library", 30.0, "libx.so"), KernelShare("v_0.123456", "allowed", 10.0, 2.0)]
    evidence = Evidence.of(kernels)
    evaluation = Evaluation(
        "a/b", Status.CORRECT, coverage=evidence.coverage, provenance={"evidence": evidence.to_dict()}
    )
    text = at_level(evaluation, "profile")
    assert "Your own kernels take 60% of the device's time." in text
    assert "- 60%, 60 µs, 1 launch, own: k" in text
    assert "- 30%, 30 µs, 1 launch, from libx.so: k" in text
    assert "- 10%, 10 µs, 2 launches, copying and filling: v_0.1…" in text
    assert "Kernels of one call" not in at_level(evaluation, "error")
