"""What it costs to go from one plan to another while the job's ranks live: weights and optimizer state to be sent.

A device is known by its node group, its node in the order of the plan, and its place on the node; of a node group that
shrank the last nodes are the lost ones. A rank needs what the layers of its stages hold: weights and optimizer state,
of a tensor cut its part. What it holds already is not sent. Each missing part comes from a rank that holds it, on the
same node if there is one, else the one that has sent least; messages of one rank follow one another, ranks work at the
same time.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from planner.costs.links import Links, message_ns
from planner.costs.stages import GRADIENT_BYTES
from planner.errors import PriceError
from planner.explain.documents import Move
from planner.plan.plan import Plan
from planner.problem.cluster import Tier
from planner.problem.contract import LongestDuration
from planner.problem.problem import Problem

__all__ = ["move_between"]


class _Device(NamedTuple):
    node_group: str
    node: int  # of its group, in the order of the plan
    place: int


class _Part(NamedTuple):
    """Of a weight: part ``number`` of ``of`` along the tensor cut."""

    weight: int
    number: int
    of: int


class _Traffic:
    """Who sends and receives for how long."""

    def __init__(self) -> None:
        self.sending: Counter[_Device] = Counter()
        self.receiving: Counter[_Device] = Counter()

    @property
    def busiest_ns(self) -> int:
        return max([*self.sending.values(), *self.receiving.values()], default=0)


def move_between(old: Plan, new: Plan, problem: Problem) -> Move:
    """``problem``: the facts of the cluster as it is now. Raises ``PriceError`` where ranks have no link."""
    alive = {group.name: group.num_nodes for group in problem.cluster.node_groups}
    had, needed = _held(old), _held(new)
    holders: dict[_Part, list[_Device]] = defaultdict(list)
    for device, parts in sorted(had.items()):
        if device.node < alive.get(device.node_group, 0):
            for part in parts:
                holders[part].append(device)
    links, traffic = Links(problem.cluster), _Traffic()
    moved = lost = 0
    for device, parts in sorted(needed.items()):
        for part in sorted(parts):
            if device in holders[part]:
                continue
            size = _part_bytes(part, problem)
            if holders[part]:
                _send(device, holders[part], size, links=links, traffic=traffic)
                moved += size
            else:
                lost += size
    if traffic.busiest_ns > LongestDuration:
        message = f"moving the weights takes {traffic.busiest_ns} ns, expected at most {LongestDuration} ns"
        raise PriceError(message, code="range", pointer="/move/moving_ns")
    return Move(moved_bytes=moved, from_checkpoint_bytes=lost, moving_ns=traffic.busiest_ns)


def _send(device: _Device, holders: list[_Device], size: int, *, links: Links, traffic: _Traffic) -> None:
    near = [one for one in holders if one[:2] == device[:2]] or holders
    sender = min(near, key=lambda one: (traffic.sending[one], one))
    tier: Tier = "inside_node" if sender[:2] == device[:2] else "between_nodes"
    duration_ns = message_ns(links.link(sender.node_group, device.node_group, tier), size)
    traffic.sending[sender] += duration_ns
    traffic.receiving[device] += duration_ns


def _held(plan: Plan) -> dict[_Device, set[_Part]]:
    """Device -> the parts of weights that it holds; state that is sharded over data ranks is counted as whole."""
    devices, found = _devices(plan), defaultdict[_Device, set[_Part]](set)
    for stage in plan.stages:
        tensor = stage.mesh.tensor
        for position, rank in enumerate(plan.groups[stage.group]):
            for layer in stage.layers:
                found[devices[rank]].add(_Part(plan.graph.weight_of[layer], position % tensor, tensor))
    return found


def _devices(plan: Plan) -> list[_Device]:
    """By rank."""
    seen: Counter[str] = Counter()
    found = []
    for node in plan.nodes:
        found += [_Device(node.node_group, seen[node.node_group], place) for place in range(node.num_ranks)]
        seen[node.node_group] += 1
    return found


def _part_bytes(part: _Part, problem: Problem) -> int:
    """Weights and optimizer state; gradients are made anew each step."""
    layer, workload = problem.profiles[0].layers[part.weight], problem.workload
    weight_bytes = 4 if workload.precision == "fp32" else 2
    state_bytes = workload.state_bytes_per_parameter - weight_bytes - GRADIENT_BYTES
    size = layer.num_params * weight_bytes + layer.num_trained_params * state_bytes
    return layer.buffer_bytes + -(-size // part.of)
