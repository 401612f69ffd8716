"""ZB-V: split backward on a V at 1F1B's memory; from 2p-1 micro-batches on nobody idles between first and last.

Method: Qi et al. 2024 (arXiv 2405.15362) as torch 2.13's ``ScheduleZBVZeroBubble`` orders it: built for at least 2p-1
micro-batches, those beyond m dropped. Assumes F = I = W.
"""

from planner.plan.instruction import Instruction
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.pattern import PatternStream
from planner.schedules.placements import one_route, v

__all__ = ["ZB_V"]


def _zb_v(shape: FamilyShape) -> PlanLists:
    return one_route(shape, v(shape.num_groups), [_stream(shape, group) for group in range(shape.num_groups)])


def _stream(shape: FamilyShape, group: int) -> list[Instruction]:
    p, d, m = shape.num_groups, group, shape.num_micro_batches
    stream = PatternStream(p, d, max(m, 2 * p - 1))
    stream.add("aF", 2 * (p - d) - 1)
    stream.add("bF aF", d)
    stream.add("bF bI bW", p - d)
    while stream.left("aF") or stream.left("bF"):
        stream.add("aF aI aW bF bI bW")
    stream.add("aI bI", d)
    stream.add("aI aW", p - d)
    stream.add("bW", stream.left("bW"))
    stream.add("aW", stream.left("aW"))
    return stream.first(m)


ZB_V = FamilySpec(
    name="zb-v",
    summary="split backward on a V at 1F1B's memory; a sixth of its bubble",
    source="Qi et al. 2024, arXiv 2405.15362",
    placement="v",
    build=_zb_v,
)
