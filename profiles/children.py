"""Several measuring processes at once: started by module name, spoken to by JSON lines, ended with their parent."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TypeVar

from planner.errors import DeviceError, ModelError
from planner.problem.canonical import document_bytes
from planner.problem.contract import Contract
from planner.problem.reading import read_document
from profiles.protocol import Refusal

__all__ = ["Child", "children"]

_Document = TypeVar("_Document", bound=Contract)
_LOG_BYTES = 4096
_LAST_LINES = 3
_GRACE_S = 5.0
_OF_THE_DEVICE = ("device_missing", "no_memory")  # refusals that no other model would avoid


class Child:
    """One process."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.module = module
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which then ends its children
            env={**os.environ, **environment},
        )

    def send(self, document: Contract) -> None:
        """Hand a document over. Raises as ``receive`` does when the process is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(document_bytes(document) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._gone() from None

    def receive(self, kind: type[_Document]) -> _Document:
        """The next answer. Raises ``ModelError`` where the process refused or died."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._gone()
        if line.startswith(b'{"code":'):
            refusal = read_document(line, Refusal)
            error = DeviceError if refusal.code in _OF_THE_DEVICE else ModelError
            raise error(refusal.message, code=refusal.code, pointer=refusal.pointer)
        return read_document(line, kind)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End the process: closed input first, then by force."""
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _gone(self) -> DeviceError:
        status = self._process.wait()
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, end - _LOG_BYTES))
        lines = [line for line in self._log.read().decode("utf-8", errors="replace").splitlines() if line.strip()]
        said = "; ".join(line.strip() for line in lines[-_LAST_LINES:]) or "nothing"
        message = f"a process of {self.module} ended {_how(status)} before it answered; its last output: {said}"
        return DeviceError(message, code="worker_failed")


def _how(status: int) -> str:
    if status >= 0:
        return f"with status {status}"
    name = signal.Signals(-status).name if -status in list(signal.Signals) else f"signal {-status}"
    return f"by {name}" + (" (out of memory?)" if -status == signal.SIGKILL else "")


@contextlib.contextmanager
def children(
    module: str, arguments: Sequence[Sequence[str]], *, threads: int, deadline_s: float
) -> Iterator[tuple[Child, ...]]:
    """One process for each entry of ``arguments``, with ``threads`` compute threads; all are ended at the exit.

    Past ``deadline_s`` they are killed, so that a hanging process ends as a dead one.
    """
    count = str(threads)
    environment = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "PYTHONUNBUFFERED": "1"}
    started: list[Child] = []
    watchdog = threading.Timer(deadline_s, _kill, [started])
    watchdog.daemon = True
    try:
        for one in arguments:
            started.append(Child(module, one, environment))
        watchdog.start()
        yield tuple(started)
    except BaseException:
        _kill(started)
        raise
    finally:
        watchdog.cancel()
        for child in started:
            child.close()


def _kill(started: list[Child]) -> None:
    for child in started:
        child.kill()
