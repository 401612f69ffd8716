"""Samples and memory figures of the tasks -> the points of a profile."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from planner.problem.profile import Point, SplitCosts, Statistic, Statistics
from profiles.protocol import EXTRA_TASKS, Description, Memory, Sample
from profiles.samples import spread_of, statistics_of

__all__ = ["Judgement", "Measured", "TaskTimes", "not_finite_texts", "point_of"]


@dataclass
class TaskTimes:
    """All samples of one task, of all ranks, in the order of the rounds."""

    forward_ns: list[int] = field(default_factory=list)
    forward_cpu_ns: list[int] = field(default_factory=list)
    backward_ns: list[int] = field(default_factory=list)
    backward_cpu_ns: list[int] = field(default_factory=list)
    weight_ns: list[int] = field(default_factory=list)
    weight_cpu_ns: list[int] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        self.forward_ns.append(sample.forward_ns)
        self.forward_cpu_ns.append(sample.forward_cpu_ns)
        self.backward_ns.append(sample.backward_ns)
        self.backward_cpu_ns.append(sample.backward_cpu_ns)
        self.weight_ns.append(sample.weight_ns)
        self.weight_cpu_ns.append(sample.weight_cpu_ns)


@dataclass(frozen=True)
class Measured:
    """Everything that the measuring processes found, by number of task."""

    description: Description
    num_layer_tasks: int
    memory: Mapping[int, Memory]
    times: Mapping[int, TaskTimes]
    too_large: frozenset[int]
    failed: Mapping[int, str]  # and why
    not_finite: frozenset[int]  # gave NaN or an infinity, and were measured

    def split_form(self, task: int) -> int | None:
        """The number of the same task with its backward split; None where there is nothing to split."""
        if task not in self.description.split:
            return None
        return self.num_layer_tasks + len(EXTRA_TASKS) + self.description.split.index(task)


def not_finite_texts(measured: Measured, shapes: Sequence[tuple[int, int]]) -> Iterator[str]:
    """One text for each layer that gave NaN or an infinity, with the shapes where it did."""
    for place, fingerprint in enumerate(measured.description.measured):
        first = place * len(shapes)
        where = [f"{size}x{length}" for n, (size, length) in enumerate(shapes) if first + n in measured.not_finite]
        if where:
            number, layer = next(
                (n, layer) for n, layer in enumerate(measured.description.layers) if layer.fingerprint == fingerprint
            )
            yield f"layer {number} ({layer.id!r}) gives NaN or infinities for random values at {', '.join(where[:6])}"


class Judgement(Protocol):
    """Which statistic is a point's time, and how sure it must be."""

    @property
    def statistic(self) -> Statistic: ...
    @property
    def target_share(self) -> float: ...


def point_of(measured: Measured, task: int, shape: tuple[int, int], judgement: Judgement) -> Point:
    """The point of one layer for one shape: samples and tokens."""
    memory = measured.memory.get(task)
    timed = _timed(measured, task, judgement)
    split = None if timed.forward is None else _split(measured, task, judgement.statistic)
    return Point(
        micro_batch_size=shape[0],
        sequence_length=shape[1],
        status=timed.status,
        provenance="measured",
        forward=timed.forward,
        backward=timed.backward,
        backward_input=None if split is None else split.backward_input,
        backward_weight=None if split is None else split.backward_weight,
        split=None if split is None else split.costs,
        saved_bytes=None if memory is None else memory.saved_bytes,
        input_bytes=None if memory is None else memory.input_bytes,
        output_bytes=None if memory is None else memory.output_bytes,
        peak_forward_bytes=None if memory is None else memory.peak_forward_bytes,
        peak_backward_bytes=None if memory is None else memory.peak_backward_bytes,
        failure=_failure(measured, task),
    )


class _Timed(NamedTuple):
    status: Literal["ok", "oom", "noisy", "failed"]
    forward: Statistics | None
    backward: Statistics | None


def _timed(measured: Measured, task: int, judgement: Judgement) -> _Timed:
    if task in measured.failed:
        return _Timed("failed", None, None)
    if task in measured.too_large:
        return _Timed("oom", None, None)
    times, statistic = measured.times[task], judgement.statistic
    both = [times.forward_ns] + ([times.backward_ns] if any(times.backward_ns) else [])
    sure = all(spread_of(found, statistic, seed=task).worst <= judgement.target_share for found in both)
    backward = statistics_of(times.backward_ns, times.backward_cpu_ns, statistic, seed=task) if len(both) > 1 else None
    forward = statistics_of(times.forward_ns, times.forward_cpu_ns, statistic, seed=task)
    return _Timed("ok" if sure else "noisy", forward, backward)


class _Split(NamedTuple):
    backward_input: Statistics
    backward_weight: Statistics
    costs: SplitCosts


def _split(measured: Measured, task: int, statistic: Statistic) -> _Split | None:
    """I, W and the F before them; None where there is nothing to split, or where it did not fit or failed."""
    number = measured.split_form(task)
    if number is None or number in measured.too_large or number in measured.failed:
        return None
    times, memory = measured.times[number], measured.memory[task]
    assert memory.split_kept_bytes is not None, "what is measured split has figures"
    assert memory.split_peak_bytes is not None, "likewise"
    forward = statistics_of(times.forward_ns, times.forward_cpu_ns, statistic, seed=task)
    return _Split(
        backward_input=statistics_of(times.backward_ns, times.backward_cpu_ns, statistic, seed=task),
        backward_weight=statistics_of(times.weight_ns, times.weight_cpu_ns, statistic, seed=task),
        costs=SplitCosts(forward=forward, kept_bytes=memory.split_kept_bytes, peak_bytes=memory.split_peak_bytes),
    )


def _failure(measured: Measured, task: int) -> str | None:
    """Of the whole point, or of its split form alone."""
    number = measured.split_form(task)
    alone = None if number is None else measured.failed.get(number)
    return measured.failed.get(task, None if alone is None else f"with a split backward: {alone}")
