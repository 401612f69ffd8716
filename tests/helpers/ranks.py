"""Real gloo ranks for tests: processes that live through many cases, so that torch is imported once a rank.

A case is a function ``module:name`` called on every rank with the same arguments and the case's folder; what it
returns comes back as JSON. Tensors go through safetensors files in the folder. Nothing is pickled.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

__all__ = ["RankAnswer", "Ranks"]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class RankAnswer:
    """What one rank said: its result, or the error that the case raised."""

    result: Any
    error: str | None = None  # class of the error
    code: str | None = None  # of the error, or of the ended process
    message: str = ""


class Ranks:
    """``size`` processes in one gloo group; the store lives here, as under torchrun, and outlives any rank.

    ``logs``: folder for what each rank writes to standard error, ``rank-<rank>.log``.
    """

    def __init__(self, size: int, *, timeout_seconds: float = 120.0, logs: Path | None = None) -> None:
        self._logs = logs
        self.store = TCPStore("127.0.0.1", 0, None, True)
        self.processes = [self._start(rank, size, timeout_seconds) for rank in range(size)]

    def _start(self, rank: int, size: int, timeout_seconds: float) -> "subprocess.Popen[str]":
        environment = dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
        arguments = [str(self.store.port), str(rank), str(size), str(timeout_seconds)]
        log = (self._logs / f"rank-{rank}.log").open("wb") if self._logs is not None else None
        process = subprocess.Popen(
            [sys.executable, "-P", "-W", "error::UserWarning", "-m", "tests.helpers.rank_main", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        if log is not None:
            log.close()
        return process

    def run(self, function: str, size: int | None = None, **arguments: Any) -> list[RankAnswer]:
        """Run ``function`` on the first ``size`` ranks; answers in the order of the ranks."""
        size = size if size is not None else len(self.processes)
        self.send(function, size, arguments)
        return [self.answer(rank) for rank in range(size)]

    def results(self, function: str, size: int | None = None, **arguments: Any) -> list[Any]:
        """As ``run``; no rank may raise."""
        answers = self.run(function, size, **arguments)
        assert [f"{answer.error}: {answer.message}" for answer in answers if answer.error] == []
        return [answer.result for answer in answers]

    def send(self, function: str, size: int, arguments: Mapping[str, Any]) -> None:
        line = json.dumps({"case": function, "size": size, "arguments": arguments})
        for process in self.processes:  # ranks that are left out take part in making the group
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()

    def answer(self, rank: int) -> RankAnswer:
        """The next answer of a rank; an ``ended`` error where its process is gone."""
        process = self.processes[rank]
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            return RankAnswer(None, "ended", str(process.wait(timeout=30)), self.log(rank))
        return RankAnswer(**json.loads(line))

    def log(self, rank: int) -> str:
        return (self._logs / f"rank-{rank}.log").read_text() if self._logs is not None else ""

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
