"""What a step gives its caller."""

from dataclasses import dataclass

from planner.executor.measure import Measurement
from planner.simulate.timeline import Timeline

__all__ = ["StepResult"]


@dataclass(frozen=True)
class StepResult:
    """``loss`` and ``gradient_norm`` (before clipping) of the whole step, on every rank.

    ``skipped``: one of them was not finite. ``stop``: a rank was asked to stop, this step was the last.
    """

    loss: float
    gradient_norm: float | None
    skipped: bool
    stop: bool
    measurement: Measurement

    @property
    def timeline(self) -> Timeline:
        """When each instruction ran on every group, in the clock of rank 0."""
        return self.measurement.timeline()
