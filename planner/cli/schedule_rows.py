"""What ``planner schedule`` shows: every family of the registry on one shape, best first, and one family's timeline."""

from collections.abc import Sequence
from typing import NamedTuple

import typer

from planner.plan.plan import Plan
from planner.schedules.families import FAMILIES, abstract_plan
from planner.schedules.family import FamilyShape
from planner.simulate.scores import GroupCost, Score, list_prices, score_family, shape_for
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline

__all__ = ["Drawn", "compared", "drawn", "with_synthesised"]


class Drawn(NamedTuple):
    """An abstract plan and its timeline."""

    plan: Plan
    timeline: Timeline


def compared(shape: FamilyShape, cost: GroupCost, *, memory_units: float | None) -> list[Score]:
    """Candidates by their bubble, then what is none, in the order of the registry where equal."""
    scores = [score_family(spec, shape, cost, memory_units=memory_units) for spec in FAMILIES.values()]
    return sorted(scores, key=_rank)


def with_synthesised(
    scores: Sequence[Score], shape: FamilyShape, cost: GroupCost, *, memory_units: float | None
) -> list[Score]:
    """The same and, in their places, orders made for these times and this limit."""
    from planner.cli.synthesised import synthesised_scores

    made = synthesised_scores(shape.num_groups, shape.num_micro_batches, cost, memory_units=memory_units)
    return sorted([*scores, *made], key=_rank)


def _rank(score: Score) -> tuple[bool, bool, float, float, int]:
    found = score.measures
    if found is None:
        return (True, True, 0, 0, 0)
    return (not score.is_candidate, False, found.bubble_units, found.memory_units, found.messages)


def drawn(family: str, shape: FamilyShape, cost: GroupCost) -> Drawn:
    """Raises ``typer.BadParameter`` for an unknown name or a shape that the family refuses."""
    spec = FAMILIES.get(family)
    if spec is None:
        message = f"found {family!r}, expected one of {', '.join(FAMILIES)}"
        raise typer.BadParameter(message, param_hint="FAMILY")
    own_shape = shape_for(spec, shape)
    reason = spec.refusal(own_shape)
    if reason is not None:
        raise typer.BadParameter(f"{family}: {reason}", param_hint="FAMILY")
    lists = spec.lists(own_shape)
    plan = abstract_plan(lists)
    return Drawn(plan, simulate(plan, list_prices(plan, lists, cost)))
