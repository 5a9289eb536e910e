"""Weights that change, work that is left behind, operators that are denied: real submissions on the CPU."""

import time

import pytest
from programs import CTYPES, QUICK, RIGHT, task

from kernelgym_env.evaluation.result import Status

FORBID = QUICK.replace(library_ops="forbid")
GEMM = QUICK.replace(library_ops="gemm")

AFFINE = task(
    "        return nn.functional.layer_norm(args[0], (64,), self.g, self.b)",
    "[torch.randn(32, 64)]",
    "        self.g = nn.Parameter(torch.ones(64))\n        self.b = nn.Parameter(torch.zeros(64))",
)
LINEAR = task(
    "        return torch.relu(self.l(args[0]))", "[torch.randn(64, 48)]", "        self.l = nn.Linear(48, 80)"
)


def module(init, body):
    return (
        "import torch\nfrom torch import nn\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n{init}\n    def forward(self, x):\n{body}\n"
    )


# weights


def test_weights_under_another_name_and_shape_are_found(judge):
    renamed = RIGHT.replace(
        "self.w = nn.Parameter(torch.randn(256))", "self.scale = nn.Parameter(torch.randn(256)[None])"
    )
    evaluation = judge(renamed.replace("x * self.w", "x * self.scale[0]"))
    assert evaluation.status is Status.CORRECT, evaluation.feedback


def test_what_is_packed_from_weights_must_be_renewed(judge):
    stale = module(
        "        self.l = nn.Linear(48, 80)\n        self.packed = self.l.weight.detach().t().contiguous()",
        "        return torch.relu(x @ self.packed + self.l.bias)",
    )
    assert judge(stale, LINEAR).status is Status.WRONG
    renewed = module(
        "        self.l = nn.Linear(48, 80)\n        self.seen = None",
        "        if self.seen != self.l.weight._version:\n"
        "            self.packed, self.seen = self.l.weight.detach().t().contiguous(), self.l.weight._version\n"
        "        return torch.relu(x @ self.packed + self.l.bias)",
    )
    evaluation = judge(renewed, LINEAR)
    assert evaluation.status is Status.CORRECT, evaluation.feedback


def test_parameters_that_are_one_and_zero_when_fresh_cannot_be_left_out(judge):
    ignored = module("        pass", "        return nn.functional.layer_norm(x, (64,))")
    assert judge(ignored, AFFINE).status is Status.WRONG
    kept_but_ignored = module(
        "        self.g = nn.Parameter(torch.ones(64))\n        self.b = nn.Parameter(torch.zeros(64))",
        "        return nn.functional.layer_norm(x, (64,))",
    )
    assert judge(kept_but_ignored, AFFINE).status is Status.WRONG
    used = kept_but_ignored.replace("(x, (64,))", "(x, (64,), self.g, self.b)")
    assert judge(used, AFFINE).status is Status.CORRECT


def test_a_weight_scaled_at_construction_is_left_alone(judge):
    # the old name holds other values, so it is not the reference's tensor; nothing is overwritten on either side
    folded = RIGHT.replace("nn.Parameter(torch.randn(256))", "nn.Parameter(2 * torch.randn(256))").replace(
        "x * self.w", "x * (self.w / 2)"
    )
    evaluation = judge(folded)
    assert evaluation.status is Status.CORRECT, evaluation.feedback


# work left behind, objects seen before


def test_a_thread_that_writes_after_the_return_is_seen(judge):
    late = RIGHT.replace("        return (x", "        y = torch.zeros_like(x)\n        z = (x").replace(
        "alpha=0.5)\n",
        "alpha=0.5)\n"
        "        import threading, time\n"
        "        threading.Thread(target=lambda: (time.sleep(0.003), y.copy_(z))).start()\n"
        "        return y\n",
    )
    evaluation = judge(late)
    assert evaluation.status is Status.WRONG
    assert "after the call had returned" in evaluation.feedback


def test_answers_kept_by_address_are_wrong(judge):
    cached = RIGHT.replace(
        "        return (x",
        "        k = (x.data_ptr(), x._version)\n"
        "        self.kept = getattr(self, 'kept', {})\n"
        "        if k in self.kept: return self.kept[k]\n"
        "        self.kept[k] = (x",
    ).replace("alpha=0.5)\n", "alpha=0.5)\n        return self.kept[k]\n")
    assert judge(cached).status is Status.WRONG


def test_reading_the_first_objects_instead_of_the_arguments_is_wrong(judge):
    first = RIGHT.replace(
        "        return (x", "        self.x = getattr(self, 'x', x)\n        x = self.x\n        return (x"
    )
    assert judge(first).status is Status.WRONG


