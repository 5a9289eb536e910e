"""Options, the mode `require`, reports, and a sandbox of which parts are missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from programs import QUICK, RIGHT, TASK

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.sandbox import plan as plans
from kernelgym_env.evaluation.sandbox import probe, trial
from kernelgym_env.evaluation.sandbox.options import SandboxOptions
from kernelgym_env.evaluation.sandbox.plan import LAYERS, missing, on
from kernelgym_env.evaluation.session import Session
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.local import LocalPool


def test_the_layers_in_force_are_in_the_provenance(judge):
    evaluation = judge(RIGHT)
    isolation = evaluation.provenance["isolation"]
    assert list(isolation) == list(LAYERS)
    assert all(state.split(":")[0] in ("on", "off") for state in isolation.values())
    assert all(state == "on" or ": " in state for state in isolation.values())
    assert missing(isolation) == []
    assert evaluation.provenance["sandbox"] == "require"
    # also of one that fails
    assert judge("raise ValueError\n" + RIGHT).provenance["isolation"] == isolation


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memory_gib": 0.5}, "at least 1"),
        ({"memory_gib": "4"}, "number of GiB"),
        ({"memory_gib": True}, "number of GiB"),
        ({"memory_gib": float("nan")}, "number of GiB"),
        ({"cores": 0}, "from 1 to"),
        ({"cores": 1.5}, "whole number"),
        ({"cores": 1_000_000}, "may use"),
    ],
)
def test_limits_out_of_range_are_refused(options, said):
    with pytest.raises(InvalidOptionError, match=said):
        SandboxOptions(**options)


def test_an_unknown_mode_is_refused():
    with pytest.raises(UnknownNameError, match="Allowed: best_effort, require"):
        LocalPool(sandbox="none")


def test_every_guarantee_names_layers_that_exist():
    assert {layer for layers in plans.GUARANTEES.values() for layer in layers} <= set(LAYERS)
    none = dict.fromkeys(LAYERS, "off: for a test")
    assert len(missing(none)) == len(plans.GUARANTEES)
    # one of two layers is enough
    assert not [text for text in missing({**none, "user": "on"}) if text.startswith("signals")]
    assert on({"memory": "on: 3 GiB"}, "memory")
    assert not on({"memory": "once"}, "memory")


@pytest.fixture(scope="module")
def session():
    """A session in this process, of which a test can take away layers."""
    session = Session("cpu", "cpu", 1)
    session.prepare()
    yield session
    session.close()


def _evaluate(session, source=RIGHT, **waived):
    session.zygote.warden.waived = {name: "left out by a test" for name in waived}
    try:
        return session.evaluate(Submission(TASK, source, device="cpu", protocol=QUICK), b"secret", 0)
    finally:
        session.zygote.warden.waived = {}


def _required(session, **waived):
    session.zygote.warden.options = SandboxOptions("require")
    try:
        # a submission that ran would be told
        return _evaluate(session, "raise ValueError('it ran')\n" + RIGHT, **waived)
    finally:
        session.zygote.warden.options = SandboxOptions()


def test_best_effort_goes_on_without_a_layer_and_says_so(session):
    whole = _evaluate(session).provenance["isolation"]
    for layer in ("view", "namespaces", "pids", "user", "seccomp", "landlock_files", "limits", "no_new_privs"):
        if layer == "no_new_privs" and os.geteuid() != 0:
            continue  # two others need it then
        evaluation = _evaluate(session, **{layer: True})
        assert evaluation.status is Status.CORRECT, (layer, evaluation.feedback, evaluation.fault)
        assert evaluation.provenance["isolation"][layer] == "off: left out by a test"
        assert on(whole, layer) or layer == "user"


def test_require_says_which_guarantee_is_missing_and_runs_nothing(session):
    evaluation = _required(session, seccomp=True)
    assert evaluation.status is Status.FAULT
    assert "sandbox='require'" in evaluation.fault
    assert "system calls (seccomp off: left out by a test)" in evaluation.fault
    assert evaluation.feedback == ""
    assert not evaluation.valid
    assert "it ran" not in str(evaluation.to_dict())
    assert "file access" in _required(session, landlock_files=True, view=True).fault


def test_require_is_content_with_one_of_two_layers(session):
    if missing(_evaluate(session).provenance["isolation"]):
        pytest.skip("this machine's sandbox is incomplete")
    for layer in ("landlock_files", "view", "pids"):
        evaluation = _required(session, **{layer: True})
        assert evaluation.status is Status.RUNTIME_ERROR, (layer, evaluation.fault)


PRIVATE = """
import json, os
found = {}
for path in PATHS:
    try:
        open(path).read(1)
        found[path] = "read"
    except OSError as error:
        found[path] = type(error).__name__
