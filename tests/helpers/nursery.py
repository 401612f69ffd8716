"""Ranks that are there at once and may be killed: forks of one process that has imported torch.

A case is a function ``module:name`` as for ``tests.helpers.ranks``; each rank is a process of its own with a process
group of its own, and writes its answer into a file. What it says while it runs, it says with ``note``.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch.distributed import TCPStore

__all__ = ["Job", "Nursery", "RankEnd"]

ROOT = Path(__file__).parents[2]
_POLL_SECONDS = 0.002


class RankEnd(NamedTuple):
    """How a rank ended: its exit status (negative: the signal), what it answered, what it wrote to standard error."""

    status: int
    answer: dict[str, Any]
    log: str

    @property
    def said(self) -> str:
        return f"{self.answer.get('message', '')}\n{self.log}"


class Nursery:
    """Starts jobs; ``modules`` are imported once, before any rank is made."""

    def __init__(self, *modules: str) -> None:
        environment = dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "error::UserWarning", "-m", "tests.helpers.nursery_main", *modules],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, function: str, size: int, folder: Path, **arguments: Any) -> "Job":
        """``size`` ranks run ``function``; their files go into ``folder``, which is made."""
        folder.mkdir()
        store = TCPStore("127.0.0.1", 0, None, True)
        request = {"function": function, "size": size, "port": store.port, "arguments": arguments}
        pids = [self.ask({**request, "rank": rank, "files": str(folder / f"rank-{rank}")}) for rank in range(size)]
        return Job(self, folder, pids, store)

    def run(self, function: str, size: int, folder: Path, **arguments: Any) -> list[RankEnd]:
        return self.start(function, size, folder, **arguments).ends()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=30)


@dataclass
class Job:
    """Ranks that run; the store lives as long as this object."""

    nursery: Nursery
    folder: Path
    pids: list[int]
    store: TCPStore

    def notes(self, rank: int) -> list[str]:
        """What the rank has said so far."""
        path = self.folder / f"rank-{rank}.notes"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, what: Callable[["Job"], bool], seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while not what(self):
            assert time.monotonic() < until, [self.notes(rank) for rank in range(len(self.pids))]
            time.sleep(_POLL_SECONDS)

    def kill(self, rank: int) -> None:
        os.kill(self.pids[rank], signal.SIGKILL)

    def end(self, rank: int, seconds: float = 60.0) -> RankEnd:
        """Wait for the rank to end by itself."""
        status = self.nursery.ask({"wait": self.pids[rank], "seconds": seconds})
        path = self.folder / f"rank-{rank}"
        if status is None:
            os.kill(self.pids[rank], signal.SIGUSR1)  # where does it stand
            time.sleep(1.0)
        log = path.with_suffix(".log").read_text()
        assert status is not None, f"rank {rank} still runs after {seconds} s: {log}"
        answer = path.with_suffix(".json")
        return RankEnd(status, json.loads(answer.read_text()) if answer.exists() else {}, log)

    def ends(self) -> list[RankEnd]:
        return [self.end(rank) for rank in range(len(self.pids))]
