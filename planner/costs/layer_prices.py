"""Prices of an abstract plan from the cost of each layer: to compare schedules without a model or a cluster.

A stage costs what its layers cost, a slice its share of the tokens; a visit that only has I or only W costs its whole
backward. Sums and updates are free, all messages take one time.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from planner.costs.prices import BorderPrice, PlanPrices, VisitPrice
from planner.plan.borders import is_handover
from planner.plan.dependencies import Dependencies
from planner.plan.pieces import pieces
from planner.plan.plan import Plan

__all__ = ["LayerCost", "even_layers", "layer_prices"]

_NO_LIMIT_BYTES = 2**62


class LayerCost(NamedTuple):
    """Of one layer and one micro-batch."""

    forward_ns: int
    backward_input_ns: int
    backward_weight_ns: int
    kept_bytes: int = 0


def even_layers(model: LayerCost, num_layers: int, *, shares: Sequence[int] = ()) -> tuple[LayerCost, ...]:
    """The cost of a whole model over its layers, equal or by ``shares``; rounded so that the sums are exact."""
    weights = tuple(shares) or (1,) * num_layers
    ends, end = [0], 0
    for weight in weights:
        end += weight
        ends.append(end)
    return tuple(
        LayerCost(*(value * after // end - value * before // end for value in model))
        for before, after in pairwise(ends)
    )


def layer_prices(plan: Plan, layers: Sequence[LayerCost], *, message_ns: int = 0) -> PlanPrices:
    """``layers[l]`` = cost of layer l for the longest micro-batch, every other by its tokens."""
    shapes = {plan.visit_shape(b, k) for b, batch in enumerate(plan.micro_batches) for k in range(batch.num_slices)}
    num_tokens = max(batch.cuts[-1] for batch in plan.micro_batches)
    dependencies = Dependencies(plan)
    borders = {}
    for (_, receiver), found in dependencies.neighbours.items():
        for sender in found.reads:
            cost_ns = 0 if is_handover(plan, sender, receiver) else message_ns
            borders.update({(sender, receiver, shape): BorderPrice(cost_ns, cost_ns, 0) for shape in shapes})
    return PlanPrices(
        visits={
            (stage, shape): _visit_price(cost, (shape.end_token - shape.first_token) * shape.samples, num_tokens)
            for stage, cost in enumerate(_stage_costs(plan, layers))
            for shape in shapes
        },
        borders=borders,
        sum_ns=(0,) * len(pieces(plan)),
        update_ns=(0,) * len(plan.stages),
        state_bytes=(0,) * len(plan.groups),
        limit_bytes=(_NO_LIMIT_BYTES,) * len(plan.groups),
        costs="scaled:given",
    )


def _stage_costs(plan: Plan, layers: Sequence[LayerCost]) -> list[LayerCost]:
    """The sum over its layers; I carries all where a stage has no W, W where it has no I."""
    operations: dict[int, set[str]] = defaultdict(set)
    for visit, text in plan.visit_operations.items():
        operations[visit.stage].update(text)
    found = []
    for number, stage in enumerate(plan.stages):
        forward, inputs, weights, kept = (
            sum(column) for column in zip(*(layers[n] for n in stage.layers), strict=True)
        )
        if "I" in operations[number] and not operations[number] & {"W", "B"}:
            inputs, weights = inputs + weights, 0
        elif "W" in operations[number] and not operations[number] & {"I", "B"}:
            inputs, weights = 0, inputs + weights
        found.append(LayerCost(forward, inputs, weights, kept))
    return found


def _visit_price(stage: LayerCost, size: int, whole: int) -> VisitPrice:
    forward, inputs, weights, kept = (value * size // whole for value in stage)
    return VisitPrice(forward, inputs + weights, inputs, weights, kept_bytes=kept)
