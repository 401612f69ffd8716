"""The process that ``tests.helpers.nursery`` forks ranks from: one JSON request a line, one JSON answer a line."""

import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from planner.errors import PlannerError

__all__ = ["note"]

_files = Path()


def note(text: str) -> None:
    """Say something while the case runs."""
    with _files.with_suffix(".notes").open("a") as file:
        file.write(text + "\n")


def main() -> None:
    torch.set_num_threads(1)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    left: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = _wait(request["wait"], request["seconds"], left)
        else:
            answer = os.fork()
            if answer == 0:
                _be_rank(request)
            left.add(answer)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def _wait(pid: int, seconds: float, left: set[int]) -> int | None:
    """Exit status of a fork, negative for a signal; None where it still runs."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            left.discard(pid)
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def _be_rank(request: dict[str, Any]) -> None:
    global _files  # this process is one rank from here on
    import tests.helpers.nursery_main as imported  # the cases' own import of this module

    _files = imported._files = Path(request["files"])
    log = os.open(_files.with_suffix(".log"), os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=True)
    try:
        answer = {"result": _run(request)}
    except PlannerError as error:
        answer = {"error": type(error).__name__, "code": error.code, "message": error.message}
    except BaseException as error:  # noqa: BLE001  # the test that asked must see it
        answer = {"error": type(error).__name__, "code": None, "message": str(error)}
        traceback.print_exc()
    _files.with_suffix(".json").write_text(json.dumps(answer))
    sys.stderr.flush()
    os._exit(0 if "result" in answer else 1)


def _run(request: dict[str, Any]) -> Any:
    group = None
    if request["size"] > 1:
        store = dist.TCPStore("127.0.0.1", request["port"], None, False)
        rank, size = request["rank"], request["size"]
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=120))
        group = dist.group.WORLD
    module, _, name = request["function"].partition(":")
    return getattr(importlib.import_module(module), name)(group, **request["arguments"])


if __name__ == "__main__":
    main()
