"""The demo's commands leave nothing behind, also where a command leaves its own children behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parent.parent.parent

# a command that ends at once and leaves a deaf child in a session of its own
ORPHAN = """
import subprocess, sys
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"
child = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
sys.exit(int(sys.argv[2]))
"""
DEMO = """
import sys
from pathlib import Path
from examples import processes
processes._TO_END_S = 1.0
with processes.Processes({{}}) as started:
    started.start([sys.executable, "-c", "import time; time.sleep(300)"], log=Path({log!r}))
    started.run([sys.executable, "-c", {orphan!r}, {pid!r}, "{code}"], limit_s=60)
    {then}
"""


def demo(folder: Path, *, code: int, then: str) -> subprocess.Popen[bytes]:
    source = DEMO.format(log=str(folder / "log"), orphan=ORPHAN, pid=str(folder / "pid"), code=code, then=then)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", source], env=environment, stdout=subprocess.DEVNULL)


def orphan(folder: Path) -> int:
    until = time.monotonic() + 60
    while not (folder / "pid").exists() or not (folder / "pid").read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    return int((folder / "pid").read_text())


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 1)])
def test_nothing_is_left_when_the_demo_ends(tmp_path: Path, code: int, expected: int) -> None:
    process = demo(tmp_path, code=code, then="pass")
    assert process.wait(timeout=60) == expected
    assert not psutil.pid_exists(orphan(tmp_path))


def test_nothing_is_left_when_the_demo_is_terminated(tmp_path: Path) -> None:
    process = demo(tmp_path, code=0, then="import time; time.sleep(300)")
    left = orphan(tmp_path)
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert [pid for pid in (left, *(child.pid for child in children)) if psutil.pid_exists(pid)] == []
