"""What a schedule family is worth on a shape: bubble, span, memory, messages and a bound, in forwards of a group.

Unit = the forward of one micro-batch on one group's share of the model, and the bytes that such a share keeps. The
ideal step is the work of one group: micro-batches x (F + I + W). *Bubble* = step - ideal; *span* = longest time that
one group needs from its first to its last instruction, - ideal; *bound* = lower bound of the bubble for any order of
the same instructions on the same groups.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.costs.layer_prices import LayerCost, even_layers, layer_prices
from planner.costs.prices import PlanPrices
from planner.errors import PlanError
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import VISIT_OPERATIONS
from planner.plan.plan import Plan
from planner.schedules.families import abstract_plan
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.simulate.arrays import instruction_arrays
from planner.simulate.bounds import order_bound_ns
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline

__all__ = [
    "KEPT_BYTES",
    "GroupCost",
    "Measures",
    "Score",
    "list_prices",
    "score_family",
    "score_lists",
    "shape_for",
    "stage_costs",
]

KEPT_BYTES = 2**20 * 3 * 5 * 7 * 9 * 11  # of a group's share: many parts of it are whole


class GroupCost(NamedTuple):
    """Of one micro-batch on one group's share of the model; ``link_ns``: of every message."""

    forward_ns: int
    backward_input_ns: int
    backward_weight_ns: int
    link_ns: int = 0

    @property
    def work_ns(self) -> int:
        return self.forward_ns + self.backward_input_ns + self.backward_weight_ns


class Measures(NamedTuple):
    """Of one schedule. ``messages``: of a whole step, both ways. ``weight_copies``: holders of a weight in the mean."""

    step_ns: int
    bubble_units: float
    bubble_share: float
    span_units: float
    memory_units: float
    messages: int
    bound_units: float
    weight_copies: float


@dataclass(frozen=True)
class Score:
    """A family on a shape; ``reason``: why it is no candidate, ``measures``: None where it has no plan at all."""

    family: str
    measures: Measures | None
    reason: str | None = None

    @property
    def is_candidate(self) -> bool:
        return self.measures is not None and self.reason is None


def shape_for(spec: FamilySpec, shape: FamilyShape) -> FamilyShape:
    """The shape without what the family does not read."""
    read = {name: getattr(shape, name) for name in shape.chosen & spec.options}
    return FamilyShape(shape.num_groups, shape.num_micro_batches, **read)


def score_family(spec: FamilySpec, shape: FamilyShape, cost: GroupCost, *, memory_units: float | None = None) -> Score:
    """``memory_units``: most that a group may keep, in micro-batches of its share.

    Raises ``PlanError`` with the family's name where its streams are no plan: that is a fault of the family.
    """
    try:
        lists = spec.lists(shape_for(spec, shape))
    except PlanError as error:
        return Score(spec.name, None, error.message.removeprefix(f"{spec.name}: "))
    try:
        score = score_lists(spec.name, lists, cost, memory_units=memory_units)
    except PlanError as error:
        message = f"schedule family {spec.name}: {error.message}"
        raise PlanError(message, code=error.code, pointer=error.pointer) from error
    if spec.changes_results and score.reason is None:
        return Score(spec.name, score.measures, "changes results: stale weights")
    return score


def score_lists(name: str, lists: PlanLists, cost: GroupCost, *, memory_units: float | None = None) -> Score:
    """Of any plan lists."""
    plan = abstract_plan(lists)
    prices = list_prices(plan, lists, cost)
    measures = _measures(plan, prices, cost, simulate(plan, prices))
    if memory_units is not None and measures.memory_units > memory_units:
        reason = f"memory {round(measures.memory_units, 2):g}, limit {memory_units:g}"
        return Score(name, measures, reason)
    return Score(name, measures)


def list_prices(plan: Plan, lists: PlanLists, cost: GroupCost) -> PlanPrices:
    """The model has the work of all groups, cut into layers by the family's shares."""
    layers = even_layers(_model(cost, len(plan.groups)), lists.num_layers, shares=lists.layer_shares)
    return layer_prices(plan, layers, message_ns=cost.link_ns)


def stage_costs(cost: GroupCost, num_groups: int, *, num_stages: int) -> tuple[LayerCost, ...]:
    """The same model cut into equal stages of one route."""
    return even_layers(_model(cost, num_groups), num_stages)


def _model(cost: GroupCost, num_groups: int) -> LayerCost:
    one = (cost.forward_ns, cost.backward_input_ns, cost.backward_weight_ns, KEPT_BYTES)
    return LayerCost(*(value * num_groups for value in one))


def _measures(plan: Plan, prices: PlanPrices, cost: GroupCost, timeline: Timeline) -> Measures:
    ideal_ns = len(plan.micro_batches) * cost.work_ns
    assert timeline.peak_bytes is not None

    def units(time_ns: int) -> float:
        return (time_ns - ideal_ns) / cost.forward_ns

    return Measures(
        step_ns=timeline.step_ns,
        bubble_units=units(timeline.step_ns),
        bubble_share=timeline.bubble,
        span_units=units(max(_window_ns(timeline, group) for group in range(len(plan.groups)))),
        memory_units=max(timeline.peak_bytes) / KEPT_BYTES,
        messages=_num_messages(plan, prices),
        bound_units=units(order_bound_ns(plan, prices)),
        weight_copies=_weight_copies(plan),
    )


def _window_ns(timeline: Timeline, group: int) -> int:
    """From the first to the last instruction of a visit."""
    events = [event for event in timeline.events[group] if event.instruction.operation in VISIT_OPERATIONS]
    return events[-1].end_ns - events[0].start_ns


def _num_messages(plan: Plan, prices: PlanPrices) -> int:
    """Instructions that read from another group; one rank a group."""
    arrays = instruction_arrays(plan, prices)
    group = np.array([stage.group for stage in plan.stages])[arrays.stage]
    return sum(int(((column.before >= 0) & (group[column.before] != group)).sum()) for column in arrays.columns)


def _weight_copies(plan: Plan) -> float:
    """Layers without weights count nowhere: stages that train nothing hold no other."""
    trained = [plan.stages[stage].layers for stage in Dependencies(plan).updated_stages]
    return sum(map(len, trained)) / len({layer for layers in trained for layer in layers})
