"""What a cluster checks about itself beyond its field types, one rule a function; the first broken rule counts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from planner.problem.contract import MOST_RANKS, fault, first_repeated

if TYPE_CHECKING:
    from planner.problem.cluster import Cluster, Link, Tier

__all__ = ["cluster_fault"]

_Found = PydanticCustomError | None


def cluster_fault(cluster: Cluster) -> _Found:
    """The first rule that ``cluster`` breaks, or None."""
    return next((found for rule in _RULES if (found := rule(cluster)) is not None), None)


def _has_devices(cluster: Cluster) -> _Found:
    return None if cluster.node_groups else fault("empty_cluster", "found 0 node groups, expected at least 1")


def _not_too_many_ranks(cluster: Cluster) -> _Found:
    if cluster.num_ranks > MOST_RANKS:
        return fault("limit", f"found {cluster.num_ranks} ranks, expected at most {MOST_RANKS}")
    return None


def _names_differ(cluster: Cluster) -> _Found:
    repeated = first_repeated(group.name for group in cluster.node_groups)
    return None if repeated is None else fault("duplicate_id", f"node group {repeated!r} stands twice")


def _links_are_sound(cluster: Cluster) -> _Found:
    names = {group.name for group in cluster.node_groups}
    for link in cluster.links:
        absent = [end for end in (link.source, link.target) if end not in names]
        if absent:
            return fault("dangling_edge", f"a link names node group {absent[0]!r}, which the cluster does not have")
        found = _self_link(cluster, link) or _table_fault(link)
        if found is not None:
            return found
    repeated = first_repeated((link.source, link.target, link.tier) for link in cluster.links)
    return None if repeated is None else fault("duplicate_id", f"the link {repeated} stands twice")


def _self_link(cluster: Cluster, link: Link) -> _Found:
    """A link needs two ranks: inside a node of one rank, or between the nodes of a one-node group, it has one."""
    if link.source != link.target:
        if link.tier == "inside_node":
            return fault("choice", f"the link {link.source!r} -> {link.target!r} joins two groups: between_nodes only")
        return None
    group = cluster.node_group(link.source)
    ends = group.ranks_per_node if link.tier == "inside_node" else group.num_nodes
    if ends > 1:
        return None
    return fault("self_link", f"the {link.tier} link of {link.source!r} joins a rank with itself")


def _table_fault(link: Link) -> _Found:
    sizes = [point.message_bytes for point in link.table]
    if sizes != sorted(set(sizes)):
        return fault("order", f"the table of {link.source!r} -> {link.target!r} must ascend in bytes, each size once")
    return None


def _pairs_inside_are_reachable(cluster: Cluster) -> _Found:
    for group in cluster.node_groups:
        needs: list[tuple[Tier, bool]] = [
            ("inside_node", group.ranks_per_node > 1),
            ("between_nodes", group.num_nodes > 1),
        ]
        for tier, needed in needs:
            if needed and cluster.link(group.name, group.name, tier) is None:
                stated = (group.name, group.name, tier) in cluster.links_by_ends
                code = "unreachable" if stated else "missing_link"
                return fault(code, f"node group {group.name!r} needs a usable {tier} link")
    return None


def _groups_are_reachable(cluster: Cluster) -> _Found:
    sizes = _component_sizes(cluster)
    if len(sizes) > 1:
        shown = f"{sizes[:8]} and more" if len(sizes) > 8 else str(sizes)
        return fault("disconnected_cluster", f"the node groups fall into parts of {shown} ranks with no link between")
    for one, other in permutations((group.name for group in cluster.node_groups), 2):
        if cluster.link(one, other, "between_nodes") is None:
            ends: list[tuple[str, str, Tier]] = [(one, other, "between_nodes"), (other, one, "between_nodes")]
            code = "unreachable" if any(end in cluster.links_by_ends for end in ends) else "missing_link"
            return fault(code, f"no usable link from node group {one!r} to {other!r}")
    return None


def _component_sizes(cluster: Cluster) -> list[int]:
    """Ranks of each connected part, largest first; a stated link of bandwidth 0 is reported as unreachable instead."""
    neighbours: dict[str, list[str]] = {group.name: [] for group in cluster.node_groups}
    for link in cluster.links:
        neighbours[link.source].append(link.target)
        neighbours[link.target].append(link.source)
    sizes, seen = [], set[str]()
    for start in neighbours:
        size, waiting = 0, [start]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                size += cluster.node_group(name).num_ranks
                waiting.extend(neighbours[name])
        if size:
            sizes.append(size)
    return sorted(sizes, reverse=True)


_RULES: tuple[Callable[[Cluster], _Found], ...] = (
    _has_devices,
    _not_too_many_ranks,
    _names_differ,
    _links_are_sound,
    _pairs_inside_are_reachable,
    _groups_are_reachable,
)