for path in ("/tmp/kg_marker_modes", "/etc/kg_marker_modes"):
    try:
        open(path, "w").close()
    except OSError:
        pass
for path in PATHS:
    try:
        os.chmod(path, 0o777)
    except OSError:
        pass
raise ValueError("<<" + json.dumps(sorted(set(found.values()))) + ">>")
"""


@pytest.mark.parametrize("waived", [(), ("view",), ("landlock_files",), ("namespaces", "view", "pids")])
def test_files_stay_private_with_either_mechanism(session, tmp_path, waived):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    source = PRIVATE.replace("PATHS", repr([str(secret), f"{tmp_path}/nothing"]))
    evaluation = _evaluate(session, source + RIGHT, **dict.fromkeys(waived, True))
    states = evaluation.feedback.split("<<")[1].split(">>")[0]
    assert "read" not in states
    assert not os.path.exists("/tmp/kg_marker_modes")
    assert not os.path.exists("/etc/kg_marker_modes")
    # Landlock does not know of modes
    if on(evaluation.provenance["isolation"], "view") or on(evaluation.provenance["isolation"], "user"):
        assert secret.stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a job a user id of its own")
def test_shared_memory_is_removed_where_there_is_no_private_one(session):
    before = set(os.listdir("/dev/shm"))
    source = "open('/dev/shm/kg_left_by_user', 'w').write('x')\n"
    evaluation = _evaluate(session, source + RIGHT, view=True)
    if not on(evaluation.provenance["isolation"], "user"):
        pytest.skip(evaluation.provenance["isolation"]["user"])
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert set(os.listdir("/dev/shm")) <= before


def test_a_trial_keeps_all_that_works(session):
    # with shared host memory in place of a GPU's
    trial.settle(session.zygote, "cpu")
    assert session.zygote.warden.waived == {}


def test_a_trial_leaves_out_as_little_as_it_can(session, monkeypatch, caplog):
    def fails(zygote, device):
        waived = set(zygote.warden.waived)
        return "" if {"proc", "shm"} <= waived else "it does not start"

    monkeypatch.setattr(trial, "_try", fails)
    trial.settle(session.zygote, "cpu")
    assert set(session.zygote.warden.waived) == {"shm", "proc"}
    report = _evaluate_waived(session)
    assert "everybody's" in report["view"] or report["view"].startswith("off")
    assert "writing below /proc" in report["landlock_files"] or report["landlock_files"].startswith("off")
    monkeypatch.setattr(trial, "_try", lambda zygote, device: "no GPU")
    trial.settle(session.zygote, "cpu")
    assert session.zygote.warden.waived == {}
    assert "it does not start" in caplog.text


def _evaluate_waived(session):
    evaluation = session.evaluate(Submission(TASK, RIGHT, device="cpu", protocol=QUICK), b"secret", 0)
    session.zygote.warden.waived = {}
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    return evaluation.provenance["isolation"]


def test_cores_are_limited_and_stay(tmp_path):
    pool = LocalPool(cores=1)
    try:
        source = """
import os, torch
os.sched_setaffinity(0, range(os.cpu_count()))
raise ValueError(f"cores={len(os.sched_getaffinity(0))} threads={torch.get_num_threads()}")
"""
        evaluation = pool.submit(Submission(TASK, source + RIGHT, device="cpu", protocol=QUICK)).result(timeout=120)
    finally:
        pool.close()
    assert "cores=1 threads=1" in evaluation.feedback


def test_the_probe_reports_every_layer():
    report, seconds = probe.look("cpu")
    assert list(report) == list(LAYERS)
    assert 0 < seconds < 5
    report, _ = probe.look("cuda")
    assert report["user"].startswith("off: CUDA") or os.geteuid() != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="takes capabilities away from root")
def test_root_without_capabilities_still_has_a_sandbox(tmp_path):
    if not os.path.exists("/usr/bin/setpriv"):
        pytest.skip("no setpriv")
    code = "from kernelgym_env.evaluation.sandbox.probe import look; import json; print(json.dumps(look()[0]))"
    # roughly what a container's root has
    bounded = ["setpriv", "--bounding-set", "-sys_admin,-net_admin,-sys_ptrace,-sys_nice"]
    done = subprocess.run([*bounded, sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["namespaces"].startswith("off")
    assert on(report, "capabilities")
    assert on(report, "seccomp")
