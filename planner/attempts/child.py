"""One solver child: the process, its pipes and its end.

The child is ``python -P -m MODULE --memory-limit-bytes N``, started anew (never forked) in a session and process group
of its own through ``planner.attempts.lifeline``: when the parent dies by whatever cause the kernel ends the child, or
closes the pipe of its standard input, at which the child ends itself. The thread that starts a child must outlive it.
Writing happens in a thread, so that a child that does not read blocks nobody.
"""

import contextlib
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import NamedTuple

from planner.errors import SolverError

__all__ = ["ChildEnd", "SolverChild"]

_LONGEST_LINE_BYTES = 256 * 2**20
_READ_BYTES = 2**16
_KEPT_LOG_LINES = 50
_POLL_S = 0.01


class ChildEnd(NamedTuple):
    """How a child ended: exit status (negative: the signal) and the last lines of its log."""

    status: int
    log: str


class SolverChild:
    """A running solver child; the one who starts it must ``close`` it."""

    def __init__(self, module: str, *, memory_limit_bytes: int) -> None:
        lifeline = [sys.executable, "-P", "-m", "planner.attempts.lifeline", str(os.getpid())]
        command = [*lifeline, module, "--memory-limit-bytes", str(memory_limit_bytes)]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
        self._partial = bytearray()
        self._log: deque[str] = deque(maxlen=_KEPT_LOG_LINES)
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._read_log)]
        for thread in self._threads:
            thread.start()
        self.ended = False  # its output is at an end: no more lines will come

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: bytes) -> None:
        """Hand one line over; returns at once."""
        self._outgoing.put(line + b"\n")

    def lines(self, *, within_s: float) -> list[bytes]:
        """The complete lines that arrive within ``within_s``; returns as soon as there are some."""
        output = self._process.stdout
        assert output is not None
        if self.ended or not select.select([output], [], [], within_s)[0]:
            return []
        data = os.read(output.fileno(), _READ_BYTES)
        self.ended = not data
        self._partial += data
        if len(self._partial) > _LONGEST_LINE_BYTES:
            raise SolverError(f"the child wrote a line above {_LONGEST_LINE_BYTES} bytes", code="solver_crash")
        *complete, rest = self._partial.split(b"\n") if b"\n" in data else (self._partial,)
        self._partial = bytearray(rest)
        return [bytes(line) for line in complete if line]

    def interrupt(self) -> None:
        """SIGINT: the child returns the best that it has."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL to the child and whatever it started."""
        self._signal(signal.SIGKILL)

    def close(self, *, grace_s: float) -> ChildEnd:
        """Wait up to ``grace_s`` for the child to end by itself, then kill; afterwards nothing of it is left."""
        self._outgoing.put(None)
        until = time.monotonic() + grace_s
        while not self._over() and time.monotonic() < until:
            time.sleep(_POLL_S)
        self.kill()  # also what the child may have started; its own status stays if it ended before
        status = self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return ChildEnd(status, "\n".join(self._log))

    def _over(self) -> bool:
        """Ended, but not yet reaped: its process id still belongs to it."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _write(self) -> None:
        """Body of the writing thread; a child that is gone takes no more lines."""
        stream = self._process.stdin
        assert stream is not None
        with contextlib.suppress(BrokenPipeError):
            while (line := self._outgoing.get()) is not None:
                stream.write(line)
                stream.flush()
        with contextlib.suppress(BrokenPipeError):
            stream.close()

    def _read_log(self) -> None:
        """Body of the thread that empties the child's log, so that a talkative child never blocks."""
        stream = self._process.stderr
        assert stream is not None
        for line in iter(lambda: stream.readline(4096), b""):
            self._log.append(line.decode("utf-8", "replace").rstrip())
