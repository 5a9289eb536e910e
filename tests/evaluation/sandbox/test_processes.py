"""Other processes cannot be signalled, traced, slowed or read; and nothing that a submission starts outlives it."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path

import pytest
from programs import QUICK, RIGHT

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.sandbox import limits


@pytest.fixture
def others(pool):
    """Process ids of the judge, its fork server, and this process."""
    judge = pool.stats()["judges"]["cpu"]
    return [judge, processes.children(judge)[0], os.getpid()]


def _own(pool):
    """Everything below the judge but its fork server."""
    judge = pool.stats()["judges"]["cpu"]
    return set(processes.descendants(judge)) - set(processes.children(judge))


def _marked(mark):
    """Processes that carry a mark in their environment or command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in text:
                found.append(int(entry.name))
    return found


def test_signals_do_not_arrive(inside, others):
    code = f"""
result = {{}}
for pid in [{", ".join(map(str, others))}, os.getppid(), 1]:
    result[pid] = [
        attempt(os.kill, pid, 0),
        attempt(os.kill, pid, signal.SIGTERM),
        attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGTERM)),
    ]
"""
    result = inside(code)
    assert all("done" not in states for states in result.values()), result
    assert all(Path(f"/proc/{pid}").exists() for pid in others)


def test_other_processes_are_not_read_traced_or_slowed(inside, others):
    judge = others[0]
    nice, cores = os.getpriority(os.PRIO_PROCESS, judge), os.sched_getaffinity(judge)
    files = resource.prlimit(judge, resource.RLIMIT_NOFILE)
    score = Path(f"/proc/{judge}/oom_score_adj").read_text()
    code = f"""
import resource

result = {{}}
for pid in [{", ".join(map(str, others))}]:
    buffer = ctypes.create_string_buffer(8)
    result[pid] = [
        call(101, 16, pid, 0, 0),  # ptrace, on x86_64
        call(310, pid, buffer, 1, buffer, 1, 0),  # process_vm_readv
        *[
            attempt(lambda: open(f"/proc/{{pid}}/{{name}}", "rb").read(1))
            for name in ("mem", "environ", "maps", "auxv")
        ],
        *[attempt(os.listdir, f"/proc/{{pid}}/{{name}}") for name in ("fd", "root", "cwd", "map_files")],
        *[attempt(lambda: open(f"/proc/{{pid}}/{{name}}", "w").write("1")) for name in ("oom_score_adj", "comm")],
        attempt(resource.prlimit, pid, resource.RLIMIT_NOFILE, (3, 3)),
        attempt(os.setpriority, os.PRIO_PROCESS, pid, 19),
        attempt(os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0)),
    ]
    attempt(os.sched_setaffinity, pid, {{0}})  # may seem to succeed
"""
    result = inside(code)
    assert all("done" not in states and 0 not in states for states in result.values()), json.dumps(result)
    assert (os.getpriority(os.PRIO_PROCESS, judge), os.sched_getaffinity(judge)) == (nice, cores)
    assert resource.prlimit(judge, resource.RLIMIT_NOFILE) == files
    assert Path(f"/proc/{judge}/oom_score_adj").read_text() == score


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls of x86_64")
def test_system_calls_that_no_kernel_needs_are_refused(inside):
    calls = {
        "unshare a user namespace": (272, 0x10000000),
        "unshare a mount namespace": (272, 0x20000),
        "setns": (308, 0, 0),
        "mount": (165, 0, 0, 0, 0, 0),
        "umount": (166, 0, 0),
        "chroot": (161, 0),
        "pivot_root": (155, 0, 0),
        "bpf": (321, 0, 0, 0),
        "perf_event_open": (298, 0, 0, -1, -1, 0),
        "keyctl": (250, 0, 0),
        "io_uring_setup": (425, 1, 0),
        "userfaultfd": (323, 0),
        "clone into a user namespace": (56, 0x10000000 | 17, 0, 0, 0, 0),
        "shmget": (29, 0, 4096, 0o1600),
        "msgget": (68, 0, 0o1600),
        "open_by_handle_at": (304, -100, 0, 0),
        "init_module": (175, 0, 0, 0),
        "kexec_load": (246, 0, 0, 0, 0),
        "reboot": (169, 0, 0, 0, 0),
        "an x32 call": (0x40000000 | 39,),
    }
    result = inside(f"result = {{name: call(*arguments) for name, arguments in {calls!r}.items()}}\n")
    assert {name: error for name, error in result.items() if error != "EPERM"} == {"an x32 call": "ENOSYS"}


