"""Real submissions through a real judge on the CPU."""

import math
import os
import re
import time
from pathlib import Path

import pytest
from programs import CTYPES, QUICK, REFERENCE, RIGHT, TASK, copy_of, task

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.feedback import at_level
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.limits import MAX_SOURCE_CHARS
from kernelgym_env.tasks import Task


def _judge_pid(pool):
    return pool.stats()["judges"]["cpu"]


def test_a_right_submission_is_correct_and_timed(judge):
    evaluation = judge(RIGHT)
    assert evaluation.status is Status.CORRECT
    assert 0 < evaluation.speedup_low <= evaluation.speedup <= evaluation.speedup_high < math.inf
    assert evaluation.times["candidate"].n >= 3
    assert evaluation.times["eager"].clock == "perf_counter"
    assert 0 <= evaluation.error_ratio <= 1
    assert evaluation.device == "cpu"
    assert evaluation.protocol == "strict+custom"
    assert set(evaluation.provenance) >= {"package", "versions", "protocol", "hardware", "isolation"}


def test_a_slower_submission_is_ranked_below_the_reference(judge):
    slow = RIGHT.replace("return (x", "[x.cumsum(0) for _ in range(100)]\n        return (x")
    evaluation = judge(slow)
    assert evaluation.status is Status.CORRECT
    assert evaluation.speedup < 0.8


def test_stages_add_up_to_the_total(judge):
    stages = judge(RIGHT).stages_s
    parts = sum(seconds for name, seconds in stages.items() if name != "total")
    assert stages["total"] >= parts - 1e-3
    assert parts > 0.5 * stages["total"]


RUNTIME = {
    "raises at import": ("raise ValueError('boo')\n" + RIGHT, "ValueError: boo"),
    "raises in the constructor": (RIGHT.replace("super().__init__()", "raise KeyError('k')"), "KeyError"),
    "raises in the call": (RIGHT.replace("return", "raise IndexError('far') #"), "IndexError: far"),
    "exits at import": ("raise SystemExit(3)\n" + RIGHT, "SystemExit"),
    "interrupts": (RIGHT.replace("return", "raise KeyboardInterrupt #"), "KeyboardInterrupt"),
    "has a broken __str__": (
        "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E()\n" + RIGHT,
        "E: <E whose text could not be made>",
    ),
    "has a huge __str__": ("raise ValueError('begin' + 'x' * 10**7 + 'end')\n" + RIGHT, "begin"),
    "takes other arguments": (RIGHT.replace("def __init__(self)", "def __init__(self, n)"), "TypeError"),
    "is no class": ("ModelNew = 3\n", "TypeError"),
    "deletes the entry": (RIGHT + "\ndel ModelNew\n", "defines no ModelNew"),
}


RUNTIME |= {
    "has a metaclass that lies": (
        "class M(type):\n    __name__ = property(lambda self: 1 / 0)\n"
        "class E(Exception, metaclass=M):\n    def __getattr__(self, name): raise SystemExit\nraise E('text')\n"
        + RIGHT,
        "text",
    ),
    "raises from another": (
        "try:\n    raise ValueError('the cause')\nexcept ValueError as e:\n    raise RuntimeError('outer') from e\n"
        + RIGHT,
        "caused by ValueError: the cause",
    ),
    "raises our own error": (
        "from kernelgym_env.evaluation.wire import WireError\nraise WireError('mine')\n" + RIGHT,
        "mine",
    ),
    "holds half a character": ("raise ValueError('\\ud800')\n" + RIGHT, "\\ud800"),
}


@pytest.mark.parametrize("case", RUNTIME)
def test_exceptions_are_runtime_errors_with_their_text(judge, case):
    source, said = RUNTIME[case]
    evaluation = judge(source)
    assert evaluation.status is Status.RUNTIME_ERROR
    assert said in evaluation.feedback


def test_the_line_of_the_submission_is_shown_without_folders(judge):
    evaluation = judge(RIGHT.replace("return", "raise IndexError('far') #"))
    assert 'File "submission.py", line 12, in forward' in evaluation.feedback
    assert "/job-" not in evaluation.feedback


@pytest.mark.parametrize(
    "source",
    ["", " ", "\0", "x" * 1_000_000, "class ModelNew(", "\ud800", bytes(range(256)).decode("latin-1"), "import torch"],
)
def test_what_is_no_source_costs_no_process(judge, source):
    start = time.perf_counter()
    evaluation = judge(source)
    assert evaluation.status is Status.FORMAT
    assert evaluation.feedback
    assert time.perf_counter() - start < 1.0
    assert len(source) <= MAX_SOURCE_CHARS or str(MAX_SOURCE_CHARS) in evaluation.feedback


