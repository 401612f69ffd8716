"""Measure what a model's layers cost on this machine and give the profile.

Protocol: all ranks of the node measure at the same time, each round visits every (layer, shape) once in a fresh random
order, many short rounds; the samples of all ranks are pooled. Spreading samples over time and measuring under the
load of the other ranks matters more than repeating. Memory comes from shapes alone (``profiles.memory``). A shape that
does not fit is a valid point: it bounds. Nothing is returned, and so nothing stored, unless all went well.

I and W are measured in the same rounds, but after the first few in every fourth round only: they vary as F and B do,
and a profile must not take twice as long for plans that may never split. F and B decide when it is enough.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from planner.problem.profile import ModelProfile, Statistic
from planner.problem.workload import Optimizer, Precision
from planner.units import NS_PER_SECOND
from profiles.agreement import require_one_model
from profiles.assemble import assemble
from profiles.children import Child, children
from profiles.machine import device_lock
from profiles.points import Measured, TaskTimes, not_finite_texts
from profiles.protocol import EXTRA_TASKS, Grid, Job, Memory, Reply, Round, Start
from profiles.samples import spread_of
from profiles.source import ModelSource

__all__ = ["CaptureOptions", "CaptureProgress", "capture"]

_LEAST_ROUNDS = 3  # even when the time is up
_START_LIMIT_S = 1800.0  # importing, making the model, counting memory
_JUDGE_EVERY = 4  # rounds between two looks at the spread
_SPLIT_EVERY = 4  # rounds, after the first _LEAST_ROUNDS, that have one sample of a task with a split backward


@dataclass(frozen=True)
class CaptureOptions:
    """How to measure; the defaults suit a two-rank run on a shared CPU machine."""

    num_ranks: int = 2  # that measure at once: as many as will train on one machine
    threads: int = 1  # compute threads of a rank
    precision: Precision = "fp32"
    optimizer: Optimizer = "adamw"
    statistic: Statistic = "median_ns"
    target_share: float = 0.02  # stop when every statistic is this sure
    time_limit_ns: int = 60 * NS_PER_SECOND  # of the rounds
    device: Literal["cpu", "cuda"] = "cpu"
    device_kind: str | None = None  # None: the device's own name
    usable_bytes: int | None = None  # of one rank; None: what the device says
    seed: int = 0
    command: str = ""  # kept in the profile
    lock_folder: Path | None = None  # None: the machine's folder for temporary files


class CaptureProgress(NamedTuple):
    """How far a capture is; ``left_ns`` is the most that the rounds will still take."""

    phase: Literal["starting", "measuring", "done"]
    rounds: int
    points_done: int  # sure enough, or known not to fit
    points: int
    left_ns: int


def capture(
    source: ModelSource,
    grid: Grid,
    options: CaptureOptions | None = None,
    *,
    report: Callable[[CaptureProgress], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> ModelProfile:
    """The profile of a model on this machine. ``warn`` hears of layers that give NaN or infinities.

    Raises ``ModelError`` for a model that cannot be made or cut, or differs from rank to rank, ``DeviceError`` where
    the device is busy or a measuring process died.
    """
    options = options or CaptureOptions()
    tell = report or _silent
    tell(CaptureProgress("starting", 0, 0, 0, options.time_limit_ns))
    deadline_s = _START_LIMIT_S + 4 * options.time_limit_ns / NS_PER_SECOND
    no_arguments: list[list[str]] = [[] for _ in range(options.num_ranks)]
    with (
        device_lock(options.lock_folder),
        children("profiles.worker", no_arguments, threads=options.threads, deadline_s=deadline_s) as ranks,
    ):
        measured = _Rounds(ranks, _jobs(source, grid, options), options).run(tell)
    for text in not_finite_texts(measured, grid.shapes):
        (warn or _silent)(text)
    return assemble(measured, source=source, grid=grid, options=options)


def _silent(_: object) -> None:
    return None


def _jobs(source: ModelSource, grid: Grid, options: CaptureOptions) -> list[Job]:
    return [
        Job(
            source=source,
            grid=grid,
            precision=options.precision,
            optimizer=options.optimizer,
            rank=rank,
            num_ranks=options.num_ranks,
            threads=options.threads,
            device=options.device,
            usable_bytes=options.usable_bytes,
            seed=options.seed,
        )
        for rank in range(options.num_ranks)
    ]


@dataclass
class _Rounds:
    """The rounds of one capture."""

    ranks: tuple[Child, ...]
    jobs: list[Job]
    options: CaptureOptions
    times: dict[int, TaskTimes] = field(default_factory=dict)
    too_large: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)  # and why
    not_finite: set[int] = field(default_factory=set)
    split: tuple[int, ...] = ()

    def run(self, tell: Callable[[CaptureProgress], None]) -> Measured:
        starts = self._start()
        require_one_model([start.description for start in starts], self.jobs[0].source.factory)
        description = starts[0].description
        memory: dict[int, Memory] = {found.task: found for start in starts for found in start.memory}
        self.too_large |= {task for start in starts for task in start.too_large}
        self.failed |= {failure.task: failure.reason for start in starts for failure in start.failed}
        num_layer_tasks = len(description.measured) * len(self.jobs[0].grid.shapes)
        tasks = range(num_layer_tasks + len(EXTRA_TASKS))
        self.split = description.split
        self._round(self._due(tasks, 0), random.Random(self.options.seed))
        self.times.clear()  # the first round only warms up
        self._measure(tasks, tell)
        return Measured(
            description=description,
            num_layer_tasks=num_layer_tasks,
            memory=memory,
            times=self.times,
            too_large=frozenset(self.too_large),
            failed=self.failed,
            not_finite=frozenset(self.not_finite),
        )

    def _due(self, tasks: range, rounds: int) -> list[int]:
        """What to measure after so many rounds: all tasks, the split ones (numbered behind them) not every time."""
        whole = [task for task in tasks if task not in self.too_large | self.failed.keys()]
        return whole + [
            number
            for number, task in enumerate(self.split, start=len(tasks))
            if (rounds < _LEAST_ROUNDS or (rounds + number) % _SPLIT_EVERY == 0)
            and not {number, task} & (self.too_large | self.failed.keys())
        ]

    def _start(self) -> list[Start]:
        for rank, job in zip(self.ranks, self.jobs, strict=True):
            rank.send(job)
        return [rank.receive(Start) for rank in self.ranks]

    def _measure(self, tasks: range, tell: Callable[[CaptureProgress], None]) -> None:
        order = random.Random(self.options.seed + 1)
        started_ns, rounds = time.monotonic_ns(), 0
        while True:
            self._round(self._due(tasks, rounds), order)
            rounds += 1
            left_ns = max(0, self.options.time_limit_ns - (time.monotonic_ns() - started_ns))
            done = self._num_sure(tasks) if rounds % _JUDGE_EVERY == 0 or not left_ns else 0
            ended = rounds >= _LEAST_ROUNDS and (not left_ns or done == len(tasks))
            if rounds % _JUDGE_EVERY == 0 or ended:
                tell(CaptureProgress("done" if ended else "measuring", rounds, done, len(tasks), left_ns))
            if ended:
                return

    def _round(self, tasks: list[int], order: random.Random) -> None:
        for rank in self.ranks:
            rank.send(Round(tasks=tuple(order.sample(tasks, len(tasks)))))
        for rank in self.ranks:
            reply = rank.receive(Reply)
            self.too_large |= set(reply.too_large)
            self.failed |= {failure.task: failure.reason for failure in reply.failed}
            self.not_finite |= set(reply.not_finite)
            for sample in reply.samples:
                self.times.setdefault(sample.task, TaskTimes()).add(sample)

    def _num_sure(self, tasks: range) -> int:
        return sum(task in self.too_large or task in self.failed or self._is_sure(task) for task in tasks)

    def _is_sure(self, task: int) -> bool:
        times = self.times[task]
        return all(
            spread_of(found, self.options.statistic, seed=task).worst <= self.options.target_share
            for found in (times.forward_ns, times.backward_ns)
        )
