"""The devices that a plan may use, as blocks: the ranks that hold one stage together.

A block is ``data`` ranks of one node group, inside one node wherever the node is large enough; what is left over on
several nodes of the group is put together. Equal blocks of a node group are interchangeable: they are used in order.
"""

from collections.abc import Iterator
from itertools import islice
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


def device_classes(
    cluster: Cluster, *, data: int, unused_kinds: tuple[str, ...], most_blocks: int
) -> tuple[DeviceClass, ...]:
    """One class for each node group that may be used and has a block of ``data`` ranks; in the cluster's order.

    ``most_blocks``: of a class; a plan of one route has no use for more blocks than layers.
    """
    found, first_node = [], 0
    for group in cluster.node_groups:
        blocks = tuple(islice(_blocks(group, first_node, data), most_blocks))
        first_node += group.num_nodes
        if blocks and group.device_kind not in unused_kinds:
            found.append(DeviceClass(group.name, group.device_kind, group.usable_bytes, blocks))
    return tuple(found)


def _blocks(group: NodeGroup, first_node: int, data: int) -> Iterator[Block]:
    """Inside the nodes first, then over what is left of them."""
    inside = group.ranks_per_node // data
    nodes = range(first_node, first_node + group.num_nodes)
    for node in nodes:
        for _ in range(inside):
            yield Block((Place(group.name, node),) * data)
    left = group.ranks_per_node - inside * data
    ranks = (Place(group.name, node) for node in nodes for _ in range(left))
    while len(block := tuple(islice(ranks, data))) == data:
        yield Block(block)
