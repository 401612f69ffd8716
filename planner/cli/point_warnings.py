"""What a capture could not measure, as warnings: a shape once, with the layer that stopped it and why."""

from collections import defaultdict

from planner.cli.talk import warn
from planner.problem.profile import ModelProfile

__all__ = ["warn_of_points"]

_MOST_SHAPES = 6  # named for one reason


def warn_of_points(profile: ModelProfile) -> None:
    """A warning for each different reason; the profile keeps them all."""
    shapes: dict[str, dict[str, None]] = defaultdict(dict)
    for measurement in profile.measurements:
        for point in measurement.points:
            if point.failure is not None:
                shapes[point.failure][f"{point.micro_batch_size}x{point.sequence_length}"] = None
    for reason, found in shapes.items():
        names = list(found)
        more = f" and {len(names) - _MOST_SHAPES} more" if len(names) > _MOST_SHAPES else ""
        warn("point_failed", f"not measured at {', '.join(names[:_MOST_SHAPES])}{more}: {reason}")
