"""V-Half: split backward on a V at p/2 + 1 micro-batches of memory, half of 1F1B's and one; bubble at most 1.5(p-1).

Method: the memory of Qi et al. 2024 (arXiv 2405.15362), the order by list scheduling for F = I = W. A micro-batch is as
urgent as a template says that moves on by 1.5 ticks a stage and repeats every 6: twice 6 i + 1.5 q for the q-th F or I
of micro-batch i, W six ticks later. In the beginning forwards enter every second tick: all at once they would travel
as a burst and meet on their way back.
"""

from planner.plan.instruction import BACKWARD_WEIGHT, FORWARD, Instruction
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.greedy import GreedyTask, chain, list_schedule
from planner.schedules.placements import one_route, v

__all__ = ["V_HALF"]


def _v_half(shape: FamilyShape) -> PlanLists:
    p, num_stages = shape.num_groups, 2 * shape.num_groups
    task = GreedyTask(
        groups=v(p),
        operations=["FIW"] * num_stages,
        batches=[range(shape.num_micro_batches)] * num_stages,
        reads=chain(num_stages),
        ticks={"F": 1, "I": 1, "W": 1},
        caps=[p + 2] * p,
        kept=[1] * num_stages,
        pace=2,
    )

    def urgency(instruction: Instruction) -> tuple[int, ...]:
        operation, stage, number, _ = instruction
        place = stage if operation == FORWARD else 2 * num_stages - 1 - stage
        return (12 * number + 3 * place + (12 if operation == BACKWARD_WEIGHT else 0),)

    return one_route(shape, v(p), list_schedule(task, urgency).streams)


V_HALF = FamilySpec(
    name="v-half",
    summary="split backward on a V at half of 1F1B's memory and one; bubble at most 1.5(p-1)",
    source="memory: Qi et al. 2024, arXiv 2405.15362; order: list-scheduled",
    placement="v",
    build=_v_half,
)
