"""Whose gradients are summed with whose (docs/plan-contract.md section 5), and what follows from the streams."""

from collections import defaultdict
from typing import NamedTuple

from planner.plan.dependencies import Dependencies
from planner.plan.instruction import BACKWARDS, Visit
from planner.plan.plan import Plan

__all__ = ["Piece", "pieces", "staleness", "weight_stages"]


class Piece(NamedTuple):
    """Part of the weights with one set of stages that train it, summed as one.

    ``weights`` are layer numbers (of tied layers the lowest); ``members`` are all ranks of the stages, ascending.
    """

    stages: tuple[int, ...]
    weights: tuple[int, ...]
    members: tuple[int, ...]


def weight_stages(plan: Plan) -> dict[int, tuple[int, ...]]:
    """Weight (lowest layer number of a tied set) -> every stage that holds it, trained or not, ascending."""
    holders: dict[int, set[int]] = defaultdict(set)
    for number, stage in enumerate(plan.stages):
        for layer in stage.layers:
            holders[plan.graph.weight_of[layer]].add(number)
    return {weight: tuple(sorted(found)) for weight, found in sorted(holders.items())}


def pieces(plan: Plan) -> tuple[Piece, ...]:
    """Weights grouped by the set of stages that train them, ascending by their lowest weight."""
    trained = set(Dependencies(plan).updated_stages)
    by_stages: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for weight, stages in weight_stages(plan).items():
        found = tuple(stage for stage in stages if stage in trained)
        if found:
            by_stages[found].append(weight)
    return tuple(
        Piece(stages, tuple(weights), _ranks(plan, stages))
        for stages, weights in sorted(by_stages.items(), key=lambda item: item[1][0])
    )


def _ranks(plan: Plan, stages: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({rank for stage in stages for rank in plan.groups[plan.stages[stage].group]}))


def staleness(plan: Plan) -> tuple[int, ...]:
    """By stage: most updates between a visit's F and its last backward; all 0 = the results of the unsplit model.

    A weight is updated once a rank, at the first U(.,n) of a stage that holds it: the U of a copy on the same group
    updates this stage too.
    """
    found = [0] * len(plan.stages)
    copies = _copies(plan)
    updates = [0] * len(plan.stages)
    at_forward: dict[Visit, tuple[int, ...]] = {}
    for stream in plan.instructions:
        for instruction in stream:
            stage = instruction.stage
            if instruction.operation == "U":
                updates[stage] += 1
            elif instruction.operation == "F":
                at_forward[instruction.visit] = _applied(copies[stage], updates)
            elif instruction.operation in BACKWARDS and instruction.visit in at_forward:
                before, after = at_forward[instruction.visit], _applied(copies[stage], updates)
                found[stage] = max(found[stage], *(b - a for a, b in zip(before, after, strict=True)))
    return tuple(found)


def _applied(copies: tuple[tuple[int, ...], ...], updates: list[int]) -> tuple[int, ...]:
    """Updates that the weights of a stage have seen, by set of holders."""
    return tuple(max(updates[holder] for holder in holders) for holders in copies)


def _copies(plan: Plan) -> list[tuple[tuple[int, ...], ...]]:
    """By stage: the different sets of stages of its group (itself among them) that hold one of its weights."""
    holders: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, stage in enumerate(plan.stages):
        for weight in {plan.graph.weight_of[layer] for layer in stage.layers}:
            holders[stage.group, weight].append(number)
    return [
        tuple(sorted({tuple(holders[stage.group, plan.graph.weight_of[layer]]) for layer in stage.layers}))
        for stage in plan.stages
    ]