def test_replaced_operators_do_not_touch_the_delivery(judge):
    cheat = (
        "import torch\n"
        "torch.Tensor.copy_ = lambda self, other: self\n"
        "torch.Tensor.data_ptr = lambda self: 0\n"
        "torch.Tensor.contiguous = lambda self: self\n" + RIGHT
    )
    evaluation = judge(cheat)
    assert evaluation.status is Status.CORRECT, evaluation.feedback


@pytest.mark.parametrize(
    "expression", ["y.t().contiguous().t()", "y[:, None].expand(64, 1, 256)[:, 0]", "y.repeat(1, 2)[:, :256]"]
)
def test_outputs_may_lie_in_any_order(judge, expression):
    source = RIGHT.replace("return (x", "y = (x").replace("alpha=0.5)\n", f"alpha=0.5)\n        return {expression}\n")
    evaluation = judge(source)
    assert evaluation.status is Status.CORRECT, evaluation.feedback


# operators


def test_own_kernels_pass_where_operators_are_denied(judge):
    evaluation = judge(CTYPES, protocol=FORBID)
    assert evaluation.status is Status.CORRECT, evaluation.feedback


POLICY = {
    "the reference's own operators": RIGHT,
    "an operator after an own kernel": CTYPES.replace("return run(x, self.w)", "return run(x, self.w).mul(1.0)"),
    "a refusal that is swallowed": CTYPES.replace(
        "return run(x, self.w)",
        "try:\n            return torch.clamp(x * self.w, -1, 1) + 0.5 * x.abs()\n"
        "        except RuntimeError:\n            return run(x, self.w)",
    ),
    "torch.compile": RIGHT.replace(
        "class ModelNew",
        "@torch.compile\ndef f(x, w):\n    return (x * w).clamp(-1, 1) + x.abs() / 2\n\n\nclass ModelNew",
    ).replace("return (x * self.w).clamp_(-1, 1).add_(x.abs(), alpha=0.5)", "return f(x, self.w)"),
}


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.slow if "compile" in name else ()) for name in POLICY]
)
def test_operators_that_do_the_work_are_policy(judge, case):
    evaluation = judge(POLICY[case], protocol=FORBID.replace(deadlines=FORBID.deadlines.__class__(first_call_s=90)))
    assert evaluation.status is Status.POLICY, evaluation.feedback
    assert not evaluation.credited


FREE = {
    "casts and copies": "return run(x.double().float().clone(), self.w)",
    "views and padding": "return torch.cat([run(x[:32].contiguous(), self.w), run(x[32:].contiguous(), self.w)])",
    "a small operator": "s = (self.w * 2 / 2)\n        return run(x, s)",
    "an item": "assert x[0, 0].item() == x[0, 0].item()\n        return run(x, self.w)",
    "fill": "y = torch.zeros_like(x).fill_(3)\n        return run(x, self.w)",
}


@pytest.mark.parametrize("case", FREE)
def test_bookkeeping_is_free(judge, case):
    evaluation = judge(CTYPES.replace("return run(x, self.w)", FREE[case]), protocol=FORBID)
    assert evaluation.status is Status.CORRECT, evaluation.feedback


def test_gemm_lets_products_through_and_nothing_else(judge):
    product = task("        return args[0] @ args[1]", "[torch.randn(64, 48), torch.randn(48, 96)]")
    copy = product.source.replace("class Model(", "class ModelNew(")
    assert judge(copy, product, GEMM).status is Status.CORRECT
    assert judge(copy, product, FORBID).status is Status.POLICY
    fused = task("        return torch.relu(args[0] @ args[1])", "[torch.randn(64, 48), torch.randn(48, 96)]")
    assert judge(fused.source.replace("class Model(", "class ModelNew("), fused, GEMM).status is Status.POLICY


# libraries


NUMPY = """
import numpy as np
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        a, w = np.asarray(x), self.w.detach().numpy()
        return torch.from_numpy(np.clip(a * w, -1, 1) + np.float32(0.5) * np.abs(a))
"""

THREAD = """
import threading
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        y, w = torch.empty_like(x), self.w.detach()

        def compute():
            torch.clamp(x * w, -1, 1, out=y)
            y.add_(x.abs(), alpha=0.5)

        worker = threading.Thread(target=compute)
        worker.start()
        worker.join()
        return y
"""

LARGE = task(
    "        return torch.clamp(args[0] * self.w, -1, 1) + 0.5 * args[0].abs()",
    "[torch.randn(4096, 256)]",
    "        self.w = nn.Parameter(torch.randn(256))",
)


