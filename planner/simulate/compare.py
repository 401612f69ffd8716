"""Predicted against measured: the step, and each kind of instruction of each stage, the worst named.

An error is ``predicted / measured - 1``: +0.10 says that the prediction was 10 % too long.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from planner.errors import PlanError
from planner.plan.instruction import Operation
from planner.plan.plan import Plan
from planner.simulate.run_record import RunRecord, recorded_timeline
from planner.simulate.timeline import Timeline

__all__ = ["Comparison", "Deviation", "StepError", "compare"]


class StepError(NamedTuple):
    """One measured step."""

    number: int
    measured_ns: int
    error: float


class Deviation(NamedTuple):
    """One operation of one stage: the medians over its instructions. ``cost_ns``: of all of them in one step."""

    stage: int
    operation: Operation
    predicted_ns: int
    measured_ns: int
    error: float
    cost_ns: int

    def __str__(self) -> str:
        found = f"predicted {self.predicted_ns} ns, measured {self.measured_ns} ns"
        return f"{self.operation} of stage {self.stage}: {found} ({self.error:+.1%})"


@dataclass(frozen=True)
class Comparison:
    """``deviations`` are empty without a predicted timeline or without recorded events; the costliest first."""

    predicted_ns: int
    measured_ns: int  # median of the steps
    steps: tuple[StepError, ...]
    deviations: tuple[Deviation, ...]

    @property
    def error(self) -> float:
        """Of the median step."""
        return _error(self.predicted_ns, self.measured_ns)

    @property
    def median_error(self) -> float:
        """Median of the steps' absolute errors."""
        return median(abs(step.error) for step in self.steps)

    @property
    def worst(self) -> Deviation | None:
        """The deviation that makes the largest part of a step."""
        return self.deviations[0] if self.deviations else None


def compare(plan: Plan, record: RunRecord, *, predicted: Timeline | None = None) -> Comparison:
    """``predicted``: the simulated timeline where the prices are at hand; else the plan's own prediction serves.

    Raises ``PlanError`` where the record is of another plan, or where nothing was predicted.
    """
    if record.plan != plan.digest:
        message = f"the run is of plan {record.plan[:12]}, expected plan {plan.digest[:12]}"
        raise PlanError(message, code="plan_mismatch", pointer="/plan")
    predicted_ns = _predicted_ns(plan, predicted)
    steps = tuple(StepError(s.number, s.step_ns, _error(predicted_ns, s.step_ns)) for s in record.steps)
    measured_ns = round(median(step.measured_ns for step in steps))
    measured = [found for step in record.steps if (found := recorded_timeline(plan, step)) is not None]
    deviations = _deviations(predicted, measured) if predicted is not None else ()
    return Comparison(predicted_ns, measured_ns, steps, deviations)


def _predicted_ns(plan: Plan, predicted: Timeline | None) -> int:
    if predicted is not None:
        return predicted.step_ns
    if plan.prediction is None:
        message = "the plan carries no prediction; give the problem to simulate it"
        raise PlanError(message, code="prediction_missing", pointer="/prediction")
    return plan.prediction.step_ns


def _error(predicted_ns: int, measured_ns: int) -> float:
    return predicted_ns / measured_ns - 1 if measured_ns else 0.0


def _deviations(predicted: Timeline, measured: Sequence[Timeline]) -> tuple[Deviation, ...]:
    expected, found = _durations([predicted]), _durations(measured)
    deviations = []
    for (stage, operation), durations in expected.items():
        if (stage, operation) in found:
            one_ns, other_ns = median(durations), median(found[stage, operation])
            cost_ns = round(abs(other_ns - one_ns) * len(durations))
            error = _error(round(one_ns), round(other_ns))
            deviations.append(Deviation(stage, operation, round(one_ns), round(other_ns), error, cost_ns))
    return tuple(sorted(deviations, key=lambda deviation: (-deviation.cost_ns, deviation.stage, deviation.operation)))


def _durations(timelines: Sequence[Timeline]) -> dict[tuple[int, Operation], list[int]]:
    """(stage, operation) -> durations; G takes no time and is left out."""
    found: dict[tuple[int, Operation], list[int]] = defaultdict(list)
    for timeline in timelines:
        for events in timeline.events:
            for instruction, start_ns, end_ns in events:
                if instruction.operation != "G":
                    found[instruction.stage, instruction.operation].append(end_ns - start_ns)
    return found
