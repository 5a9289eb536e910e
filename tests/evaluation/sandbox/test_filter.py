"""The seccomp filter, run by a small interpreter of its instructions: for both architectures, on any machine."""

from __future__ import annotations

import errno

import pytest

from kernelgym_env.evaluation.sandbox import seccomp

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
OPTIONS = {"alone": False, "hidden": False, "pinned": False}


def run(code, number, *arguments, arch):
    """The filter's answer: ``"allow"``, ``"kill"``, or the number of an error."""
    words = {0: number, 4: arch}
    for index in range(6):
        value = (arguments[index] if index < len(arguments) else 0) & (2**64 - 1)
        words[16 + 8 * index], words[20 + 8 * index] = value & 0xFFFFFFFF, value >> 32
    place = accumulator = 0
    while True:
        operation, then, otherwise, value = code[place]
        place += 1
        if operation == 0x20:
            accumulator = words[value]
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x06:
            return {0x7FFF0000: "allow", 0x80000000: "kill"}.get(value) or value & 0xFFFF
        else:
            met = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            place += then if met else otherwise


@pytest.fixture(params=ARCH)
def machine(request):
    """One architecture."""
    return request.param


@pytest.fixture
def ask(machine):
    """Ask the filter about a call by name or number."""

    def answer(call, *arguments, **options):
        number = call if isinstance(call, int) else seccomp._NUMBERS[call][list(ARCH).index(machine)]
        code = seccomp.program(machine, **{**OPTIONS, **options})
        return run(code, number, *arguments, arch=ARCH[machine])

    return answer


def test_jumps_stay_inside_and_the_program_is_short(machine):
    code = seccomp.program(machine, **OPTIONS)
    assert len(code) < 4096
    assert all(place + max(then, otherwise) < len(code) - 1 for place, (_, then, otherwise, _) in enumerate(code[:-1]))
    assert code[-1][0] == 0x06
    assert len(seccomp._encode(code)) == 8 * len(code)


def test_listed_calls_are_refused_and_others_are_not(machine, ask):
    column = list(ARCH).index(machine)
    listed = {numbers[column] for numbers in seccomp._NUMBERS.values()}
    for name, numbers in seccomp._NUMBERS.items():
        if numbers[column] is not None and name not in seccomp._BY_ARGUMENT:
            assert ask(name) == errno.EPERM, name
    assert all(ask(number) == "allow" for number in range(500) if number not in listed)


def test_another_architecture_is_killed(machine):
    code = seccomp.program(machine, **OPTIONS)
    assert run(code, 0, arch=0x40000003) == "kill"


def test_calls_of_the_second_table_of_x86(ask, machine):
    assert ask(0x40000000 | 39) == (errno.ENOSYS if machine == "x86_64" else "allow")


def test_sockets(ask):
    stream, datagram, raw, packet, flags = 1, 2, 3, 5, 0o2000000
    for family in (0, 2, 10, 16, 17, 38, 40):
        assert ask("socket", family, stream) == errno.EACCES
        assert ask("socket", family, stream, hidden=True) == errno.EACCES
    for call in ("socket", "socketpair"):
        assert ask(call, 1, stream | flags) == ask(call, 1, packet) == "allow"
        assert ask(call, 1, datagram) == ask(call, 1, raw | flags) == errno.EACCES
        assert ask(call, 1, datagram, hidden=True) == "allow"
    assert ask("connect") == errno.EACCES
    assert ask("connect", hidden=True) == "allow"


def test_new_namespaces(ask):
    thread, vfork, fork = 0x3D0F00, 0x4111, 0x1200011
    assert ask("clone", thread) == ask("clone", vfork) == ask("clone", fork) == "allow"
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask("clone", fork | flag) == errno.EPERM
    assert ask("clone3") == errno.ENOSYS
    assert ask("unshare", 0) == errno.EPERM


def test_only_oneself_is_limited_and_scheduled(ask):
    assert ask("prlimit64", 0) == "allow"
    assert ask("prlimit64", 1234) == errno.EPERM
    for call in ("sched_setscheduler", "sched_setattr", "sched_setparam"):
        assert ask(call, 0) == "allow"
        assert ask(call, 1234) == errno.EPERM
        assert ask(call, 1234, alone=True) == "allow"
    for call in ("setpriority", "ioprio_set"):
        assert ask(call, 0, 0) == "allow"
        assert ask(call, 0, 1234) == errno.EPERM
    # made to succeed without effect: 0 is what the caller sees
    assert ask("sched_setaffinity", 0) == "allow"
    assert ask("sched_setaffinity", 1234) == 0
    assert ask("sched_setaffinity", 1234, alone=True) == "allow"
    assert ask("sched_setaffinity", 0, pinned=True) == 0


def test_an_architecture_without_numbers_is_told(monkeypatch):
    monkeypatch.setattr(seccomp, "machine", lambda: "riscv64")
    assert seccomp.install(**OPTIONS) == "off: no filter for riscv64, only for x86_64 and aarch64"
