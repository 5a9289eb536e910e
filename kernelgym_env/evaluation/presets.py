"""The protocols that go by a name: this package's own, and the correctness rules of published systems.

A preset takes over how a system decides that an output is right: tolerance, sets of inputs, mode of the model,
precision, where inputs are drawn, what libraries may do. Isolation, the checks of integrity (secret seeds, the A/B/A
calls on the same objects, redrawn weights, late work, outputs of timed calls) and the structure of outputs are the same
in all of them. So is timing: but for `warmup`, its constants are this package's own in every preset.

- `PRESETS` -- the protocols by name; ``docs/protocols.md`` has them in one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym_env.evaluation.protocols import Allclose, Protocol

__all__ = ["PRESETS"]

_ONE_PERCENT = Allclose(atol=1e-2, rtol=1e-2)
_KERNELBENCH = Allclose(atol=1e-4, rtol=1e-4, half=(1e-2, 1e-2))

_PROTOCOLS = (
    Protocol(
        "strict",
        "Fresh secret inputs, errors against a float64 oracle, own kernels only, interleaved timing.",
        "This package; constants calibrated in docs/calibration.md.",
    ),
    Protocol(
        "kernelbench",
        "KernelBench's current evaluator: allclose at 1e-4, or 1e-2 for half precision.",
        "ScalingIntelligence/KernelBench, src/kernelbench/eval.py at 423217d. Five sets of inputs as its scripts ask "
        "for; the function's own default is one. What libraries do is at most a warning there.",
        input_sets=5,
        inputs_on="cpu",
        allclose=_KERNELBENCH,
        precision="torch",
        library_ops="allow",
    ),
    Protocol(
        "kernelbench_v0",
        "KernelBench's first releases (v0, v0.1): allclose at 1e-2 for every dtype.",
        "ScalingIntelligence/KernelBench before the tolerance went by dtype (pull request 80); the rest as today.",
        input_sets=5,
        inputs_on="cpu",
        allclose=_ONE_PERCENT,
        precision="torch",
        library_ops="allow",
    ),
    Protocol(
        "kernelgym",
        "KernelGYM of Dr. Kernel: allclose at 1e-2 for every dtype.",
        "hkust-nlp/KernelGYM, kernelgym/toolkit/kernelbench at 3a84417. Own launches are required there (the decoy "
        "check), but libraries may do the rest; arXiv 2602.05885 pays for coverage instead.",
        input_sets=5,
        inputs_on="cpu",
        allclose=_ONE_PERCENT,
        precision="torch",
        library_ops="allow",
    ),
    Protocol(
        "cuda_agent",
        "CUDA Agent's verification script: 1e-2, models in eval mode.",
        "CUDA Agent's released workspace, utils/verification.py and SKILL.md: matrix products from cuBLAS and "
        "convolutions from cuDNN are allowed, torch's other operators are not. Its inputs have no seed at all.",
        input_sets=5,
        inputs_on="cpu",
        allclose=_ONE_PERCENT,
        precision="torch",
        library_ops="gemm",
        train_mode=False,
        warmup=5,
    ),
    Protocol(
        "cuda_l1",
        "CUDA-L1's released evaluator: 1e-2 on ten sets of inputs, models in eval mode.",
        "deepreinforce-ai/CUDA-L1, the released evaluator; the paper speaks of 1,000 inputs. There eval mode holds for "
        "the check alone and timing runs in train mode; here one mode holds for both.",
        input_sets=10,
        inputs_on="cpu",
        allclose=_ONE_PERCENT,
        precision="torch",
        library_ops="allow",
        train_mode=False,
    ),
    Protocol(
        "makora",
        "Makora: greatest absolute error 1e-3.",
        "arXiv 2602.11000, by secondary notes: the error bound and that it holds on every test input. Number of "
        "inputs, mode and precision are not known; they are KernelBench's here.",
        input_sets=5,
        inputs_on="cpu",
        allclose=Allclose(atol=1e-3, rtol=0.0),
        precision="torch",
        library_ops="forbid",
    ),
    Protocol(
        "kevin",
        "Kevin-32B: KernelBench of early 2025, own CUDA kernels only.",
        "arXiv 2507.11948 states no tolerance and no number of inputs; both are those of the KernelBench release that "
        "it modified (v0). That torch may do no computing is stated.",
        input_sets=5,
        inputs_on="cpu",
        allclose=_ONE_PERCENT,
        precision="torch",
        library_ops="forbid",
    ),
    Protocol(
        "tritonrl",
        "TritonRL: KernelBench's evaluator, own Triton kernels only.",
        "arXiv 2510.17891, by secondary notes: a kernel must do the work. No tolerance or number of inputs was found; "
        "they are those of KernelBench's current evaluator here, the tighter of its two.",
        input_sets=5,
        inputs_on="cpu",
        allclose=_KERNELBENCH,
        precision="torch",
        library_ops="forbid",
    ),
)

PRESETS: Mapping[str, Protocol] = MappingProxyType({protocol.name: protocol for protocol in _PROTOCOLS})
"""Every preset by name."""
