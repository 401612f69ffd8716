"""GPipe and breadth-first: all forwards, then all backwards; every micro-batch is kept.

Method: GPipe (Huang et al. 2019) with one stage a group; with several it is breadth-first (Lamy-Poirier 2023): the
stages of the group in the order of the route, each with all its forwards, then the stages in reverse, each with all
its backwards. Slices (TeraPipe, Li et al. 2021) go forward in order and backward in reverse.
"""

from planner.plan.instruction import BACKWARD, FORWARD
from planner.schedules.shape import Shape, Streams, backward_work, forward_work, instructions

__all__ = ["gpipe"]


def gpipe(shape: Shape) -> Streams:
    """The streams of all groups."""
    forward, backward = forward_work(shape), backward_work(shape)
    return [
        [one for stage in shape.stages_of(group) for one in instructions(FORWARD, stage, forward)]
        + [one for stage in reversed(shape.stages_of(group)) for one in instructions(BACKWARD, stage, backward)]
        for group in range(shape.num_groups)
    ]
