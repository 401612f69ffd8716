"""Chimera: two mirrored routes fill each other's bubbles; groups d and p-1-d hold copies.

Method: Li & Hoefler 2021 (arXiv 2107.06925), two routes, micro-batches dealt in turn. Streams by start time for F = 1,
B = 2: at equal start B before F, the later stage first among F, the earlier first among B, then the lower micro-batch;
this reaches the published 2(p-2) at m = p, a merge of two 1F1B streams does not.
"""

from planner.plan.instruction import FORWARD, Instruction
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.greedy import GreedyTask, chain, list_schedule
from planner.schedules.placements import line, mirrored, two_routes, two_routes_refusal

__all__ = ["CHIMERA"]


def _chimera(shape: FamilyShape) -> PlanLists:
    p, m = shape.num_groups, shape.num_micro_batches
    down, up = line(p), mirrored(line(p))
    of_down, of_up = range(0, m, 2), range(1, m, 2)
    task = GreedyTask(
        groups=down + up,
        operations=["FB"] * 2 * p,
        batches=[of_down] * p + [of_up] * p,
        reads=chain(p) + chain(p, first=p),
        ticks={"F": 1, "B": 2},
        caps=[2 * m] * p,
        kept=[1] * 2 * p,
    )

    def key(instruction: Instruction) -> tuple[int, ...]:
        if instruction.operation == FORWARD:
            return 1, -(instruction.stage % p), instruction.number
        return 0, instruction.stage % p, instruction.number

    return two_routes(shape, down, up, list_schedule(task, key).streams)


CHIMERA = FamilySpec(
    name="chimera",
    summary="two mirrored routes, two copies of every stage; bubble 2(p-2) at m = p",
    source="Li and Hoefler 2021, arXiv 2107.06925",
    placement="two lines",
    build=_chimera,
    refuse=two_routes_refusal,
)
