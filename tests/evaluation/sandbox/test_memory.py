"""Host memory is bounded, whichever way a submission asks for it."""

from __future__ import annotations

import threading
import time

import pytest
from programs import RIGHT

from kernelgym_env.evaluation.result import Status

# spelled so that the longer deadline of a build holds
WAIT = "# load_inline\nimport time\n"
HOGS = {
    "allocations": """
held = []
while True:
    held.append(bytearray(16 << 20))
""",
    "children": """
import os
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(400 << 20)
        time.sleep(60)
time.sleep(60)
""",
    "a shared mapping": """
import mmap
held = mmap.mmap(-1, 4 << 30)
for start in range(0, 4 << 30, 4096):
    held[start] = 1
time.sleep(60)
""",
    "a memory file": """
import os
fd = os.memfd_create("hog")
for _ in range(4096):
    os.write(fd, bytes(1 << 20))
time.sleep(60)
""",
    "files in shared memory": """
with open("/dev/shm/hog", "wb") as file:
    for _ in range(4096):
        file.write(bytes(1 << 20))
time.sleep(60)
""",
}


def _available_gib():
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) / 2**20


@pytest.mark.parametrize("kind", HOGS)
def test_a_hog_is_stopped(judge, kind):
    before, least, stop = _available_gib(), [1e9], threading.Event()

    def watch():
        while not stop.wait(0.02):
            least[0] = min(least[0], _available_gib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.monotonic()
    try:
        evaluation = judge(WAIT + HOGS[kind] + RIGHT)
    finally:
        stop.set()
        watcher.join()
    assert evaluation.status in (Status.RUNTIME_ERROR, Status.CRASH), evaluation.feedback
    assert time.monotonic() - start < 30
    # 1 GiB is allowed; some more is taken before it is noticed, and other processes of this machine come and go
    assert before - least[0] < 3.5
    assert judge(RIGHT).status is Status.CORRECT


def test_the_reason_is_told(judge):
    evaluation = judge(WAIT + HOGS["a shared mapping"] + RIGHT)
    assert "more than the 1.0 GiB of host memory" in evaluation.feedback
