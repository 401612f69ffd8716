"""The devices that a plan may use, as blocks: the ranks that hold one stage together.

A block is ``data`` ranks of one node group, inside one node wherever the node is large enough; what is left over on
several nodes of the group is put together. Equal blocks of a node group are interchangeable: they are used in order.
"""

from typing import NamedTuple

from planner.costs.links import Place
from planner.problem.cluster import Cluster, NodeGroup

__all__ = ["Block", "DeviceClass", "device_classes"]


class Block(NamedTuple):
    """Ranks that hold one stage, by the places that they run at; node numbers count over the whole cluster."""

    places: tuple[Place, ...]


class DeviceClass(NamedTuple):
    """Interchangeable blocks of one node group."""

    node_group: str
    device_kind: str
    usable_bytes: int
    blocks: tuple[Block, ...]


def device_classes(cluster: Cluster, *, data: int, unused_kinds: tuple[str, ...]) -> tuple[DeviceClass, ...]:
    """One class for each node group that may be used and has a block of ``data`` ranks; in the cluster's order."""
    found, first_node = [], 0
    for group in cluster.node_groups:
        blocks = _blocks(group, first_node, data)
        first_node += group.num_nodes
        if blocks and group.device_kind not in unused_kinds:
            found.append(DeviceClass(group.name, group.device_kind, group.usable_bytes, blocks))
    return tuple(found)


def _blocks(group: NodeGroup, first_node: int, data: int) -> tuple[Block, ...]:
    inside = group.ranks_per_node // data * data
    whole, left = list[Place](), list[Place]()
    for node in range(first_node, first_node + group.num_nodes):
        ranks = [Place(group.name, node)] * group.ranks_per_node
        whole += ranks[:inside]
        left += ranks[inside:]
    return tuple(
        Block(tuple(ranks[first : first + data]))
        for ranks in (whole, left)
        for first in range(0, len(ranks) // data * data, data)
    )
