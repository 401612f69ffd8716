"""One measuring process: ``python -P -m profiles.worker``, spoken to over its standard input and output.

The first line is a job; the worker answers when it is ready, then each round with samples, until its input ends.
Standard output carries the protocol alone: what a model prints goes to standard error.
"""

import gc
import logging
import os
import sys
from collections.abc import Callable
from typing import BinaryIO

import torch

from planner.errors import PlannerError
from planner.problem.canonical import document_bytes
from planner.problem.contract import Contract
from planner.problem.reading import read_document
from profiles.describe import describe
from profiles.device import require_device
from profiles.protocol import Job, Memory, Refusal, Reply, Round, Sample, Start
from profiles.tasks import Tasks
from profiles.work import Clock, clock_of

__all__ = ["main"]

_log = logging.getLogger(__name__)
_Write = Callable[[Contract], None]


def main() -> int:
    """Serve one job."""
    lines, write = sys.stdin.buffer, _writer(_private_stdout())
    try:
        _serve(lines, write)
    except PlannerError as error:
        write(Refusal(code=error.code, message=error.message[:4096], pointer=error.pointer[:1024]))
        return 1
    return 0


def _private_stdout() -> BinaryIO:
    """The real standard output for the protocol; descriptor 1 becomes standard error."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(descriptor, "wb")


def _writer(output: BinaryIO) -> _Write:
    def write(document: Contract) -> None:
        output.write(document_bytes(document) + b"\n")
        output.flush()

    return write


def _serve(lines: BinaryIO, write: _Write) -> None:
    job = read_document(lines.readline(), Job)
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed + job.rank)
    device = _device(job)
    tasks = Tasks(job, device)
    start = _prepare(job, tasks)
    write(start)
    gc.collect()
    gc.freeze()  # what exists now stays: collections during the rounds stay short
    clock = clock_of(device)
    for line in lines:
        write(_round(read_document(line, Round), tasks, clock))


def _round(order: Round, tasks: Tasks, clock: Clock) -> Reply:
    samples: list[Sample] = []
    too_large: list[int] = []
    failed: list[int] = []
    for number in order.tasks:
        try:
            samples.append(Sample(task=number, **tasks.task(number).run(clock)._asdict()))
        except (MemoryError, torch.OutOfMemoryError):
            too_large.append(number)
        except (IndexError, RuntimeError) as error:  # positions beyond a table, shapes that a layer refuses
            found = too_large if "can't allocate memory" in str(error) else failed
            found.append(number)
            shape = tuple(tasks.shapes[number].value.shape)
            _log.warning("layer %s at %s: %s", tasks.layer_of(number).id, shape, error)
    for number in (*too_large, *failed):
        tasks.drop(number)
    return Reply(samples=tuple(samples), too_large=tuple(too_large), failed=tuple(failed))


def _device(job: Job) -> torch.device:
    require_device(job.device)
    if job.device == "cuda":
        device = torch.device("cuda", job.rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        return device
    return torch.device("cpu")


def _prepare(job: Job, tasks: Tasks) -> Start:
    """Describe the model and count this rank's share of the memory figures."""
    description = describe(job, tasks)
    memory = [
        Memory(task=number, **tasks.memory(number)._asdict())
        for number in range(job.rank, tasks.num_layer_tasks, job.num_ranks)
    ]
    return Start(
        description=description if job.rank == 0 else None,
        memory=tuple(memory),
        too_large=tuple(m.task for m in memory if _needed(m) > description.usable_bytes),
    )


def _needed(memory: Memory) -> int:
    kept = memory.saved_bytes + memory.input_bytes + memory.output_bytes
    return max(memory.input_bytes + memory.peak_forward_bytes, kept + memory.peak_backward_bytes)


if __name__ == "__main__":
    sys.exit(main())
