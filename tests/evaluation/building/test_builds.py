"""Honest builds through the judge: the same verdicts, values and messages as torch's own, sooner."""

from __future__ import annotations

import pytest
from conftest import Judge

from kernelgym_env.evaluation.result import Evaluation, Status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HALF = """
torch::Tensor half(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* a = x.data_ptr<float>();
  float* o = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) o[i] = a[i] * 0.5f + 1.0f;
  return y;
}
"""
BINDING = '\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("half", &half, "half and one"); }\n'


def inline(code: str, options: str = 'functions=["half"]', name: str = "half_ext", before: str = "") -> str:
    return f"""
import torch
from torch.utils.cpp_extension import load, load_inline

{before}
ext = load_inline(name={name!r}, cpp_sources={code!r}, {options})


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.half(x)
"""


def hows(evaluation: Evaluation) -> list[str]:
    return [unit["how"] for unit in evaluation.provenance["builds"]["units"]]


def test_the_second_build_of_a_source_is_cached(fast: Judge) -> None:
    first, second = fast(inline(HALF)), fast(inline(HALF) + "\n# the same C++, another submission\n")
    assert first.status is second.status is Status.CORRECT, first.feedback
    assert hows(first) in (["slim precompiled"], ["slim"]) and hows(second) == ["cached"]
    assert second.stages_s["build"] < first.stages_s["build"]
    assert first.provenance["builds"]["fallbacks"] == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ('functions=["half"], extra_cflags=["-O3", "-DNUMBER=4"]', HALF + "static_assert(NUMBER == 4);"),
        ('functions={"half": "half and one"}, verbose=True', HALF),
        ("", "#include <torch/extension.h>\n" + HALF + BINDING),
        ("no_implicit_headers=True", "// first\n#include <vector>\n#include <torch/extension.h>\n" + HALF + BINDING),
        ('functions=["half"], with_cuda=False, extra_ldflags=["-lm"]', HALF),
    ],
)
def test_options_of_load_inline(fast: Judge, options: str, code: str) -> None:
    evaluation = fast(inline(code, options))
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert len(hows(evaluation)) == 1 and not evaluation.provenance["builds"]["declined"]


def test_several_sources_custom_names_and_folders(fast: Judge) -> None:
    before = "import os; os.makedirs('here/deep', exist_ok=True)"
    code = f"""['int two() {{ return 2; }}', {HALF!r}]"""
    source = inline("", 'functions=["half"], build_directory="here/deep"', name="a_name_of_my_own", before=before)
    evaluation = fast(source.replace("cpp_sources=''", f"cpp_sources={code}"))
    assert evaluation.status is Status.CORRECT, evaluation.feedback


def test_files_by_load_each_compiled_and_linked(fast: Judge) -> None:
    files = {
        "a.cpp": "#include <torch/extension.h>\ntorch::Tensor half(torch::Tensor x);" + BINDING,
        "b.cpp": "#include <torch/types.h>\n" + HALF,
    }
    write = "\n".join(f"open({name!r}, 'w').write({text!r})" for name, text in files.items())
    source = (
        inline("", name="unused").split("ext = ")[0]
        + f"""
{write}
ext = load(name="two_files", sources=["a.cpp", "b.cpp"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.half(x)
"""
    )
    evaluation = fast(source)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert len(hows(evaluation)) == 2


def test_own_headers_and_strange_flags_are_left_to_torch(fast: Judge) -> None:
    before = "open('own.h', 'w').write('#define ONE 1.0f\\n'); import os; here = os.getcwd()"
    options = 'functions=["half"], extra_include_paths=[here]'
    evaluation = fast(inline('#include "own.h"\n' + HALF.replace("1.0f", "ONE"), options, before=before))
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert not hows(evaluation)


def test_what_slim_headers_lack_is_compiled_with_the_full_ones(fast: Judge) -> None:
    # a macro of an operator that no word gives away
    code = HALF + "namespace other { using namespace torch; auto kind = &torch::jit::Stack::size; }\n"
    known = fast(inline(code.replace("auto kind", "[[maybe_unused]] static auto kind"), name="known"))
    hidden = fast(
        inline(
            "#define CAT(a, b) a##b\n" + HALF.replace("torch::empty_like(x)", "at::CAT(zeros_, like)(x)"), name="hid"
        )
    )
    assert known.status is hidden.status is Status.CORRECT, known.feedback + hidden.feedback
    assert hows(known)[0].startswith("full") and known.provenance["builds"]["fallbacks"] == 0


@pytest.mark.parametrize(
    "harm", [("x.numel()", "x.number()"), ("return y;", "return y"), ("torch::empty_like(x)", "undeclared(x)")]
)
def test_errors_are_torchs_own(fast: Judge, stock: Judge, harm: tuple[str, str]) -> None:
    source = inline(HALF.replace(*harm))
    ours, theirs = fast(source), stock(source)
    assert ours.status is theirs.status is Status.COMPILE_ERROR
    assert ours.feedback == theirs.feedback


def test_one_setting_leaves_all_to_torch(stock: Judge) -> None:
    evaluation = stock(inline(HALF))
    assert evaluation.status is Status.CORRECT and evaluation.provenance["builds"] == {}