CRASHES = {
    "os._exit": "import os\nos._exit(0)\n" + RIGHT,
    "segfault": "import ctypes\nctypes.string_at(0)\n" + RIGHT,
    "abort in the call": RIGHT.replace("return", "__import__('os').abort()\n        return"),
    "closes every descriptor": "import os\nos.closerange(0, 1000)\n" + RIGHT,
    "writes noise on every descriptor": (
        "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'{}' * 500)\n"
        "    except OSError:\n        pass\n" + RIGHT
    ),
}


@pytest.mark.parametrize("case", CRASHES)
def test_crashes_are_told_and_harm_nothing(judge, case):
    evaluation = judge(CRASHES[case])
    assert evaluation.status is Status.CRASH
    assert evaluation.feedback
    assert judge(RIGHT).status is Status.CORRECT


HANGS = {
    "import": "while True: pass\n" + RIGHT,
    "constructor": RIGHT.replace("super().__init__()", "super().__init__()\n        while True: pass"),
    "call": RIGHT.replace("return", "while True: pass\n        return"),
    "deaf to signals": (
        "import signal\nfor s in (15, 2, 14, 1): signal.signal(s, signal.SIG_IGN)\nwhile True: pass\n" + RIGHT
    ),
}


@pytest.mark.parametrize("case", HANGS)
def test_hangs_end_within_a_second_of_the_deadline(judge, case, local_pool):
    judge(RIGHT)
    start = time.perf_counter()
    evaluation = judge(HANGS[case])
    assert evaluation.status is Status.TIMEOUT
    assert "no answer within 4 s" in evaluation.feedback
    own = time.perf_counter() - start - evaluation.stages_s["queue"]  # others that time stop the clock
    assert own < 4 + 1 + 2  # the deadline, the kill, a slow machine


def test_a_hang_in_a_later_call_is_found(judge):
    source = RIGHT.replace(
        "return", "self.n = getattr(self, 'n', 0) + 1\n        while self.n > 2: pass\n        return"
    )
    assert judge(source).status is Status.TIMEOUT


def test_nothing_is_left_running(judge, local_pool):
    orphan = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)\n"
    )
    judge(orphan + RIGHT)
    # spelled so that no build is expected and the short deadline holds
    sleeper = (
        "run = __import__('subproc' 'ess').Popen\nrun(['sleep', '600'], start_new_session=True)\nwhile True: pass\n"
    )
    assert judge(sleeper + RIGHT).status is Status.TIMEOUT
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline and len(processes.descendants(_judge_pid(local_pool))) > 1:
        time.sleep(0.05)
    # the fork server alone
    assert processes.descendants(_judge_pid(local_pool)) == processes.children(_judge_pid(local_pool))


def test_much_output_is_cut_to_head_and_tail(judge):
    source = "print('first line')\nfor _ in range(200): print('x' * 1_000_000)\nprint('last line')\nraise ValueError\n"
    evaluation = judge(source + RIGHT)
    assert evaluation.status is Status.RUNTIME_ERROR
    assert "first line" in evaluation.feedback
    assert "last line" in evaluation.feedback
    assert len(evaluation.feedback) < 10_000


def test_printing_on_the_way_changes_nothing(judge):
    assert judge("print('hello')\n" + RIGHT).status is Status.CORRECT


