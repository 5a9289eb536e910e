"""What a reference may have set in torch is as before when the next one is loaded."""

from __future__ import annotations

import pytest
import torch

from kernelgym_env.evaluation.torch_settings import Settings

CHANGES = {
    "benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark),
    "TF32": lambda: torch.set_float32_matmul_precision("high"),
    "flash attention": lambda: torch.backends.cuda.enable_flash_sdp(not torch.backends.cuda.flash_sdp_enabled()),
    "attention by products": lambda: torch.backends.cuda.enable_math_sdp(not torch.backends.cuda.math_sdp_enabled()),
    "autocast": lambda: torch.set_autocast_enabled("cpu", not torch.is_autocast_enabled("cpu")),
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "device": lambda: torch.set_default_device("meta"),
    "gradients": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "determinism": lambda: torch.use_deterministic_algorithms(not torch.are_deterministic_algorithms_enabled()),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
}


def state() -> list[object]:
    cuda = torch.backends.cuda
    return [
        torch.backends.cudnn.benchmark,
        cuda.matmul.allow_tf32,
        cuda.flash_sdp_enabled(),
        cuda.math_sdp_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
        torch.empty(1).device,
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads(),
    ]


@pytest.mark.parametrize("change", CHANGES)
def test_each_is_set_back(change):
    before, settings = state(), Settings()
    try:
        CHANGES[change]()
        assert state() != before
    finally:
        settings.restore()
    assert state() == before
