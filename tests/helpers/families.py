"""Named families at unit costs: F = I = W = U of a group's whole share, B = 2 U, everything kept counts in A."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.costs.layer_prices import LayerCost, even_layers, layer_prices
from planner.plan.plan import Plan
from planner.schedules.families import abstract_plan, family_lists
from planner.schedules.family import FamilyShape, PlanLists
from planner.simulate.simulate import simulate

__all__ = ["A_BYTES", "U_NS", "Worked", "texts", "worked", "worked_lists"]

U_NS = 5040 * 16  # divides by every number of stages and slices used here
A_BYTES = 5040 * 16


class Worked(NamedTuple):
    """In U and A. ``span``: longest time that a group idles between its first and its last instruction."""

    bubble: float
    span: float
    memory: list[float]  # by group
    plan: Plan


def worked(name: str, num_groups: int, num_micro_batches: int, **options: int | tuple[int, ...]) -> Worked:
    """A family of the registry on a shape."""
    return worked_lists(family_lists(name, FamilyShape(num_groups, num_micro_batches, **options)))  # type: ignore[arg-type]


def worked_lists(lists: PlanLists, *, message: float = 0) -> Worked:
    """Plan lists at unit costs; ``message`` in U."""
    plan = abstract_plan(lists)
    p, m = len(plan.groups), len(plan.micro_batches)
    model = LayerCost(p * U_NS, p * U_NS, p * U_NS, p * A_BYTES)
    layers = even_layers(model, lists.num_layers, shares=lists.layer_shares)
    timeline = simulate(plan, layer_prices(plan, layers, message_ns=round(message * U_NS)))
    spans = []
    for events in timeline.events:
        visits = [event for event in events if event.instruction.operation not in ("G", "U")]
        busy_ns = sum(event.end_ns - event.start_ns for event in visits)
        spans.append(visits[-1].end_ns - visits[0].start_ns - busy_ns)
    assert timeline.peak_bytes is not None
    memory = [peak / A_BYTES for peak in timeline.peak_bytes]
    return Worked(timeline.step_ns / U_NS - 3 * m, max(spans) / U_NS, memory, plan)


def texts(lists: PlanLists) -> Sequence[str]:
    """The streams as text, slices written only where they are not 0."""
    return [" ".join(str(instruction) for instruction in stream) for stream in lists.streams]