@pytest.mark.parametrize("source", [NUMPY, THREAD], ids=["numpy", "operators on another thread"])
def test_work_that_passes_no_dispatcher_of_the_call_is_seen(judge, source):
    evaluation = judge(source, LARGE, FORBID)
    assert evaluation.status is Status.POLICY, evaluation.feedback
    assert [finding.id for finding in evaluation.findings] == ["A4" if source is NUMPY else "A3"]
    assert judge(source, LARGE, QUICK).status is Status.CORRECT


SMALL = task("        return torch.relu(args[0]) * 2", "[torch.randn(64, 256)]")
AROUND = """
import gc
import threading
import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

if {patched}:
    for found in gc.get_objects():
        if isinstance(found, type) and issubclass(found, TorchDispatchMode) and "__torch_dispatch__" in vars(found):
            found.__torch_dispatch__ = lambda self, func, types, args=(), kwargs=None: func(*args, **(kwargs or {{}}))


def elsewhere(compute):
    got = []
    thread = threading.Thread(target=lambda: got.append(compute()))
    thread.start()
    thread.join()
    return got[0]


class ModelNew(nn.Module):
    def forward(self, x):
        {how}
"""
WAYS_AROUND = {
    "without dispatch": "with torch._C._DisableTorchDispatch(): return torch.relu(x) * 2",
    "without modes": "with _disable_current_modes(): return torch.relu(x) * 2",
    "a product alone": "with _disable_current_modes(): return (x + x.abs())",
    "on a thread": "return elsewhere(lambda: torch.relu(x) * 2)",
    "in place": "y = x.clone()\n        with _disable_current_modes(): return y.clamp_(min=0).mul_(2)",
    "numpy": "return torch.from_numpy(np.maximum(x.numpy(), 0) * 2)",
    "patched": "return torch.relu(x) * 2",
    "pure python": "return torch.tensor([[max(v, 0.0) * 2 for v in row] for row in x.tolist()])",
}


@pytest.mark.parametrize("way", WAYS_AROUND)
def test_ways_around_the_refusal_are_seen_however_little_they_do(judge, way):
    evaluation = judge(AROUND.format(how=WAYS_AROUND[way], patched=way == "patched"), SMALL, FORBID)
    assert evaluation.status is Status.POLICY, evaluation.feedback
    assert evaluation.findings[0].severity == "hard"


def test_a_record_that_is_ended_is_told(judge):
    source = AROUND.format(patched=False, how="return elsewhere(lambda: torch.relu(x) * 2)").replace(
        "        return elsewhere", "        try:\n            torch._C._autograd._disable_profiler()\n"
        "        except RuntimeError:\n            pass\n        return elsewhere",
    )  # fmt: skip
    assert judge(source, SMALL, FORBID).status is Status.POLICY


def test_own_code_is_not_taken_for_a_library(judge):
    assert judge(CTYPES, LARGE, FORBID).status is Status.CORRECT


@pytest.mark.parametrize("how", ["os._exit(7)", "os.kill(os.getpid(), 9)", "ctypes.string_at(8)"])
def test_an_end_while_the_threads_are_looked_at_is_a_crash(judge, how):
    source = CTYPES.replace(
        "    def forward(self, x):", f"    calls = 0\n\n    def forward(self, x):\n        self.calls += 1\n"
        f"        if self.calls > 40: {how}",
    )  # fmt: skip
    start = time.monotonic()
    evaluation = judge(source, LARGE, FORBID)
    assert evaluation.status is Status.CRASH, evaluation.feedback
    assert time.monotonic() - start < 40


# contents


def memo(key):
    return RIGHT.replace("        self.w =", "        self.known = {}\n        self.w =").replace(
        "        return (x * self.w).clamp_(-1, 1).add_(x.abs(), alpha=0.5)",
        f"        key = {key}\n        if key not in self.known:\n"
        "            self.known[key] = (x * self.w).clamp_(-1, 1).add_(x.abs(), alpha=0.5)\n"
        "        return self.known[key].clone()",
    )


@pytest.mark.parametrize(
    "key",
    ["x.flatten()[::1024].numpy().tobytes()", "(self.w._version, float(x[0, 0]), float(x[-1, -1]))"],
    ids=["sixteen elements", "two corners"],
)
def test_a_memo_by_a_few_elements_is_found_out(judge, key):
    evaluation = judge(memo(key))
    assert evaluation.status is Status.WRONG, evaluation.feedback
    assert evaluation.findings and evaluation.findings[0].severity == "soft"
