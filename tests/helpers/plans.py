"""Small plans and hand-made prices for the tests of schedules, simulation and check."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from planner.costs.prices import BorderPrice, PlanPrices, VisitPrice
from planner.plan.borders import is_handover
from planner.plan.dependencies import Dependencies
from planner.plan.graph import LayerGraph, Node
from planner.plan.mesh import Mesh, cut
from planner.plan.pieces import pieces
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.problem.options import Family
from planner.problem.profile import Reads
from planner.schedules.build import PlanParts, build_plan

__all__ = ["Line", "line_plan", "make_parts", "make_prices"]


class Line(NamedTuple):
    """One route on groups of its own: stages dealt round robin, layers cut evenly.

    ``mesh``: of all stages, or one for each group.
    """

    num_groups: int
    num_stages: int
    num_micro_batches: int
    mesh: Mesh | tuple[Mesh, ...] = Mesh()
    num_slices: int = 1

    def mesh_of(self, group: int) -> Mesh:
        return self.mesh if isinstance(self.mesh, Mesh) else self.mesh[group]


def make_parts(
    lines: Sequence[Line],
    *,
    num_layers: int,
    tied: tuple[tuple[int, ...], ...] = (),
    reads: tuple[Reads, ...] = (),
    samples: int = 4,
    tokens: int = 64,
) -> PlanParts:
    """Parts of a plan with one route for each line; all ranks on one node."""
    groups, stages, routes, batches, num_ranks = [], [], [], [], 0
    for number, line in enumerate(lines):
        first_group, first_stage = len(groups), len(stages)
        for group in range(line.num_groups):
            size = line.mesh_of(group).num_ranks
            groups.append(tuple(range(num_ranks, num_ranks + size)))
            num_ranks += size
        for stage in range(line.num_stages):
            layers = cut(num_layers, line.num_stages, stage)
            group = stage % line.num_groups
            mesh = line.mesh_of(group)
            stages.append(Stage(group=first_group + group, first_layer=layers.first, end_layer=layers.end, mesh=mesh))
        routes.append(tuple(range(first_stage, len(stages))))
        cuts = tuple(tokens * part // line.num_slices for part in range(line.num_slices + 1))
        batches += [MicroBatch(route=number, samples=samples, cuts=cuts)] * line.num_micro_batches
    return PlanParts(
        problem="6f" + "0" * 62,
        precision="fp32",
        graph=LayerGraph(model="9c" + "0" * 62, num_layers=num_layers, tied=tied, reads=reads),
        nodes=(Node(node_group="nodes", device_kind="cpu", num_ranks=num_ranks),),
        groups=tuple(groups),
        stages=tuple(stages),
        routes=tuple(routes),
        micro_batches=tuple(batches),
    )


def line_plan(
    family: Family,
    num_groups: int,
    num_micro_batches: int,
    *,
    legs: int = 1,
    num_slices: int = 1,
    forwards_first: Sequence[int] | None = None,
) -> Plan:
    """One route over ``num_groups`` groups of one rank, ``legs`` stages a group, one layer a stage."""
    line = Line(num_groups, num_groups * legs, num_micro_batches, num_slices=num_slices)
    return build_plan(make_parts([line], num_layers=line.num_stages), family, forwards_first=forwards_first)


def make_prices(
    plan: Plan,
    visit: Callable[[int], VisitPrice],
    *,
    message_ns: Callable[[int, int], int] = lambda sender, receiver: 0,
    message_bytes: int = 0,
    sum_ns: int = 0,
    update_ns: int = 0,
) -> PlanPrices:
    """``visit``: stage -> price, whatever the shape; messages by (sender stage, receiver stage), none in hand-overs."""
    shapes = {plan.visit_shape(b, k) for b, batch in enumerate(plan.micro_batches) for k in range(batch.num_slices)}
    borders = {}
    for (_, receiver), found in Dependencies(plan).neighbours.items():
        for sender in found.reads:
            free = is_handover(plan, sender, receiver)
            cost_ns = 0 if free else message_ns(sender, receiver)
            for shape in shapes:
                borders[sender, receiver, shape] = BorderPrice(cost_ns, cost_ns, 0 if free else message_bytes)
    updated = set(Dependencies(plan).updated_stages)
    return PlanPrices(
        visits={(stage, shape): visit(stage) for stage in range(len(plan.stages)) for shape in shapes},
        borders=borders,
        sum_ns=(sum_ns,) * len(pieces(plan)),
        update_ns=tuple(update_ns if stage in updated else 0 for stage in range(len(plan.stages))),
        state_bytes=(0,) * len(plan.groups),
        limit_bytes=(2**50,) * len(plan.groups),
        costs="measured",
    )
