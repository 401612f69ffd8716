"""Write a candidate out as a plan: the same candidate always gives the same digest.

Groups and stages are numbered in the order of the route, nodes in the order of their first use, ranks node by node;
devices that no stage uses do not appear.
"""

from collections.abc import Sequence
from dataclasses import replace

from planner.costs.price import ProblemCosts
from planner.plan.graph import Node
from planner.plan.mesh import Mesh
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.problem.problem import Problem
from planner.schedules.build import PlanParts, build_plan
from planner.search.candidate import Candidate, Choice, blocks_of
from planner.search.devices import Block
from planner.search.space import Space, layer_graph

__all__ = ["assemble", "plan_parts"]


def assemble(costs: ProblemCosts, space: Space, candidate: Candidate) -> Plan:
    """The plan of a candidate, without prediction and provenance."""
    stages = tuple(_stage(space, candidate, number, choice) for number, choice in enumerate(candidate.stages))
    parts = plan_parts(costs, stages, blocks_of(space, candidate.classes), samples=space.samples)
    return build_plan(replace(parts, untrained_layers=space.untrained), candidate.family)


def plan_parts(
    costs: ProblemCosts, stages: tuple[Stage, ...], blocks: Sequence[Block], *, samples: Sequence[int]
) -> PlanParts:
    """One route over ``stages``, a block for each group; ``samples`` of each micro-batch."""
    problem = costs.problem
    cuts = (0, problem.workload.sequence_length)
    return PlanParts(
        problem=costs.problem_digest,
        precision=problem.workload.precision,
        graph=layer_graph(problem.profiles[0]),
        nodes=_nodes(problem, blocks),
        groups=_ranks(blocks),
        stages=stages,
        routes=(tuple(range(len(stages))),),
        micro_batches=tuple(MicroBatch(route=0, samples=size, cuts=cuts) for size in samples),
    )


def _stage(space: Space, candidate: Candidate, number: int, choice: Choice) -> Stage:
    layers = tuple(range(choice.first_layer, choice.end_layer))
    return Stage(
        group=candidate.groups[number],
        first_layer=choice.first_layer,
        end_layer=choice.end_layer,
        mesh=Mesh(data=space.degrees.data),
        recompute={"full": layers} if choice.recomputes else {},
    )


def _used_nodes(blocks: Sequence[Block]) -> dict[int, list[tuple[int, int]]]:
    """Node of the cluster -> the (group, position) of its ranks, in the order of first use."""
    found: dict[int, list[tuple[int, int]]] = {}
    for group, block in enumerate(blocks):
        for position, place in enumerate(block.places):
            found.setdefault(place.node, []).append((group, position))
    return found


def _nodes(problem: Problem, blocks: Sequence[Block]) -> tuple[Node, ...]:
    groups = {place.node: place.node_group for block in blocks for place in block.places}
    return tuple(
        Node(
            node_group=groups[node],
            device_kind=problem.cluster.node_group(groups[node]).device_kind,
            num_ranks=len(ranks),
        )
        for node, ranks in _used_nodes(blocks).items()
    )


def _ranks(blocks: Sequence[Block]) -> tuple[tuple[int, ...], ...]:
    """The ranks of each group."""
    seats = [seat for ranks in _used_nodes(blocks).values() for seat in ranks]
    numbers = {seat: rank for rank, seat in enumerate(seats)}
    return tuple(
        tuple(numbers[group, position] for position in range(len(block.places))) for group, block in enumerate(blocks)
    )
