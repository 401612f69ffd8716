"""Hanayo's wave: legs run down and up the groups in turn, every turn is local; any number of waves.

Method: placement of Liu et al. 2023 (Hanayo, arXiv 2308.15762), two legs a wave. Its closed form was not at hand: the
streams are list-scheduled for F = 1, B = 2, backwards first, later stages first; groups keep at most p micro-batches,
or 3p/2 where that is faster.
"""

from dataclasses import replace

from planner.plan.instruction import FORWARD, Instruction
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.greedy import GreedyTask, chain, list_schedule
from planner.schedules.placements import one_route, too_few_stages, wave

__all__ = ["WAVE"]


def _wave(shape: FamilyShape) -> PlanLists:
    p, num_stages = shape.num_groups, shape.num_stages or 4 * shape.num_groups
    groups = wave(p, num_stages)
    task = GreedyTask(
        groups=groups,
        operations=["FB"] * num_stages,
        batches=[range(shape.num_micro_batches)] * num_stages,
        reads=chain(num_stages),
        ticks={"F": 1, "B": 2},
        caps=[p * groups.count(group) for group in range(p)],
        kept=[1] * num_stages,
    )
    roomy = replace(task, caps=[3 * cap // 2 for cap in task.caps])
    best = min((list_schedule(tried, _key) for tried in (task, roomy)), key=lambda found: found.end)
    return one_route(shape, groups, best.streams)


def _key(instruction: Instruction) -> tuple[int, ...]:
    if instruction.operation == FORWARD:
        return 1, -instruction.stage, instruction.number
    return 0, instruction.stage, instruction.number


WAVE = FamilySpec(
    name="wave",
    summary="legs down and up in turn with local turns; num_stages = 2p for each wave (default two waves)",
    source="Liu et al. 2023, Hanayo, arXiv 2308.15762; streams list-scheduled",
    placement="wave",
    build=_wave,
    refuse=too_few_stages,
    options=frozenset({"num_stages"}),
)
