"""Brute force over a whole search space: every plan of it is written out, priced and simulated.

Shares with the search what makes a plan out of choices (``build_plan``) and the simulator, nothing that chooses:
degrees, device orders, cuts, families, legs and recompute are enumerated here by plain loops. Plans with several stages
a group recompute everywhere or nowhere, those with a split backward nowhere.
"""

from collections.abc import Iterator
from itertools import combinations, permutations, product
from typing import NamedTuple

from planner.costs.price import ProblemCosts
from planner.plan.graph import LayerGraph, Node
from planner.plan.mesh import Mesh, cut
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.problem.options import Family
from planner.problem.problem import Problem
from planner.schedules.build import PlanParts, build_plan
from planner.schedules.families import FAMILIES
from planner.schedules.family import FamilyShape
from planner.simulate.simulate import simulate

__all__ = ["BestPlan", "best_of_every_plan", "every_plan"]


_SPLIT_LINES: tuple[Family, ...] = ("zb-h1", "zb-h2")
_SPLIT_V: tuple[Family, ...] = ("zb-v", "v-half", "v-min", "dualpipe-v")


class BestPlan(NamedTuple):
    """The shortest step of all plans that fit, one plan that has it, and how many were looked at."""

    step_ns: int
    plan: Plan
    num_plans: int


def best_of_every_plan(problem: Problem, *, most_legs: int = 4) -> BestPlan | None:
    """None where nothing fits."""
    costs, best, count = ProblemCosts(problem), None, 0
    for plan in every_plan(problem, most_legs=most_legs):
        count += 1
        prices = costs.price(plan)
        timeline = simulate(plan, prices)
        assert timeline.peak_bytes is not None
        fits = all(need <= have for need, have in zip(timeline.peak_bytes, prices.limit_bytes, strict=True))
        if fits and (best is None or timeline.step_ns < best.step_ns):
            best = BestPlan(timeline.step_ns, plan, count)
    return None if best is None else best._replace(num_plans=count)


def every_plan(problem: Problem, *, most_legs: int) -> Iterator[Plan]:
    """All data degrees, micro-batch counts, orders of nodes' ranks, cuts, families, legs and recomputes of stages.

    Every node group has one node here, so that equal ranks are interchangeable.
    """
    batch = problem.workload.global_batch_size
    assert all(group.num_nodes == 1 for group in problem.cluster.node_groups)
    for data in range(1, batch + 1):
        seats = [group.name for group in problem.cluster.node_groups for _ in range(group.ranks_per_node // data)]
        for num_micro_batches in range(1, batch // data + 1):
            sizes = [cut(batch, num_micro_batches, number).size for number in range(num_micro_batches)]
            if len(set(sizes)) > 1 or sizes[0] % data:
                continue  # the search tries unequal parts only for powers of two; the problems here divide evenly
            for num_groups in range(1, len(seats) + 1):
                for order in sorted(set(permutations(seats, num_groups))):
                    yield from _of_groups(problem, data=data, sizes=sizes, order=order, most_legs=most_legs)


def _of_groups(
    problem: Problem, *, data: int, sizes: list[int], order: tuple[str, ...], most_legs: int
) -> Iterator[Plan]:
    layers, groups = problem.num_layers, len(order)
    for family, lies in _shapes(problem, groups, most_legs=most_legs):
        stages = len(lies)
        if stages > layers or FAMILIES[family].refusal(FamilyShape(groups, len(sizes))) is not None:
            continue
        for inner in combinations(range(1, layers), stages - 1):
            cuts = [0, *inner, layers]
            for recomputes in _recomputes(family, groups, stages):
                yield _plan(
                    problem, family, lies, data=data, sizes=sizes, order=order, cuts=cuts, recomputes=recomputes
                )


def _shapes(problem: Problem, groups: int, *, most_legs: int) -> Iterator[tuple[Family, list[int]]]:
    """Families and the group of each stage."""
    down, up = list(range(groups)), list(reversed(range(groups)))
    yield from (("1f1b", down), ("gpipe", down))
    for legs in range(2, most_legs + 1 if groups > 1 else 0):
        yield "interleaved", down * legs
        yield "breadth-first", down * legs
        yield "wave", (down + up) * (legs // 2) + down * (legs % 2)
    if all(layer.splittable for profile in problem.profiles for layer in profile.layers):
        yield from ((family, down) for family in _SPLIT_LINES)
        if most_legs > 1:
            yield from ((family, down + up) for family in _SPLIT_V)


def _recomputes(family: Family, groups: int, stages: int) -> Iterator[tuple[bool, ...]]:
    if family in _SPLIT_LINES + _SPLIT_V:
        yield (False,) * stages
    elif stages > groups:
        yield from ((False,) * stages, (True,) * stages)
    else:
        yield from product((False, True), repeat=stages)


def _plan(
    problem: Problem,
    family: Family,
    lies: list[int],
    *,
    data: int,
    sizes: list[int],
    order: tuple[str, ...],
    cuts: list[int],
    recomputes: tuple[bool, ...],
) -> Plan:
    profile, sequence = problem.profiles[0], problem.workload.sequence_length
    names = list(dict.fromkeys(order))
    starts = {name: data * sum(order.count(other) for other in names[:n]) for n, name in enumerate(names)}
    groups = []
    for number, name in enumerate(order):
        first = starts[name] + data * order[:number].count(name)
        groups.append(tuple(range(first, first + data)))
    parts = PlanParts(
        problem=problem.digest,
        precision=problem.workload.precision,
        graph=LayerGraph(
            model=profile.model.fingerprint,
            num_layers=problem.num_layers,
            reads=profile.model.reads,
            tied=tuple(tied.layers for tied in profile.model.tied),
        ),
        nodes=tuple(
            Node(
                node_group=name,
                device_kind=problem.cluster.node_group(name).device_kind,
                num_ranks=data * order.count(name),
            )
            for name in names
        ),
        groups=tuple(groups),
        stages=tuple(
            Stage(
                group=lies[number],
                first_layer=cuts[number],
                end_layer=cuts[number + 1],
                mesh=Mesh(data=data),
                recompute={"full": tuple(range(cuts[number], cuts[number + 1]))} if recomputes[number] else {},
            )
            for number in range(len(cuts) - 1)
        ),
        routes=(tuple(range(len(cuts) - 1)),),
        micro_batches=tuple(MicroBatch(route=0, samples=size, cuts=(0, sequence)) for size in sizes),
    )
    return build_plan(parts, family)
