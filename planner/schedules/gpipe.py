"""GPipe and breadth-first: all forwards, then all backwards; every micro-batch is kept.

Method: GPipe (Huang et al. 2019) with one stage a group; with several it is breadth-first (Lamy-Poirier 2023): the
stages of the group in the order of the route, each with all its forwards, then the stages in reverse, each with all
its backwards. Slices (TeraPipe, Li et al. 2021) go forward in order and backward in reverse.
"""

from planner.plan.instruction import BACKWARD, FORWARD
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.placements import line, loop, one_route, too_few_stages
from planner.schedules.shape import Shape, Streams, backward_work, forward_work, instructions

__all__ = ["BREADTH_FIRST", "GPIPE", "gpipe"]


def gpipe(shape: Shape) -> Streams:
    """The streams of all groups."""
    forward, backward = forward_work(shape), backward_work(shape)
    return [
        [one for stage in shape.stages_of(group) for one in instructions(FORWARD, stage, forward)]
        + [one for stage in reversed(shape.stages_of(group)) for one in instructions(BACKWARD, stage, backward)]
        for group in range(shape.num_groups)
    ]


def _gpipe(shape: FamilyShape) -> PlanLists:
    p = shape.num_groups
    return one_route(shape, line(p), gpipe(Shape(p, p, (1,) * shape.num_micro_batches)))


def _breadth_first(shape: FamilyShape) -> PlanLists:
    p, num_stages = shape.num_groups, shape.num_stages or 2 * shape.num_groups
    return one_route(shape, loop(p, num_stages), gpipe(Shape(p, num_stages, (1,) * shape.num_micro_batches)))


GPIPE = FamilySpec(
    name="gpipe",
    summary="all forwards, then all backwards; keeps every micro-batch",
    source="Huang et al. 2019, arXiv 1811.06965",
    placement="line",
    build=_gpipe,
)
BREADTH_FIRST = FamilySpec(
    name="breadth-first",
    summary="several stages a group, each with all its micro-batches in a row; keeps every micro-batch",
    source="Lamy-Poirier 2023, arXiv 2211.05953",
    placement="loop",
    build=_breadth_first,
    refuse=too_few_stages,
    options=frozenset({"num_stages"}),
)
