"""The work of one measuring process: every task can be run once, with random values, and is timed by phases.

I and W are the executor's own split: the same functions run here and in a training step.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import backward

from planner.cutting.layer import CutLayer
from planner.executor.deferral import Deferral
from planner.executor.deferred_functions import Work, do_works
from planner.problem.workload import Optimizer
from profiles.losses import Loss

__all__ = ["Clock", "EmptyVisit", "LayerTask", "SplitTask", "Timing", "UpdateTask", "clock_of"]


class Timing(NamedTuple):
    """Wall (or device) time and process CPU time of each phase; 0 for a phase that does not exist."""

    forward_ns: int
    forward_cpu_ns: int
    backward_ns: int
    backward_cpu_ns: int
    weight_ns: int = 0  # W of a split backward, which leaves I to ``backward_ns``
    weight_cpu_ns: int = 0


class _Mark(NamedTuple):
    wall_ns: int
    cpu_ns: int
    event: torch.cuda.Event | None


@dataclass(frozen=True)
class Clock:
    """Marks moments; between two marks wall time on CPU, time on the device with CUDA."""

    mark: Callable[[], _Mark]
    between_ns: Callable[[_Mark, _Mark], int]


def clock_of(device: torch.device) -> Clock:
    """The clock of a device."""
    if device.type == "cuda":
        return Clock(_cuda_mark, _cuda_between_ns)
    return Clock(lambda: _Mark(time.perf_counter_ns(), time.process_time_ns(), None), _wall_between_ns)


def _wall_between_ns(start: _Mark, end: _Mark) -> int:
    return end.wall_ns - start.wall_ns


def _cuda_mark() -> _Mark:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return _Mark(time.perf_counter_ns(), time.process_time_ns(), event)


def _cuda_between_ns(start: _Mark, end: _Mark) -> int:
    assert start.event is not None
    assert end.event is not None
    end.event.synchronize()
    milliseconds: float = start.event.elapsed_time(end.event)
    return round(milliseconds * 1e6)


def _timing(clock: Clock, *phases: tuple[_Mark, _Mark]) -> Timing:
    """Of one phase after another, each by its start and end; what comes between two phases is not timed."""
    found = [(clock.between_ns(start, end), end.cpu_ns - start.cpu_ns) for start, end in phases]
    while len(found) < 2:
        found.append((0, 0))
    return Timing(*(duration for pair in found for duration in pair))


@dataclass(frozen=True)
class LayerTask:
    """One layer at one shape. ``example`` and ``labels`` are on the device; the first layer's input has no gradient."""

    layer: CutLayer
    example: Tensor
    labels: Tensor | None
    loss: Loss | None
    wants_input_gradient: bool

    def run(self, clock: Clock) -> Timing:
        """F, then B, as a training step does them for one micro-batch."""
        return _timing(clock, *self.phases(clock))

    def phases(self, clock: Clock) -> list[tuple[_Mark, _Mark]]:
        """Run both; when each began and ended."""
        value = self.example.detach()
        if self.wants_input_gradient:
            value.requires_grad_()
        start = clock.mark()
        output = self.layer.module(value)
        last = output if self.loss is None else self.loss(output, self.labels)
        middle = clock.mark()
        if not last.requires_grad:
            return [(start, middle)]
        gradient = None if self.loss is not None else torch.randn_like(last)
        ready = clock.mark()
        backward(last, gradient)
        return [(start, middle), (ready, clock.mark())]


@dataclass(frozen=True)
class SplitTask:
    """The same layer in a visit whose backward is split, as the executor runs it. ``deferral``: of the layer."""

    whole: LayerTask
    deferral: Deferral

    def run(self, clock: Clock) -> Timing:
        """F, I, W."""
        works: list[Work] = []
        with self.deferral.into(works):
            phases = self.whole.phases(clock)
        start = clock.mark()
        do_works(works)
        return _timing(clock, *phases, (start, clock.mark()))


class UpdateTask:
    """One step of the optimizer over copies of some parameters."""

    def __init__(self, parameters: list[nn.Parameter], optimizer: Optimizer) -> None:
        copies = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
        for copy in copies:
            copy.grad = torch.randn_like(copy)
        self.num_params = sum(copy.numel() for copy in copies)
        self._optimizer = _OPTIMIZERS[optimizer](copies)

    def run(self, clock: Clock) -> Timing:
        start = clock.mark()
        self._optimizer.step()
        return _timing(clock, (start, clock.mark()))


_OPTIMIZERS: dict[Optimizer, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-6),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-6),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-6),
    "sgd_momentum": lambda parameters: torch.optim.SGD(parameters, lr=1e-6, momentum=0.9),
}


class EmptyVisit:
    """What a visit costs beside its layers: taking a tensor in, handing one on, starting the backward."""

    def __init__(self, device: torch.device) -> None:
        self._value = torch.randn(1, device=device)

    def run(self, clock: Clock) -> Timing:
        start = clock.mark()
        value = self._value.detach().requires_grad_()
        given = value.view_as(value)
        middle = clock.mark()
        backward(given, self._value)
        return _timing(clock, (start, middle), (middle, clock.mark()))
