"""Named schedule families on the placement of an order problem, re-timed with its costs.

A family serves a placement if its plan lists put the stages of the same routes on the same groups; nothing here knows a
family by its name. Micro-batches of a route are interchangeable, so only the order of operations of each stage counts.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import ceil

from planner.plan.instruction import VISIT_OPERATIONS, Instruction
from planner.schedules.families import FAMILIES, family_lists
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.search.synthesis.engine import Engine, Schedule
from planner.search.synthesis.order_problem import OrderProblem

__all__ = ["named_schedules"]


def named_schedules(engine: Engine) -> Iterator[Schedule]:
    """Every family that serves the placement and fits the memory limits; the name is the family's."""
    problem = engine.problem
    for spec in FAMILIES.values():
        shape = _shape(problem, spec)
        if spec.changes_results or spec.refusal(shape) is not None or not _may_serve(problem, spec, shape):
            continue
        lists = _lists(spec.name, shape)
        stages = _same_stages(problem, lists)
        if stages is None or max(lists.num_slices) > 1:
            continue
        order = engine.order_of(_renamed(problem, lists, stages))
        found = engine.of_order(order, spec.name) if order is not None else None
        if found is not None:
            yield found


@lru_cache(maxsize=32)
def _lists(name: str, shape: FamilyShape) -> PlanLists:
    """Kept for the next problem of the shape: some families are list-scheduled."""
    return family_lists(name, shape)


def _shape(problem: OrderProblem, spec: FamilySpec) -> FamilyShape:
    """What the problem's stages and memory leave to choose."""
    longest = max(len(route) for route in problem.routes)
    num_stages = longest if "num_stages" in spec.options else None
    counts = _forwards_first(problem) if "forwards_first" in spec.options else None
    return FamilyShape(problem.num_groups, sum(problem.num_micro_batches), num_stages=num_stages, forwards_first=counts)


def _forwards_first(problem: OrderProblem) -> tuple[int, ...] | None:
    """Warm-up counts of a line where the usual p-d do not fit: they fall evenly, as steeply as memory allows.

    x_d = 1 + ceil(slope (p-1-d)), slope = least (most_d - 1) / (p-1-d): a border where x falls by nothing stalls both.
    """
    last = problem.num_groups - 1
    if problem.num_stages != problem.num_groups or last == 0:
        return None
    kept = {group: problem.kept[stage] for stage, group in enumerate(problem.group_of_stage)}
    most = [limit // max(1, kept[group]) for group, limit in enumerate(problem.limit)]
    if min(most) < 1 or all(count >= last + 1 - group for group, count in enumerate(most)):
        return None
    slope = min(Fraction(count - 1, last - group) for group, count in enumerate(most[:-1]))
    falling = [1 + ceil(min(slope, Fraction(1)) * (last - group)) for group in range(last + 1)]
    return tuple(accumulate(map(min, falling, most), min))


def _may_serve(problem: OrderProblem, spec: FamilySpec, shape: FamilyShape) -> bool:
    """Whether its placement is that of the problem: asked with few micro-batches, which is quick."""
    few = replace(shape, num_micro_batches=min(shape.num_micro_batches, 2 * shape.num_groups))
    if spec.refusal(few) is not None:
        return True
    lists = _lists(spec.name, few)
    theirs = [[lists.stages[stage].group for stage in route] for route in lists.routes]
    return theirs == [[problem.group_of_stage[stage] for stage in route] for route in problem.routes]


def _same_stages(problem: OrderProblem, lists: PlanLists) -> dict[int, int] | None:
    """Stage of the family -> stage of the problem, route by route; None where the placements differ."""
    batches = [sum(batch.route == route for batch in lists.micro_batches) for route in range(len(lists.routes))]
    if tuple(batches) != problem.num_micro_batches:
        return None
    found: dict[int, int] = {}
    for theirs, ours in zip(lists.routes, problem.routes, strict=True):
        their_groups = [lists.stages[stage].group for stage in theirs]
        if their_groups != [problem.group_of_stage[stage] for stage in ours]:
            return None
        found |= dict(zip(theirs, ours, strict=True))
    return found if len(found) == problem.num_stages else None


def _renamed(problem: OrderProblem, lists: PlanLists, stages: dict[int, int]) -> list[list[Instruction]]:
    return [
        [one._replace(stage=stages[one.stage]) for one in stream if one.operation in VISIT_OPERATIONS]
        for stream in lists.streams
    ]
