"""Asynchronous 1F1B: an update after every micro-batch, no drain between updates; it changes results.

Method: PipeDream (Narayanan et al. 2019, arXiv 1806.03377): the stream of 1F1B with G and U right after each B. A
backward uses the weights of its forward, p-1-d updates old on group d: ``staleness`` of the plan says so, and whoever
runs it asks for consent.
"""

from planner.plan.instruction import BACKWARD, GRADIENTS_READY, UPDATE, Instruction
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.one_f_one_b import one_f_one_b, warm_up_refusal
from planner.schedules.placements import line, one_route
from planner.schedules.shape import Shape

__all__ = ["ASYNCHRONOUS_1F1B"]


def _asynchronous(shape: FamilyShape) -> PlanLists:
    p = shape.num_groups
    streams = one_f_one_b(Shape(p, p, (1,) * shape.num_micro_batches), forwards_first=shape.forwards_first)
    return one_route(shape, line(p), [_with_update_each(stream) for stream in streams])


def _with_update_each(stream: list[Instruction]) -> list[Instruction]:
    found = []
    for instruction in stream:
        found.append(instruction)
        if instruction.operation == BACKWARD:
            stage, number = instruction.stage, instruction.number
            found += [Instruction(GRADIENTS_READY, stage, number), Instruction(UPDATE, stage, number)]
    return found


ASYNCHRONOUS_1F1B = FamilySpec(
    name="1f1b-asynchronous",
    summary="1F1B with an update after every micro-batch: no drain between updates, but stale weights change results",
    source="Narayanan et al. 2019, PipeDream, arXiv 1806.03377",
    placement="line",
    build=_asynchronous,
    refuse=warm_up_refusal,
    options=frozenset({"forwards_first"}),
    changes_results=True,
)
