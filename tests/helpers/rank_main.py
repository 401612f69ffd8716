"""One rank of ``tests.helpers.ranks``: reads cases from standard input, runs them, answers in JSON lines."""

import importlib
import json
import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from planner.errors import PlannerError

_groups: dict[int, Any] = {}


def main() -> None:
    port, rank, size, timeout_seconds = sys.argv[1:5]
    answers = os.fdopen(os.dup(1), "w")  # what cases and libraries print goes elsewhere
    os.dup2(2, 1)
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", int(port), None, False)
    timeout = timedelta(seconds=float(timeout_seconds))
    dist.init_process_group("gloo", store=store, rank=int(rank), world_size=int(size), timeout=timeout)
    for line in sys.stdin:
        request = json.loads(line)
        group = _group(request["size"], int(size))
        if int(rank) >= request["size"]:
            continue
        module, _, name = request["case"].partition(":")
        function = getattr(importlib.import_module(module), name)
        try:
            answer = {"result": function(group, **request["arguments"])}
        except PlannerError as error:
            answer = {"result": None, "error": type(error).__name__, "code": error.code, "message": error.message}
        except Exception as error:  # noqa: BLE001  # the test that asked must see it
            answer = {"result": None, "error": type(error).__name__, "code": None, "message": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    dist.destroy_process_group()


def _group(size: int, world_size: int) -> Any:
    """The first ``size`` ranks; every rank asks for it."""
    if size not in _groups:
        _groups[size] = dist.group.WORLD if size == world_size else dist.new_group(list(range(size)))
    return _groups[size]


if __name__ == "__main__":
    main()