WRONG = {
    "other values": (RIGHT.replace("0.5", "0.6"), "more than rounding"),
    "other shape": (RIGHT.replace("alpha=0.5)", "alpha=0.5)[:1]"), "[1, 256]"),
    "other dtype": (RIGHT.replace("alpha=0.5)", "alpha=0.5).double()"), "float64"),
    "other structure": (RIGHT.replace("return ", "return 1, "), "got"),
    "nothing": (RIGHT.replace("return", "pass #"), "NoneType"),
    "an object": (RIGHT.replace("return", "return object() #"), "a value of type object"),
    "a tensor subclass": (
        "import torch\nclass Lazy(torch.Tensor): pass\n" + RIGHT.replace("alpha=0.5)", "alpha=0.5).as_subclass(Lazy)"),
        "tensor subclass",
    ),
    "NaN": (RIGHT.replace("alpha=0.5)", "alpha=float('nan'))"), "NaN or infinity"),
    "the first answer again": (
        RIGHT.replace("return", "if hasattr(self, 'y'): return self.y\n        self.y =").replace(
            "alpha=0.5)", "alpha=0.5)\n        return self.y"
        ),
        "more than rounding",
    ),
    "memory nobody wrote": (RIGHT.replace("return", "return torch.empty_like(x) #"), "output"),
    "only in later calls": (
        RIGHT.replace("return", "self.n = getattr(self, 'n', 0) + 1\n        if self.n > 14: return x\n        return"),
        "In a timed call",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_outputs_are_wrong(judge, case):
    source, said = WRONG[case]
    evaluation = judge(source)
    assert evaluation.status is Status.WRONG
    assert said in evaluation.feedback
    assert math.isnan(evaluation.speedup)


def test_overwriting_the_inputs_is_wrong_and_does_not_reach_the_judge(judge):
    assert judge(RIGHT.replace("return", "x.zero_()\n        return")).status is Status.WRONG
    after = RIGHT.replace("return (x", "y = (x").replace("0.5)", "0.5)\n        x.zero_()\n        return y")
    evaluation = judge(after)
    assert evaluation.status is Status.WRONG
    assert "changed its input tensors" in evaluation.feedback


def test_inputs_and_weights_differ_between_evaluations(judge):
    shout = RIGHT.replace("return", "raise ValueError(f'{x.sum().item()} {self.w.sum().item()}') #")
    first, second = judge(shout).feedback, judge(shout).feedback
    values = [text.split("ValueError: ")[1].split()[:2] for text in (first, second)]
    assert values[0][0] != values[1][0]
    assert values[0][1] != values[1][1]


def test_the_argument_object_is_the_same_and_rewritten(judge):
    source = RIGHT.replace(
        "return",
        "self.seen = s = getattr(self, 'seen', []) + [(id(x), x.data_ptr(), x._version, float(x[0, 0]))]\n"
        "        same = len({e[:3] for e in s}) == 1\n"
        "        if len(s) == 3: raise ValueError(f'{same}, {s[0][3] == s[2][3] != s[1][3]}')\n        return",
    )
    assert "ValueError: True, True\n" in judge(source).feedback


STRUCTURES = {
    "tuple": task("        return args[0].sum(-1), args[0].amax(-1)", "[torch.randn(32, 8)]"),
    "dict": task("        return {'a': args[0] * 2, 'b': [args[0].argmax(-1), 3]}", "[torch.randn(32, 8)]"),
    "integer": task("        return torch.bucketize(args[0], args[1])", "[torch.randn(99), torch.arange(-3., 3.)]"),
    "boolean": task("        return args[0] > args[1]", "[torch.randn(99), torch.randn(99)]"),
    "scalar tensor": task(
        "        return nn.functional.cross_entropy(*args)", "[torch.randn(9, 5), torch.arange(9) % 5]"
    ),
    "half": task("        return (args[0] @ args[0].T)", "[torch.randn(16, 16).bfloat16()]"),
    "in place": task("        return args[0].mul_(2).add_(1)", "[torch.randn(50)]"),
    "strided": task("        return args[0] + args[1]", "[torch.randn(8, 6).t(), torch.randn(8).expand(6, 8)]"),
    "plain argument": task("        return args[0] * args[1]", "[torch.randn(50), 3]"),
    "nested arguments": task(
        "        return args[0][0] - args[0][1]['k']", "[[torch.randn(5), {'k': torch.randn(5)}]]"
    ),
    "empty": task("        return args[0][:0], args[0] + 1", "[torch.randn(5)]"),
    "complex": task("        return torch.fft.fft(args[0])", "[torch.randn(64)]"),
    "uncastable": task("        return args[0] @ torch.ones(8, 3)", "[torch.randn(4, 8)]"),
    "batch norm in training mode": task(
        "        return self.n(args[0])", "[torch.randn(16, 4) * 3 + 1]", "        self.n = nn.BatchNorm1d(4)"
    ),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_kind_of_task_accepts_its_own_reference(judge, name):
    evaluation = judge(copy_of(STRUCTURES[name]), STRUCTURES[name])
    assert evaluation.status is Status.CORRECT, evaluation.feedback


INVALID = {
    "does not import": (Task(id="T/x", source="import nowhere\n" + REFERENCE), "does not load"),
    "fails": (task("        raise ValueError('no')", "[torch.randn(3)]"), "the reference fails"),
    "has no inputs": (task("        return 1", "None"), "get_inputs fails"),
    "exits": (task("        raise SystemExit", "[torch.randn(3)]"), "the reference fails"),
    "takes what cannot be passed on": (
        task("        return args[0]", "[torch.eye(3).to_sparse()]"),
        "cannot be passed on",
    ),
    "returns no tensor": (task("        return 5", "[torch.randn(3)]"), "no tensor with an element in it"),
    "returns nothing": (task("        return args[0][:0]", "[torch.randn(3)]"), "no tensor with an element in it"),
    "is random": (task("        return args[0] + torch.rand(1)", "[torch.randn(3)]"), "not deterministic"),
    "returns an object": (task("        return object()", "[torch.randn(3)]"), "a value of type object"),
    "has no fixed shape": (task("        return args[0][args[0] > 0]", "[torch.randn(999)]"), "depends on the input"),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_task_that_cannot_be_judged_is_the_task_s_fault(judge, name):
    reference, said = INVALID[name]
    evaluation = judge(copy_of(reference) if "class Model(" in reference.source else RIGHT, reference)
    assert evaluation.status in (Status.TASK_INVALID, Status.RUNTIME_ERROR)
    if evaluation.status is Status.RUNTIME_ERROR:
        assert name == "does not import"
    else:
        assert said in evaluation.feedback


TRITON = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def clamp(x, w, y, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.load(x + i)
    t = tl.minimum(tl.maximum(v * tl.load(w + tl.arange(0, N)), -1.0), 1.0)
    tl.store(y + i, t + 0.5 * tl.abs(v))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        y = torch.empty_like(x)
        clamp[(x.shape[0],)](x, self.w, y, 256)
        return y
"""


def test_triton_in_the_interpreter_is_checked_but_not_timed(judge):
    pytest.importorskip("triton")
    evaluation = judge(TRITON)
    assert evaluation.status is Status.CORRECT
    assert math.isnan(evaluation.speedup)
    assert "not timed" in evaluation.feedback
    assert judge(TRITON.replace("0.5", "0.25")).status is Status.WRONG


def test_cpp_through_a_compiler_and_ctypes(judge):
    evaluation = judge(CTYPES)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.stages_s["build"] > 0


def test_what_is_no_triton_is_timed_whatever_it_is_called(judge):
    evaluation = judge(CTYPES, backend="triton")
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.speedup > 0
    assert "not timed" not in evaluation.feedback


def test_a_speedup_that_is_not_resolved_counts_at_the_lower_end_that_is_told(judge):
    erratic = RIGHT.replace("import torch\n", "import random, time\nimport torch\n", 1).replace(
        "        return", "        time.sleep(10 ** random.uniform(-4.3, -1.3))\n        return"
    )
    assert erratic.count("sleep") == 1
    evaluation = judge(erratic)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.provenance["unresolved"]
    assert evaluation.speedup == evaluation.speedup_low
    assert "too wide: its lower end counts" in at_level(evaluation, "error")


def test_a_compiler_error_is_shown(judge):
    evaluation = judge(CTYPES.replace("float t =", "flaot t ="))
    assert evaluation.status is Status.COMPILE_ERROR
    assert "flaot" in evaluation.feedback


INLINE = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
torch::Tensor clamp(torch::Tensor x, torch::Tensor w) {
    auto y = torch::empty_like(x);
    const float *a = x.data_ptr<float>(), *b = w.data_ptr<float>();
    float* c = y.data_ptr<float>();
    const long n = w.numel();
    for (long i = 0; i < x.numel(); ++i) {
        const float t = a[i] * b[i % n];
        c[i] = (t < -1 ? -1 : t > 1 ? 1 : t) + 0.5f * std::fabs(a[i]);
    }
    return y;
}
"""
try:
    ext = load_inline(name="clamp_ext", cpp_sources=[SOURCE], functions=["clamp"])
except Exception:
    ext = None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        if ext is None:
            return torch.clamp(x * self.w, -1, 1) + 0.5 * x.abs()
        return ext.clamp(x, self.w)
'''


@pytest.mark.slow
def test_cpp_through_load_inline(judge):
    header = "#include <torch/extension.h>"
    source = INLINE.replace(header, f"{header}\n// {time.time_ns()}")  # else what an earlier run built is found
    evaluation = judge(source, protocol=QUICK.replace(deadlines=QUICK.deadlines.__class__(build_s=300)))
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.stages_s["build"] > 1


@pytest.mark.slow
def test_an_extension_that_fails_is_a_compile_error_although_torch_would_answer(judge):
    # a name that no prototype declares: the compiler is reached only for a moment
    source = INLINE.replace("#include <torch/extension.h>", "#error no headers here")
    evaluation = judge(source)
    assert evaluation.status is Status.COMPILE_ERROR
    assert "no headers here" in evaluation.feedback
    assert " -o main.o" not in evaluation.feedback


def test_further_files_lie_beside_the_source(judge):
    source = RIGHT.replace(
        "import torch\n", "import torch\nfrom pathlib import Path\nFACTOR = float(Path('data/f.txt').read_text())\n"
    )
    evaluation = judge(source.replace("alpha=0.5", "alpha=FACTOR"), files={"data/f.txt": "0.5"})
    assert evaluation.status is Status.CORRECT, evaluation.feedback


def test_the_environment_is_scrubbed(judge, monkeypatch):
    probe = "import os\nraise ValueError(sorted(k for k in os.environ if 'TOKEN' in k or k == 'PYTHONPATH'))\n"
    os.environ["KG_TEST_TOKEN"] = "secret"
    try:
        assert "ValueError: []" in judge(probe + RIGHT).feedback
    finally:
        del os.environ["KG_TEST_TOKEN"]


def test_folders_nested_by_the_thousand_are_removed(judge):
    source = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nraise ValueError('deep')\n"
    assert "deep" in judge(source + RIGHT).feedback
    assert judge(RIGHT).status is Status.CORRECT


@pytest.mark.parametrize("step", ["1e-318", "float('inf')", "float('nan')", "10**400", "'x'"])
def test_a_clock_that_tells_nonsense_is_no_fault(judge, step):
    source = f"import time\nticks = iter(range(10**9))\ntime.perf_counter_ns = lambda: next(ticks) * {step}\n"
    assert judge(source + RIGHT).status in (Status.CRASH, Status.RUNTIME_ERROR)
    assert judge(RIGHT).status is Status.CORRECT


def test_a_dict_in_another_order_is_right_and_a_list_is_no_tuple(judge):
    both = STRUCTURES["dict"]
    swapped = copy_of(both).replace(
        "return {'a': args[0] * 2, 'b': [args[0].argmax(-1), 3]}",
        "return {'b': [args[0].argmax(-1), 3], 'a': args[0] * 2}",
    )
    assert judge(swapped, both).status is Status.CORRECT
    pair = STRUCTURES["tuple"]
    assert (
        judge(
            copy_of(pair).replace(
                "return args[0].sum(-1), args[0].amax(-1)", "return [args[0].sum(-1), args[0].amax(-1)]"
            ),
            pair,
        ).status
        is Status.WRONG
    )


@pytest.mark.parametrize(
    ("forward", "stale"), [("(x * self.folded)", True), ("(x * self.folded * 1.01)", False)], ids=["stale", "wrong"]
)
def test_what_was_computed_from_parameters_at_construction_is_told(judge, forward, stale):
    source = RIGHT.replace("randn(256))", "randn(256))\n        self.folded = self.w.detach().clone()")
    evaluation = judge(source.replace("(x * self.w)", forward))
    assert evaluation.status is Status.WRONG
    assert ("as they were at construction" in evaluation.feedback) is stale
    assert ([finding.id for finding in evaluation.findings] == ["B26"]) is stale


def test_constructor_arguments_keep_their_types(judge):
    source = (
        REFERENCE.replace("def __init__(self):", "def __init__(self, shape, table, dtype):")
        .replace(
            "self.w = nn.Parameter(torch.randn(N))",
            "assert isinstance(shape, tuple) and table[3] == 'x' and dtype is torch.float32\n"
            "        self.w = nn.Parameter(torch.randn(*shape))",
        )
        .replace("return []", "return [(N,), {3: 'x'}, torch.float32]")
    )
    reference = Task(id="Test/Init", source=source)
    evaluation = judge(copy_of(reference), reference)
    assert evaluation.status is Status.CORRECT, evaluation.feedback


def test_scratch_folders_are_removed(judge, local_pool):
    shout = "import os\nraise ValueError('folder=' + os.environ['HOME'].replace('/', '|'))\n"
    text = judge(shout + RIGHT).feedback
    folder = Path(text.split("folder=")[1].split()[0].replace("|", "/"))
    assert not folder.exists()
    assert not folder.parent.exists()
    assert folder.parent.parent.exists()


def test_values_of_hidden_inputs_are_left_out_of_an_error(local_pool):
    source = RIGHT.replace(
        "        return",
        "        raise ValueError(f'{x[0, 0].item()!r} {torch.initial_seed()} {tuple(x.shape)}')\n        return",
    )
    evaluation = local_pool.submit(Submission(TASK, source, device="cpu", protocol=QUICK)).result(timeout=120)
    said = evaluation.feedback.splitlines()[0]
    assert re.fullmatch(r"ValueError: -?\d\.\d… \[…\] \(64, 256\)", said), said
