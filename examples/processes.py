"""Commands in process groups of their own, that leave nothing behind however the demo ends."""

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import psutil

__all__ = ["CommandFailedError", "Processes"]

_TO_END_S = 15.0  # after SIGTERM; then SIGKILL
_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


class CommandFailedError(Exception):
    """A command of the demo ended with another exit code than 0."""


class Processes:
    """Starts commands; leaving the ``with`` block ends all that still run, and their children."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {**os.environ, **environment}
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Processes":
        signal.signal(signal.SIGTERM, _leave)
        _adopt_orphans()
        return self

    def __exit__(self, *_: object) -> None:
        """SIGTERM to what was started, some time, SIGKILL to whatever is left of all its descendants."""
        family = psutil.Process().children(recursive=True)
        for process in self._started:
            if process.poll() is None:
                process.terminate()
        _, alive = psutil.wait_procs(family, timeout=_TO_END_S)
        for member in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(alive, timeout=_TO_END_S)

    def start(self, command: Sequence[str], *, log: Path) -> subprocess.Popen[bytes]:
        """In the background; what it says goes to ``log``."""
        print(f"$ {shlex.join(command)} &", flush=True)
        with open(log, "wb") as file:
            process = subprocess.Popen(command, env=self._environment, stdout=file, stderr=file, start_new_session=True)
        self._started.append(process)
        return process

    def run(self, command: Sequence[str], *, limit_s: float) -> None:
        """To its end, its output shown. Raises ``CommandFailedError``."""
        print(f"$ {shlex.join(command)}", flush=True)
        before_s = time.monotonic()
        process = subprocess.Popen(command, env=self._environment, start_new_session=True)
        self._started.append(process)
        try:
            code = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise CommandFailedError(f"{command[0]} did not end within {limit_s:.0f} s") from None
        if code:
            raise CommandFailedError(f"{shlex.join(command)} ended with exit code {code}")
        print(f"  ({time.monotonic() - before_s:.1f} s)\n", flush=True)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _adopt_orphans() -> None:
    """Children of commands that end before them become ours (prctl(2), Linux), so that they are found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
