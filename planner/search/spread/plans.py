"""A cut of an arm written out as a plan.

Ranks of a node group are dealt to stages in order of falling tensor degree: degrees divide each other and the node, so
tensor ranks never span nodes. A stage shares its optimizer state only where it would not fit without.
"""

from collections import defaultdict

from planner.costs.links import Place
from planner.plan.mesh import Mesh
from planner.plan.plan import Plan, Stage
from planner.schedules.build import build_plan
from planner.search.assemble import plan_parts
from planner.search.devices import Block
from planner.search.partition import Cut
from planner.search.spread.arms import Arm, StageChoice

__all__ = ["spread_plan"]


def spread_plan(arm: Arm, cut: Cut) -> Plan:
    """The 1F1B plan of a cut, without prediction and provenance."""
    chosen = [arm.choices[pick.option] for pick in cut.stages]
    stages = tuple(
        Stage(
            group=number,
            first_layer=pick.first_layer,
            end_layer=pick.end_layer,
            mesh=_mesh(arm, choice),
            recompute={"full": tuple(range(pick.first_layer, pick.end_layer))} if choice.recomputes else {},
        )
        for number, (pick, choice) in enumerate(zip(cut.stages, chosen, strict=True))
    )
    samples = arm.degrees.samples(arm.costs.problem.workload.global_batch_size)
    return build_plan(plan_parts(arm.costs, stages, _blocks(arm, chosen), samples=samples), "1f1b")


def _mesh(arm: Arm, choice: StageChoice) -> Mesh:
    if arm.shards == 1:
        return Mesh(data=arm.degrees.data, tensor=choice.tensor)
    return Mesh(data=arm.degrees.data, tensor=choice.tensor, shards=arm.shards, sharded="optimizer")


def _blocks(arm: Arm, chosen: list[StageChoice]) -> list[Block]:
    """The places of each stage's ranks; node numbers count over the whole cluster."""
    first_node, nodes = [], 0
    for group in arm.groups:
        first_node.append(nodes)
        nodes += group.num_nodes
    blocks, taken = dict[int, Block](), defaultdict[int, int](int)
    for number in sorted(range(len(chosen)), key=lambda n: (-chosen[n].tensor, n)):
        choice = chosen[number]
        group, start = arm.groups[choice.group], taken[choice.group]
        taken[choice.group] = end = start + arm.degrees.data * choice.tensor
        places = [first_node[choice.group] + rank // group.ranks_per_node for rank in range(start, end)]
        blocks[number] = Block(tuple(Place(group.name, node) for node in places))
    return [blocks[number] for number in range(len(chosen))]