def test_there_are_no_privileges_to_be_had(inside):
    code = """
result = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
result = {name: result[name] for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "NoNewPrivs", "Seccomp", "Uid")}
result["setuid"] = attempt(os.setuid, 0)
"""
    result = inside(code)
    assert {result[name].strip("0") for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {""}
    assert (result["NoNewPrivs"], result["Seccomp"]) == ("1", "2")
    assert "0" not in result["Uid"].split()
    assert result["setuid"] != "done"


def test_limits_are_set(inside):
    code = """
import resource
result = [resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in ("CORE", "NOFILE", "NPROC", "FSIZE")]
"""
    core, files, threads, size = inside(code)
    assert core == [0, 0]
    assert 0 < files[0] == files[1] <= 4096
    assert 0 < threads[0] == threads[1]
    assert 0 < size[0] == size[1]


def _wait_for_nobody(pool, mark, seconds=1.0):
    """Wait until no process is left; the processes that are left after that."""
    end = time.monotonic() + seconds
    while (left := [*_own(pool), *_marked(mark)]) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def test_a_burst_of_children_is_gone_a_second_later(judge, pool):
    burst = """
import os, time
os.environ["KG_MARK"] = "burst"
for _ in range(64):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "600.00271828"])
        os._exit(0)
"""
    assert judge(burst + RIGHT).status is Status.CORRECT
    assert _wait_for_nobody(pool, "600.00271828") == []


@pytest.mark.slow
def test_a_fork_bomb_is_bounded_and_killed(judge, pool):
    # each tries only ten times a second, so as not to disturb whoever else uses this machine
    bomb = """
import os, time
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
    time.sleep(0.1)
"""
    protocol = QUICK.replace(deadlines=QUICK.deadlines.__class__(import_s=3, build_s=3, first_call_s=3, run_s=3))
    assert judge(bomb + RIGHT, protocol=protocol).status in (Status.TIMEOUT, Status.CRASH)
    assert _wait_for_nobody(pool, "no mark") == []
    assert judge(RIGHT).status is Status.CORRECT


def test_the_number_of_processes_is_bounded(inside):
    code = """
children = []
try:
    while len(children) < 3000:
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        children.append(child)
    result = [len(children), ""]
except OSError as error:
    result = [len(children), type(error).__name__]
for child in children:
    os.kill(child, signal.SIGKILL)
"""
    count, error = inside(code)
    assert 64 <= count <= limits.processes()
    assert error == "BlockingIOError"


def test_a_child_that_ignores_signals_and_moved_away_is_killed_at_the_deadline(judge, pool):
    stubborn = """
import os, signal
for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "600.00314159"])
    os._exit(0)
while True:
    pass
"""
    assert judge(stubborn + RIGHT).status is Status.TIMEOUT
    assert _wait_for_nobody(pool, "600.00314159") == []


def test_the_parent_survives(judge, pool):
    before = pool.stats()["judges"]
    source = "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(30)\n" + RIGHT
    evaluation = judge(source)
    assert evaluation.status is Status.RUNTIME_ERROR
    assert "PermissionError" in evaluation.feedback
    assert pool.stats()["judges"] == before


def test_no_shared_memory_is_left(inside):
    names = set(os.listdir("/dev/shm"))
    code = """
from multiprocessing import shared_memory

with open("/dev/shm/kg_left", "w") as file:
    file.write("x")
track = {"track": False} if sys.version_info >= (3, 13) else {}
block = shared_memory.SharedMemory(create=True, size=4096, name="kg_block", **track)
result = os.listdir("/dev/shm")
"""
    assert {"kg_left", "kg_block"} <= set(inside(code))
    assert set(os.listdir("/dev/shm")) - names == set()


def test_shrinking_the_shared_buffers_does_not_hurt_the_judge(judge, pool):
    before = pool.stats()["judges"]
    source = """
import fcntl, os, threading, time


def shrink():
    end = time.monotonic() + 3
    while time.monotonic() < end:
        for name in os.listdir("/proc/self/fd"):
            try:
                if "memfd" in os.readlink(f"/proc/self/fd/{name}"):
                    os.ftruncate(int(name), 0)
            except OSError:
                pass


threading.Thread(target=shrink, daemon=True).start()
"""
    assert judge(source + RIGHT).status is not Status.FAULT
    assert pool.stats()["judges"] == before
    assert json.dumps(pool.stats())
