"""Random hostile submissions: every one gets its evaluation, and nothing of it is left.

Each comes from a seed. ``KERNELGYM_HOSTILE_SEEDS="17 204"`` runs those instead of the usual ones.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from hostile import MOMENTS, Hostile, forged, hostile, shown
from programs import QUICK, RIGHT, TASK, task

import kernelgym_env  # noqa: F401  (registers the environments)
from kernelgym_env import pools, settings
from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.feedback import FEEDBACK_LEVELS, at_level
from kernelgym_env.evaluation.protocols import Deadlines
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.limits import MAX_FEEDBACK_CHARS
from kernelgym_env.pools.local import LocalPool
from kernelgym_env.redteam.watching import Markers, Processes

SHORT = QUICK.replace(
    library_ops="forbid",
    min_blocks=2,
    max_blocks=2,
    budget_s=0.05,
    deadlines=Deadlines(import_s=2.5, build_s=2.5, first_call_s=2.5, run_s=2.5),
)
QUICK_ONES = range(25)
ALL = range(1000, 1520)
PROBE_EVERY = 50
THROUGH_ENV_EVERY = 4
_PLACES = ("/tmp", "/var/tmp", "/dev/shm")
_JOB_USERS = range(61_184, 61_184 + 4_096)
_SLACK = 4
_MARKER = "kg_marker_h"


def seeds(usual: range) -> list[int]:
    return [int(seed) for seed in os.environ.get("KERNELGYM_HOSTILE_SEEDS", "").split()] or list(usual)


def suspicious(path: Path) -> bool:
    """Whether a new file can be of these programs; others make files too, and red-team cases leave other markers."""
    if _MARKER in path.name:
        return True
    try:
        return path.lstat().st_uid in _JOB_USERS
    except OSError:
        return False


def ipc() -> set[str]:
    """System V objects of submissions: kind and id."""
    users = {str(user) for user in (*_JOB_USERS, *([os.getuid()] if os.getuid() else []))}
    found = set()
    for kind in ("shm", "sem", "msg"):
        rows = [line.split() for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()]
        for row in rows[1:]:
            entry = dict(zip(rows[0], row, strict=False))
            if users & {entry["uid"], entry["cuid"]}:
                found.add(f"System V {kind} {row[1]}")
    return found


def files(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


class Yard:
    """A pool, and what lay around before anything ran in it."""

    def __init__(self) -> None:
        self.markers, self.running = Markers(), Processes()
        self.seen: set[Path] = set()
        self.listed = {place: set(os.listdir(place)) for place in _PLACES}
        self.ipc = ipc()
        self.before = (files("self"), threading.active_count())
        self.pool = LocalPool(threads=1)
        self.key = f"hostile-{id(self)}"
        pools.register(self.key, lambda: self.pool)
        self.env = gym.make(
            "KernelGym/Kernel-v0",
            task=TASK.source,
            device="cpu",
            protocol=SHORT,
            library_ops="allow",
            pool=self.key,
            turns=1000,
        )
        self.env.reset(seed=0)
        self.statuses: Counter[str] = Counter()
        for _ in range(2):
            assert self.probe() == ""
        self.settle()

    def settle(self) -> None:
        """Note which processes are the judge's now, and what they hold."""
        self.restarts = self.pool.stats()["judge_restarts"]
        self.judge = self.pool.stats()["judges"]["cpu"]
        (self.zygote,) = processes.children(self.judge)
        (self.folder,) = settings.runtime_dir().glob(f"judge-{self.judge}-*")
        self.usual = self.counts()

    def counts(self) -> dict[str, int]:
        return {
            "files of this process": files("self"),
            "threads of this process": threading.active_count(),
            "files of the judge": files(self.judge),
            "threads of the judge": threads(self.judge),
            "files of the fork server": files(self.zygote),
        }

    def probe(self) -> str:
        """What is wrong with the evaluation of a known good kernel."""
        submission = Submission(TASK, RIGHT, device="cpu", protocol=QUICK)
        evaluation = self.pool.submit(submission).result(timeout=300)
        return "" if evaluation.correct else f"a good kernel is {evaluation.status}: {evaluation.feedback}"

    def judged(self, program: Hostile) -> list[str]:
        """Judge a program; what is wrong with its evaluation."""
        submission = Submission(TASK, program.source, device="cpu", protocol=SHORT, library_ops=program.library_ops)
        return self.wrong_with(self.pool.submit(submission).result(timeout=300))

    def stepped(self, program: Hostile) -> list[str]:
        """The same by the environment's `step`."""
        fenced = f"Here it is.\n```python\n{program.source}\n```\n" if program.seed % 3 else program.source
        observation, reward, terminated, truncated, info = self.env.step(fenced)
        problems = self.wrong_with(Evaluation.from_dict(info["evaluation"]))
        if not self.env.observation_space.contains(observation):
            problems.append("the observation is not in its space")
        if not (isinstance(reward, float) and reward >= 0) or truncated or not info["valid"]:
            problems.append(f"reward {reward!r}, truncated {truncated}")
        if terminated or truncated:
            self.env.reset()
        return problems

    def wrong_with(self, evaluation: Evaluation) -> list[str]:
        self.statuses[evaluation.status.value] += 1
        problems = []
        if evaluation.status in (Status.FAULT, Status.TASK_INVALID):
            problems.append(f"{evaluation.status}: {evaluation.fault or evaluation.feedback}")
        text = json.dumps(evaluation.to_dict())
        if json.dumps(Evaluation.from_dict(json.loads(text)).to_dict()) != text:
            problems.append("the evaluation does not survive JSON")
        for told in (*texts(evaluation.to_dict()), *(at_level(evaluation, level) for level in FEEDBACK_LEVELS)):
            if len(told) > MAX_FEEDBACK_CHARS or not printable(told):
                problems.append(f"unfit text of {len(told)} characters: {told[:200]!r}")
        return problems

    def left(self) -> list[str]:
        """What is left of the last submission."""
        problems = [f"process {pid}" for pid in self.running.left([self.judge], 3.0)]
        for path in self.markers.new():
            if suspicious(path) and path not in self.seen:
                self.seen.add(path)
                problems.append(f"marker {path}")
        for place in _PLACES:
            new = set(os.listdir(place)) - self.listed[place]
            problems += [f"file {place}/{name}" for name in new if suspicious(Path(place, name))]
            self.listed[place] |= new
        problems += sorted(ipc() - self.ipc)
        problems += [f"folder {path}" for path in self.folder.glob("job-*")]
        if self.pool.stats()["judge_restarts"] != self.restarts:
            self.probe()
            self.settle()
            return [*problems, "the judge was replaced; its log says why"]
        end = time.monotonic() + 3.0
        while (grown := self.grown()) and time.monotonic() < end:
            time.sleep(0.05)
        return problems + grown

    def grown(self) -> list[str]:
        now = self.counts()
        return [f"{now[what]} {what}, not {usual}" for what, usual in self.usual.items() if now[what] > usual + _SLACK]

    def close(self) -> list[str]:
        """End everything; what is left after that."""
        problems = self.left()
        self.env.close()
        self.pool.close()
        for pid in (self.judge, self.zygote):
            if Path(f"/proc/{pid}").exists():
                problems.append(f"process {pid} outlives its pool")
        if self.folder.exists():
            problems.append(f"folder {self.folder} outlives its pool")
        now = (files("self"), threading.active_count())
        if now[0] > self.before[0] + 1 or now[1] > self.before[1]:
            problems.append(f"files and threads: {now}, before {self.before}")
        return problems


