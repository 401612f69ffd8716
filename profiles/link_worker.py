"""One rank of a probe: ``python -P -m profiles.link_worker``. Reads a job, plays ping-pong, answers with its times."""

import datetime
import os
import random
import sys
import time
from collections.abc import Iterator
from itertools import combinations

import torch
import torch.distributed as dist

from planner.errors import PlannerError
from planner.executor.devices import device_kind
from planner.problem.canonical import document_bytes
from planner.problem.contract import Contract
from planner.problem.reading import read_document
from profiles.device import require_device, usable_bytes
from profiles.link_protocol import Exchange, Exchanges, LinkJob
from profiles.protocol import Refusal

__all__ = ["main"]

_LONGEST_WAIT = datetime.timedelta(minutes=2)


def main() -> int:
    """Serve one job."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print goes to standard error
    job = read_document(sys.stdin.buffer.readline(), LinkJob)
    answer: Contract
    try:
        answer = _probe(job)
    except PlannerError as error:
        answer = Refusal(code=error.code, message=error.message, pointer=error.pointer)
    output.write(document_bytes(answer) + b"\n")
    output.flush()
    return 0


def _probe(job: LinkJob) -> Exchanges:
    require_device(job.device)
    torch.set_num_threads(job.threads)
    cuda = job.device == "cuda"
    if cuda:
        torch.cuda.set_device(job.rank % torch.cuda.device_count())
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=job.rendezvous,
        rank=job.rank,
        world_size=job.num_ranks,
        timeout=_LONGEST_WAIT,
    )
    try:
        exchanges = tuple(_exchanges(job, torch.device("cuda" if cuda else "cpu")))
        dist.barrier()
    finally:
        dist.destroy_process_group()
    own_bytes = job.usable_bytes if job.usable_bytes is not None else usable_bytes(job.device, job.num_ranks)
    return Exchanges(device_kind=device_kind(torch.device(job.device)), usable_bytes=own_bytes, exchanges=exchanges)


def _exchanges(job: LinkJob, device: torch.device) -> Iterator[Exchange]:
    """All pairs in turn, one at a time; of each pair the lower rank keeps the clock."""
    bodies = [torch.randint(0, 256, (size,), dtype=torch.uint8, device=device) for size in job.message_sizes]
    for first, second in combinations(range(job.num_ranks), 2):
        dist.barrier()
        if job.rank == second:
            _answer(job, bodies, first)
        elif job.rank == first:
            for size, times in zip(job.message_sizes, _ask(job, bodies, second), strict=True):
                yield Exchange(partner=second, message_bytes=size, transfers_ns=tuple(times[job.warm_up :]))


def _ask(job: LinkJob, bodies: list[torch.Tensor], partner: int) -> list[list[int]]:
    """By size, half of each ping-pong. Rounds over all sizes, shuffled: noise is correlated in time."""
    found: list[list[int]] = [[] for _ in bodies]
    for number in range(job.warm_up + job.repeats):
        for place in _order(number, len(bodies)):
            body = bodies[place]
            start_ns = time.perf_counter_ns()
            dist.send(body, partner)
            dist.recv(body, partner)
            if body.device.type == "cuda":
                torch.cuda.synchronize()
            found[place].append((time.perf_counter_ns() - start_ns) // 2)
    return found


def _answer(job: LinkJob, bodies: list[torch.Tensor], partner: int) -> None:
    for number in range(job.warm_up + job.repeats):
        for place in _order(number, len(bodies)):
            dist.recv(bodies[place], partner)
            dist.send(bodies[place], partner)


def _order(number: int, num_sizes: int) -> list[int]:
    """The order of the sizes in a round: another one each time, the same on both ranks."""
    return random.Random(number).sample(range(num_sizes), num_sizes)


if __name__ == "__main__":
    sys.exit(main())
