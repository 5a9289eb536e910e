"""Entering the sandbox: every layer of a plan, one after the other, in the process that is to be confined.

- `enter` -- do it; returns what is in force.

It runs in the forked candidate before anything of a submission is read. Everything that the process needs of this
package must be loaded before, since it cannot be read afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kernelgym_env.evaluation.sandbox import identity, landlock, limits, namespaces, seccomp, view
from kernelgym_env.evaluation.sandbox.kernel import prctl
from kernelgym_env.evaluation.sandbox.plan import LAYERS, Plan, missing, on
from kernelgym_env.evaluation.sandbox.readable import DEVICES, Readable, punch

__all__ = ["Refusal", "enter"]

_PR_SET_NO_NEW_PRIVS = 38


class Refusal(Exception):
    """The process must not run a submission: a guarantee is missing, or the sandbox hides what is needed."""


def enter(plan: Plan, readable: Readable, *, pids: str = "off: not tried", pinned: bool = False) -> dict[str, str]:
    """Confine this process as planned; it must have one thread.

    Args:
        plan: what to do.
        readable: what may be read.
        pids: what became of the layer ``pids``, which a process enters before it is forked.
        pinned: whether the cores of this process were chosen and are to stay.

    Returns:
        By layer, ``"on"`` or ``"on: …"``, or ``"off: …"`` with the reason.

    Raises:
        Refusal: if the plan insists on what is not to be had, or nothing would work inside. The message says which.
    """
    os.umask(0o022)
    report = {name: "off: not tried" for name in LAYERS}

    def layer(name: str, act: Callable[[], str]) -> bool:
        if name in plan.waived:
            report[name] = f"off: {plan.waived[name]}"
            return False
        try:
            report[name] = act()
        except OSError as error:
            report[name] = f"off: {error.strerror}"
        return on(report, name)

    limits.volunteer()
    layer("cgroup", lambda: _join(plan))
    report["memory"] = _memory(plan)
    report["pids"] = pids
    separate = layer("namespaces", namespaces.enter)
    if not separate:
        report["view"] = "off: it takes namespaces"
    elif layer("view", lambda: view.build(plan, readable, pids=on(report, "pids"))) and "shm" in plan.waived:
        report["view"] = f"on: but for /dev/shm, which is everybody's: {plan.waived['shm']}"
    os.chdir(plan.folder)
    alone = layer("user", lambda: identity.drop_user(plan, readable))
    if not alone and plan.uid is not None:
        identity.take_back(plan.folder)
    layer("capabilities", identity.drop_capabilities)
    # in a user namespace of its own a process is counted apart from its user's others
    layer("limits", lambda: limits.apply(plan, own_count=alone or separate))
    layer("no_new_privs", _no_new_privs)
    _landlock(plan, readable, report)
    hidden = on(report, "view")  # and with it the network namespace, to which abstract sockets belong
    layer("seccomp", lambda: seccomp.install(alone=alone, hidden=hidden, pinned=pinned))
    if plan.require and (lacking := missing(report)):
        raise Refusal(f"sandbox='require', but this is missing: {', '.join(lacking)}.")
    _check(plan, readable, report)
    return report


def _join(plan: Plan) -> str:
    if not plan.group:
        return f"off: {plan.why.get('cgroup', 'not asked for')}"
    with open(plan.group, "w", encoding="ascii") as file:
        file.write("0")
    return "on"


def _memory(plan: Plan) -> str:
    if not plan.memory_bytes:
        return "off: no bound was asked for"
    how = "by the control group" if plan.group_memory else "watched"
    return f"on: {plan.memory_bytes / 2**30:.1f} GiB, {how}"


def _no_new_privs() -> str:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return "on"


def _landlock(plan: Plan, readable: Readable, report: dict[str, str]) -> None:
    """All of Landlock in one go."""
    waived = plan.waived.get("landlock_files")
    try:
        report.update(landlock.restrict(None if waived else _rules(plan, readable, report)))
    except OSError as error:
        report["landlock_files"] = f"off: {error.strerror}"
    if waived:
        report["landlock_files"] = f"off: {waived}"
    elif on(report, "landlock_files") and "proc" in plan.waived:
        report["landlock_files"] = f"on: but for writing below /proc: {plan.waived['proc']}"


def _rules(plan: Plan, readable: Readable, report: dict[str, str]) -> landlock.Rules:
    rules = landlock.Rules()
    for root in readable.roots:
        whole, listed = punch(os.path.realpath(root), readable.holes)
        rules.read += whole
        rules.names += listed
    rules.read.append("/proc")
    rules.names.append("/dev")
    rules.devices += [f"/dev/{name}" for name in DEVICES]
    rules.read += plan.reads
    rules.write.append(plan.folder)
    private = on(report, "view")
    if private:
        rules.write += ["/tmp", "/var/tmp"]
    if plan.kind == "cuda":
        rules.devices += view.gpu_nodes()
    if private or plan.kind == "cuda" or on(report, "user"):
        rules.write.append("/dev/shm")
    rules.write.append("/proc" if "proc" in plan.waived else _own_entry())
    return rules


def _own_entry() -> str:
    """This process's folder below ``/proc``, held open so that the kernel keeps the entry that the rule is about."""
    path = f"/proc/{os.readlink('/proc/self')}"
    os.open(path, os.O_PATH | os.O_CLOEXEC)
    return path


def _check(plan: Plan, readable: Readable, report: dict[str, str]) -> None:
    """See to it that what must be readable is.

    Raises:
        Refusal: if it is not. Every submission would fail, and none of them would be at fault.
    """
    try:
        for path in readable.essential:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        file = os.path.join(plan.folder, "tmp", "sandbox")
        with open(file, "w", encoding="ascii"):
            pass
        os.remove(file)
    except OSError as error:
        states = ", ".join(f"{name} {state}" for name, state in report.items())
        raise Refusal(f"The sandbox does not work here: {error.strerror} at {error.filename} ({states}).") from None
