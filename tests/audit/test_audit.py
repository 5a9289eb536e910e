"""What is found out about references that can be won without the work, and about those that cannot."""

from __future__ import annotations

import json
import time
from pathlib import Path

import gymnasium as gym
import pytest

from kernelgym_env.audit import AuditFile, Auditor, measure
from kernelgym_env.cli import main
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.processes import ran_s
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.tasks import Task, load_tasks
from kernelgym_env.tasks.flaws import MEANINGS, flaws_of, is_audited, shipped_facts, verified
from kernelgym_env.tasks.kernelbench import build
from kernelgym_env.tasks.shapes import small

FRAME = """
import os, time
import torch
from torch import nn

N = 512


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def task(
    forward: str, *, init: str = "pass", names: str = "x", inputs: str = "torch.randn(16, N)", name: str = "T"
) -> Task:
    return Task(f"Audit/{name}", FRAME.format(forward=forward, init=init, names=names, inputs=inputs))


def facts(of: Task, protocol: str = "kernelbench") -> dict:
    return measure(of, get_protocol(protocol), "cpu")


@pytest.mark.parametrize(
    ("forward", "options", "flaws"),
    [
        ("return x * 2 + 1", {}, ()),
        ("return x * 1e-9", {}, ("flaw-zeros", "flaw-constant", "flaw-input-blind")),
        ("return 3 + x * 1e-9", {}, ("flaw-constant", "flaw-input-blind")),
        ("return torch.arange(N) + x * 1e-9", {}, ("flaw-input-blind",)),
        ("return torch.relu(x)", {"inputs": "torch.rand(16, N)"}, ("flaw-identity",)),
        ("return self.norm(x)", {"init": "self.norm = nn.LayerNorm(N)"}, ("flaw-weights-blind",)),
        ("return self.linear(x)", {"init": "self.linear = nn.Linear(N, 8)"}, ()),
        ("return torch.dropout(x, 0.5, True)", {}, ("flaw-random",)),
        ("return x @ x", {}, ("flaw-fails",)),
        ("return (x > 9).any()", {}, ("flaw-zeros", "flaw-constant", "flaw-input-blind")),
        ("return x.mean()", {"inputs": "torch.rand(N)"}, ()),
        ("return (x > 0).long()", {}, ()),
        # the judge refuses these
        ("return x / 0", {}, ("flaw-fails",)),
        ("return x[: int(torch.randint(1, 17, ()))]", {}, ("flaw-random",)),
        ("return x[:0]", {}, ("flaw-zeros", "flaw-input-blind", "flaw-identity", "flaw-fails")),
    ],
)
def test_flaws_are_found(forward, options, flaws):
    found = facts(task(forward, **options))
    assert flaws_of(found, shipped=False) == flaws, found


def test_what_the_judge_refuses_is_a_flaw():
    said = "the task asks for no computation: {} in place of its output would pass"
    for answer, flaw in (("zeros", "zeros"), ("a constant", "constant"), ("a copy of an input", "identity")):
        assert flaws_of({"state": "ok", "judge": said.format(answer)}) == (f"flaw-{flaw}",)
    assert flaws_of({"state": "ok", "judge": "the reference is not deterministic: output differs"}) == ("flaw-random",)
    assert flaws_of({"state": "ok", "judge": "the reference returns a set"}) == ("flaw-fails",)
    assert flaws_of({"state": "ok", "judge": ""}) == flaws_of({"state": "ok"}) == ()


def test_the_protocol_decides():
    small = task("return torch.cat([x, torch.full_like(x, 100.0)]) * 1e-5")
    assert "flaw-input-blind" not in flaws_of(facts(small, "strict"))
    loose = facts(task("return 1 + 2e-3 * torch.sigmoid(x)"), "kernelbench_v0")
    assert loose["accepted"]["constant"] and loose["accepted"]["other_seed"]
    assert not facts(task("return 1 + 2e-3 * torch.sigmoid(x)"))["accepted"]["constant"]


def test_the_best_constant_is_not_the_mean():
    # values 0 and 0.018, nearly all of them 0: only numbers near the middle fit both
    skewed = task("return torch.where(x > 2.5, 0.018, 0.0)")
    assert facts(skewed, "kernelbench_v0")["accepted"]["constant"]
    assert facts(skewed, "kernelbench_v0")["judge"].startswith("the task asks for no computation")


def test_arguments_that_do_not_matter_are_named():
    found = facts(task("return 2 * a + 1e-9 * b", names="a, b", inputs="torch.randn(N), torch.randn(N)"))
    assert found["ignored"] == [1] and not flaws_of(found, shipped=False)


def test_weights_that_are_overwritten_matter():
    found = facts(task("return self.norm(x)", init="self.norm = nn.LayerNorm(N)"))
    assert found["accepted"]["reseeded"] is True and found["accepted"]["redrawn"] is False
    assert facts(task("return x + 1"))["accepted"]["redrawn"] is None


def test_precision_is_told_apart():
    product = task("return x @ x.T", inputs="torch.randn(64, N)")
    strict = facts(product, "strict")["precision"]
    assert {name: entry["passes"] for name, entry in strict.items()} == {"tf32": False, "fp16": False, "bf16": False}
    loose = facts(task("return x.sigmoid()"), "kernelbench_v0")["precision"]
    assert all(entry["passes"] and entry["how"] == "rounded" for entry in loose.values())
    assert facts(task("return x.half()"))["precision"] == {}


def test_sizes_and_times():
    found = facts(task("return self.linear(x)", init="self.linear = nn.Linear(N, 8)"))
    sizes = {"inputs": 16 * 512 * 4, "weights": 4 * (512 * 8 + 8), "output": 16 * 8 * 4}
    assert all(size <= found["bytes"][name] <= size + 1024 for name, size in sizes.items())
    assert found["time_us"] > 0 and found["launch_us"] > 0 and found["noise"] == 0.0
    slow = facts(task("time.sleep(0.02); return x + 1"))
    assert slow["time_us"] > 20_000
    assert "flaw-short" in flaws_of({**found, "time_us": 9.0, "launch_us": 1.0})
    assert "flaw-short" not in flaws_of({**found, "time_us": 11.0, "launch_us": 1.0})


def test_a_compiled_reference_is_held_against_the_eager_one():
    strict = get_protocol("strict")
    found = measure(task("return torch.sin(x) + x"), strict, "cpu", backend="aot_eager")["compiled"]
    assert found == {"backend": "aot_eager", "passes": True, "why": ""}
    other = task("return x * (3 if torch.compiler.is_compiling() else 2)")
    assert measure(other, strict, "cpu", backend="aot_eager")["compiled"]["why"] == "its output differs"
    found = measure(task("return x + 1"), strict, "cpu", backend="no such")["compiled"]
    assert not found["passes"] and "no such" in found["why"]
    assert "compiled" not in facts(task("return x + 1"))


# each in a process of its own


@pytest.fixture(scope="module")
def auditor():
    with Auditor("cpu", protocols=["strict"], deadline_s=8, memory_gib=1.5, threads=1) as made:
        yield made


@pytest.mark.parametrize(
    ("forward", "state"),
    [
        ("time.sleep(60)", "timeout"),
        ("os._exit(3)", "died"),
        ("import signal; os.kill(os.getpid(), signal.SIGKILL)", "died"),
        ("keep = [torch.ones(1 << 26) for _ in range(40)]; time.sleep(60)", "memory"),
    ],
)
def test_a_bad_task_ends_its_own_process_alone(auditor, forward, state):
    start = time.monotonic()
    record = auditor.audit(task(forward))
    assert record["protocols"]["strict"]["state"] == state and record["protocols"]["strict"]["why"]
    assert time.monotonic() - start < 30
    assert auditor.audit(task("return x + 1"))["protocols"]["strict"]["state"] == "ok"


def test_what_a_task_leaves_running_is_ended(auditor, tmp_path):
    mark = tmp_path / "pid"
    leaves = f"import subprocess; p = subprocess.Popen(['sleep', '60']); open({str(mark)!r}, 'w').write(str(p.pid))"
    auditor.audit(task(f"{leaves}; return x + 1"))
    pid = int(mark.read_text())
    end = time.monotonic() + 5
    while ran_s(pid) and "zombie" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_tasks_are_shrunk_where_they_are_audited():
    large = task("return x + 1", inputs="torch.randn(1 << 4, N)").with_sizes({"N": 1 << 30})
    with Auditor("cpu", protocols=["strict"], elements=1 << 16, threads=1) as made:
        record = made.audit(large)
    assert record["scale"] == "small:65536" and record["sizes"]["N"] <= 1 << 12
    assert record["hash"] == large.hash and record["protocols"]["strict"]["state"] == "ok"


@pytest.mark.parametrize("raised", ["SystemExit(3)", "GeneratorExit", "type('End', (BaseException,), {})('x')"])
def test_a_reference_that_raises_no_exception_fails_at_any_size(raised):
    ends = task(f"raise {raised}")
    for elements in (0, 1 << 16):
        with Auditor("cpu", protocols=["strict"], elements=elements, threads=1) as made:
            found = made.audit(ends)["protocols"]["strict"]
        assert flaws_of(found) == ("flaw-fails",) and raised[:4].replace("type", "End") in found["why"]


def test_bad_options():
    for name, value in (("elements", -1), ("deadline_s", 0), ("memory_gib", float("nan")), ("threads", 1.5)):
        with pytest.raises(InvalidOptionError, match=f"{name} of an audit"):
            Auditor("cpu", **{name: value})
    with pytest.raises(InvalidOptionError, match="at least one protocol"):
        Auditor("cpu", protocols=[])
    with pytest.raises(UnknownNameError, match="backend of torch.compile: 'inductr'. Did you mean 'inductor'"):
        Auditor("cpu", backend="inductr")
    with pytest.raises(UnknownNameError, match="Did you mean 'strict'"):
        Auditor("cpu", protocols=["stirct"])


# on disk


def test_a_file_goes_on_where_it_was(tmp_path):
    path = tmp_path / "a.json"
    record = {"hash": "h", "kind": "cpu", "scale": "shipped", "protocols": {"strict": {"state": "ok"}}}
    AuditFile(path).put("A/b", record)
    again = AuditFile(path)
    assert again.has("A/b", "h", kind="cpu", scale="shipped", protocols=["strict"])
    assert not again.has("A/b", "other", kind="cpu", scale="shipped", protocols=["strict"])
    assert not again.has("A/b", "h", kind="cuda", scale="shipped", protocols=["strict"])
    assert not again.has("A/b", "h", kind="cpu", scale="shipped", protocols=["strict", "kernelbench"])
    again.put("A/b", {**record, "protocols": {"kernelbench": {"state": "ok"}}})
    assert set(AuditFile(path).tasks["A/b"]["protocols"]) == {"strict", "kernelbench"}
    again.put("A/b", {**record, "scale": "small:9"})
    assert set(AuditFile(path).tasks["A/b"]["protocols"]) == {"strict"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 99, "tasks": {}}'])
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InvalidOptionError, match=r"a\.json"):
        AuditFile(path)
    assert path.read_text() == text


def test_the_command(tmp_path, capsys):
    (tmp_path / "plain.py").write_text(task("return x + 1").source)
    (tmp_path / "tiny.py").write_text(task("return x * 1e-12").source)
    out = tmp_path / "out.json"
    call = ["audit", str(tmp_path), "--device", "cpu", "--threads", "1", "--small", "--out", str(out)]
    assert main([*call, "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["flaws"]["File/plain"] == {"strict": [], "kernelbench": []}
    assert shown["flaws"]["File/tiny"]["kernelbench"] == ["flaw-zeros", "flaw-constant", "flaw-input-blind"]
    written = out.stat().st_mtime_ns
    assert main([*call, "--id", "File/plain"]) == 0
    printed = capsys.readouterr()
    assert "1 of 1 are in" in printed.err and "kernelbench" in printed.out and out.stat().st_mtime_ns == written
    assert main([*call[:-2], "--protocol", "nope"]) == 2
    capsys.readouterr()
    assert main(["audit", str(tmp_path), "--device", "cpu", "--small", "0"]) == 2
    assert "at least 1, got 0. Leave it out" in capsys.readouterr().err


def test_the_command_says_that_nothing_was_measured(tmp_path, capsys):
    large = task("return x + 1").source.replace("torch.randn(16, N)", "torch.randn(16, 512)")
    for name, source in (("large", large), ("plain", task("return x + 1").source)):
        (tmp_path / f"{name}.py").write_text(source)
    call = ["audit", str(tmp_path), "--device", "cpu", "--threads", "1", "--small", "128"]
    assert main([*call, "--id", "File/large"]) == 1
    printed = capsys.readouterr()
    assert {"smaller", "constants;"} <= set(printed.out.split())
    assert printed.err.endswith("Nothing was measured of any task; states: large.\n")
    assert main(call) == 0  # something was
    assert "Nothing was measured" not in capsys.readouterr().err


def test_every_flaw_of_tags_has_a_meaning(shared_data, monkeypatch):
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    tags = {tag for made in load_tasks("kernelbench") for tag in made.tags if tag.startswith("flaw-")}
    assert tags <= set(MEANINGS)


# the facts that come with the package


@pytest.fixture
def problems(shared_data, monkeypatch):
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    return {made.id: made for made in load_tasks("kernelbench")}


def test_kernelbench_is_audited_at_shipped_sizes(problems):
    records = {name: shipped_facts(made) for name, made in problems.items() if made.level < 4}
    assert len(records) == 250
    for name, record in records.items():
        assert record["scale"] == "shipped" and set(record["protocols"]) == {"strict", "kernelbench"}, name
        assert all(found["state"] == "ok" for found in record["protocols"].values()), name


def test_flaws_of_an_unknown_protocol_are_refused(problems):
    identity = problems["KernelBench/L1-019"]
    for wrong in ("stirct", None, 5, ""):
        for ask in (identity.flaws, lambda name: verified([], name), lambda name: is_audited(identity, name)):
            with pytest.raises(UnknownNameError, match="protocol.*strict"):
                ask(wrong)
    for known in (get_protocol("strict"), get_protocol("strict").replace(trials=1), "strict+custom"):
        assert identity.flaws(known) == identity.flaws("strict") and is_audited(identity, known)
    own = get_protocol("strict").replace(name="own")
    assert identity.flaws(own) == ("flaw-identity",) and not is_audited(identity, own)
    gym.make("KernelGym/RowSum-v0", pool="fake", device="cpu", protocol=own).close()


def test_what_is_listed_gives_way_to_what_was_measured(problems):
    assert problems["KernelBench/L1-037"].flaws("strict") == ()
    assert "flaw-zeros" in problems["KernelBench/L1-037"].flaws("kernelbench")
    assert "flaw-redundant" in problems["KernelBench/L3-036"].flaws("strict")
    # its fp16 and bf16 were not measured, which leaves nothing open
    blind = problems["KernelBench/L3-035"]
    assert blind.flaws("strict") == blind.flaws("kernelbench") == ()
    assert "flaw-input-blind" in blind.flaws("kernelbench_v0")
    assert "flaw-input-blind" in small(blind).flaws("strict")  # another source, of which nothing was measured


def test_tags_are_the_flaws_under_either_audited_protocol(problems):
    for made in problems.values():
        either = {*made.flaws("strict"), *made.flaws("kernelbench")}
        assert tuple(tag for tag in made.tags if tag in MEANINGS) == tuple(flaw for flaw in MEANINGS if flaw in either)
    tagged = [name for name, made in problems.items() if "flaw-short" in made.tags]
    assert tagged == ["KernelBench/L1-012", "KernelBench/L1-095"]
    tags = {name: problems[f"KernelBench/{name}"].tags[3:] for name in ("L1-037", "L2-065", "L3-024", "L3-035")}
    assert tags == {
        "L1-037": ("flaw-zeros", "flaw-constant", "flaw-input-blind"),
        "L2-065": ("flaw-constant",),
        "L3-024": ("flaw-zeros", "flaw-constant", "flaw-input-blind", "flaw-weights-blind"),
        "L3-035": (),
    }


def test_another_text_has_the_tags_of_the_lists_alone(problems):
    other = build(2, 65, "65_x", problems["KernelBench/L2-065"].source + "\n# changed\n", "a test")
    assert other.tags[3:] == other.flaws("strict") == ("flaw-constant", "flaw-input-blind")
