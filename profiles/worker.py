"""One measuring process: ``python -P -m profiles.worker``, spoken to over its standard input and output.

The first line is a job; the worker answers when it is ready, then each round with samples, until its input ends.
Standard output carries the protocol alone: what a model prints goes to standard error.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

import torch

from planner.errors import ModelError, PlannerError
from planner.problem.canonical import document_bytes
from planner.problem.contract import Contract
from planner.problem.reading import read_document
from profiles.blame import FAILURES, blame
from profiles.describe import describe
from profiles.device import require_device
from profiles.protocol import EXTRA_TASKS, Failure, Job, Memory, Refusal, Reply, Round, Sample, Start
from profiles.tasks import Tasks
from profiles.work import Clock, clock_of

__all__ = ["main"]

_Write = Callable[[Contract], None]


def main() -> int:
    """Serve one job."""
    lines, write = _private_stdin(), _writer(_private_stdout())
    try:
        _serve(lines, write)
    except PlannerError as error:
        write(Refusal(code=error.code, message=error.message[:4096], pointer=error.pointer[:1024]))
        return 1
    return 0


def _private_stdin() -> BinaryIO:
    """The real standard input for the protocol; a model that reads descriptor 0 finds it empty."""
    descriptor, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return os.fdopen(descriptor, "rb")


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
    tasks = _tasks(job, device)
    start = _prepare(job, tasks)
    write(start)
    gc.collect()
    gc.freeze()  # what exists now stays: collections during the rounds stay short
    clock = clock_of(device)
    for line in lines:
        write(_round(read_document(line, Round), tasks, clock))


def _tasks(job: Job, device: torch.device) -> Tasks:
    """Raises ``ModelError`` for whatever a user's model raises while it is cut and followed."""
    try:
        return Tasks(job, device)
    except PlannerError:
        raise
    except FAILURES as error:
        message = f"the model cannot be cut into layers: {blame(error)}"
        raise ModelError(message, code="model_failed", pointer=job.source.factory) from None


def _round(order: Round, tasks: Tasks, clock: Clock) -> Reply:
    samples: list[Sample] = []
    too_large: list[int] = []
    failed: list[Failure] = []
    not_finite: list[int] = []
    for number in order.tasks:
        try:
            if tasks.is_new(number) and not tasks.gives_finite_values(number):
                not_finite.append(number)
            samples.append(Sample(task=number, **tasks.task(number).run(clock)._asdict()))
        except PlannerError:
            raise
        except FAILURES as error:
            if _is_memory(error):
                too_large.append(number)
            else:
                failed.append(_failure(number, tasks, error))
    for number in (*too_large, *(failure.task for failure in failed)):
        tasks.drop(number)
    return Reply(samples=tuple(samples), too_large=tuple(too_large), failed=tuple(failed), not_finite=tuple(not_finite))


def _is_memory(error: BaseException) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def _failure(task: int, tasks: Tasks, error: BaseException) -> Failure:
    return Failure(task=task, reason=f"layer {tasks.layer_of(task).id!r}: {blame(error)}")


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
    memory: list[Memory] = []
    failed = list(tasks.failures) if job.rank == 0 else []
    for number in range(job.rank, tasks.num_layer_tasks, job.num_ranks):
        try:
            if tasks.is_known(number):
                memory.append(_memory(number, tasks))
        except PlannerError:
            raise
        except FAILURES as error:
            failed.append(_failure(number, tasks, error))
    return Start(
        description=description,
        memory=tuple(memory),
        too_large=tuple(_too_large(memory, tasks, description.usable_bytes)),
        failed=tuple(failed),
    )


def _memory(task: int, tasks: Tasks) -> Memory:
    split = tasks.split_memory(task)
    kept, peak = (None, None) if split is None else split
    return Memory(task=task, **tasks.memory(task)._asdict(), split_kept_bytes=kept, split_peak_bytes=peak)


def _too_large(memory: list[Memory], tasks: Tasks, usable_bytes: int) -> Iterator[int]:
    """Tasks that do not fit, whole and split."""
    split = {task: tasks.num_layer_tasks + len(EXTRA_TASKS) + place for place, task in enumerate(tasks.split)}
    for found in memory:
        if _needed(found) > usable_bytes:
            yield found.task
        kept = found.input_bytes + found.output_bytes + (found.split_kept_bytes or 0)
        if found.task in split and kept + (found.split_peak_bytes or 0) > usable_bytes:
            yield split[found.task]


def _needed(memory: Memory) -> int:
    kept = memory.saved_bytes + memory.input_bytes + memory.output_bytes
    return max(memory.input_bytes + memory.peak_forward_bytes, kept + memory.peak_backward_bytes)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # threads that a model left running do not hold it up
