"""ZB-H1 and ZB-H2: 1F1B with the backward split, weight gradients moved into the bubbles.

Method: Qi et al. 2023 (arXiv 2401.10241), handcrafted schedules. Group d goes forward ``x`` times; then for each
micro-batch k: I k, W (k - lag), the next F; then the other W. ZB-H1: x = p-d, lag = d, memory p. ZB-H2:
x = 2(p-d)-1, lag = 2d, memory 2p-1; no group idles between its first and last instruction when m >= 2p-1.
"""

from planner.plan.instruction import BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, Instruction
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.placements import line, one_route

__all__ = ["ZB_H1", "ZB_H2"]


def _zb_h1(shape: FamilyShape) -> PlanLists:
    p = shape.num_groups
    streams = [_stream(d, shape.num_micro_batches, forwards_first=p - d, lag=d) for d in range(p)]
    return one_route(shape, line(p), streams)


def _zb_h2(shape: FamilyShape) -> PlanLists:
    p = shape.num_groups
    streams = [_stream(d, shape.num_micro_batches, forwards_first=2 * (p - d) - 1, lag=2 * d) for d in range(p)]
    return one_route(shape, line(p), streams)


def _stream(group: int, num_micro_batches: int, *, forwards_first: int, lag: int) -> list[Instruction]:
    m = num_micro_batches
    found = [Instruction(FORWARD, group, k) for k in range(min(forwards_first, m))]
    for k in range(m):
        found.append(Instruction(BACKWARD_INPUT, group, k))
        if k >= lag:
            found.append(Instruction(BACKWARD_WEIGHT, group, k - lag))
        if forwards_first + k < m:
            found.append(Instruction(FORWARD, group, forwards_first + k))
    return found + [Instruction(BACKWARD_WEIGHT, group, k) for k in range(max(0, m - lag), m)]


ZB_H1 = FamilySpec(
    name="zb-h1",
    summary="1F1B with split backward at 1F1B's memory; a third of its bubble",
    source="Qi et al. 2023, arXiv 2401.10241",
    placement="line",
    build=_zb_h1,
)
ZB_H2 = FamilySpec(
    name="zb-h2",
    summary="split backward, no idling between first and last instruction from 2p-1 micro-batches on; memory 2p-1",
    source="Qi et al. 2023, arXiv 2401.10241",
    placement="line",
    build=_zb_h2,
)