def texts(data: Any) -> Iterator[str]:
    """Every text in plain data."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from texts(key)
            yield from texts(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            yield from texts(value)


def printable(text: str) -> bool:
    """Whether any file and any terminal can take it."""
    return all(letter in "\n\t" or (ord(letter) >= 32 and not 0x7F <= ord(letter) < 0xA0) for letter in text) and (
        text.encode("utf-8", "replace").decode() == text
    )


def run(numbers: list[int]) -> str:
    """Run the programs of these seeds; a report."""
    yard = Yard()
    failures: list[str] = []
    start = time.monotonic()
    longest = (0.0, 0)
    try:
        for count, seed in enumerate(numbers, 1):
            program = hostile(seed)
            act = yard.stepped if count % THROUGH_ENV_EVERY == 0 else yard.judged
            began = time.monotonic()
            try:
                problems = act(program)
            except Exception as error:  # nothing that a submission does may raise here
                problems = [f"{type(error).__name__}: {error}"]
            longest = max(longest, (time.monotonic() - began, seed))
            problems += yard.left()
            if count % PROBE_EVERY == 0 and (problem := yard.probe()):
                problems.append(problem)
            if problems:
                failures.append("\n  ".join([f"seed {seed}:", *problems]) + f"\n{shown(program)}")
            if len(failures) >= 10:
                break
    finally:
        problems = yard.close()
    if problems:
        failures.append("\n  ".join(["at the end:", *problems]))
    report = (
        f"{sum(yard.statuses.values())} sources in {time.monotonic() - start:.0f} s, {dict(yard.statuses)}, "
        f"longest {longest[0]:.1f} s (seed {longest[1]})"
    )
    assert not failures, "\n\n".join([report, *failures])
    return report


def test_some_hostile_sources_leave_nothing_behind() -> None:
    print(run(seeds(QUICK_ONES)))


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_hundreds_of_hostile_sources_leave_nothing_behind() -> None:
    print(run(seeds(ALL)))


def test_a_seed_makes_the_same_program_again() -> None:
    assert [hostile(seed) for seed in range(100)] == [hostile(seed) for seed in range(100)]
    assert len({hostile(seed).source for seed in range(300)}) > 290


def test_the_programs_are_of_every_kind() -> None:
    parts = [part for seed in ALL for part in hostile(seed).parts]
    assert len(ALL) >= 500
    for moment in MOMENTS:
        assert any(f" at {moment}" in part for part in parts), moment
    for kind in ("returns:", "forward:", "parameters:", "entry:", "damaged:", "sent", "a child", "shared memory"):
        assert any(kind in part for part in parts), kind


FORGED = {
    "operators that are no names": ("denied", "reply['found'] = reply['captured'] = [{}]", "forbid"),
    "products that are no names": ("denied", "reply['captured'] = [{}]", "gemm"),
    "calls without number": ("repeat", "reply['calls'] = 10**400", "gemm"),
    "unfit and a tree": ("call", "reply['unfit'], reply['tree'] = 'x', {'t': 5}", "allow"),
    "a stride beyond all": ("call", "reply['tree']['stride'] = [10**30, 1]", "allow"),
    "a reply that is no dict of errors": ("call", "reply['error'] = [reply]", "allow"),
}
ROW = task("        return args[0].abs()", "[torch.randn(1, 256)]")
OWN = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.abs()
"""


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_answer_is_no_fault(local_pool: LocalPool, what: str) -> None:
    op, change, allowed = FORGED[what]
    # torch's operators are refused in that call; where nothing is asked for, they are not found
    clean = "        reply['found'], reply['captured'] = [], []\n        reply.pop('failed', None)\n"
    spoil = f"    if op == 'denied':\n{clean}    if op == {op!r}:\n        {change}"
    source = forged(spoil) + OWN
    submission = Submission(ROW, source, device="cpu", protocol=SHORT, library_ops=allowed)
    before = local_pool.stats()["judge_restarts"]
    evaluation = local_pool.submit(submission).result(timeout=120)
    assert evaluation.status not in (Status.FAULT, Status.TASK_INVALID), evaluation.fault or evaluation.feedback
    assert local_pool.stats()["judge_restarts"] == before
