"""Node groups and the links between them, ``cluster/1``.

Ranks of one node talk over the group's ``inside_node`` link, nodes of one group over its ``between_nodes`` link,
nodes of two groups over the ``between_nodes`` link of that pair. A link is directed; where the other direction is
not given it is the same. A link keeps a table of (bytes, ns); latency and bandwidth serve outside the table only.
A link of bandwidth 0 cannot be used in its direction, whatever the other direction says.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.problem.canonical import document_digest
from planner.problem.cluster_rules import cluster_fault
from planner.problem.contract import MOST_RANKS, Bytes, Contract, Count, FiniteFloat, Many, Name, Nanoseconds

__all__ = ["MOST_RANKS", "Cluster", "Link", "LinkPoint", "NodeGroup", "Tier"]

Tier = Literal["inside_node", "between_nodes"]


class NodeGroup(Contract):
    """``num_nodes`` identical nodes of ``ranks_per_node`` devices of one kind."""

    name: Name
    device_kind: Name
    num_nodes: Annotated[int, Field(ge=1, le=2**40)]
    ranks_per_node: Annotated[int, Field(ge=1, le=2**40)]
    usable_bytes: Count  # of one rank, after context and communicators exist
    price_per_hour: Annotated[FiniteFloat, Field(ge=0)] | None = None  # of one node, in the user's currency

    @property
    def num_ranks(self) -> int:
        return self.num_nodes * self.ranks_per_node


class LinkPoint(Contract):
    """One measured message: how long ``message_bytes`` take one way."""

    message_bytes: Bytes
    transfer_ns: Nanoseconds


class Link(Contract):
    """A path from the ranks of ``source`` to those of ``target``."""

    source: Name
    target: Name
    tier: Tier
    latency_ns: Nanoseconds
    bandwidth_bytes_per_s: Bytes
    table: Annotated[Many[LinkPoint], Field(max_length=1000)] = ()

    @property
    def usable(self) -> bool:
        return self.bandwidth_bytes_per_s > 0


class Cluster(Contract):
    """The devices that a plan may use."""

    schema_version: Literal["cluster/1"] = Field(alias="schema")
    node_groups: Annotated[Many[NodeGroup], Field(max_length=4096)]
    links: Annotated[Many[Link], Field(max_length=100_000)] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "Cluster":
        found = cluster_fault(self)
        if found is not None:
            raise found
        return self

    @cached_property
    def digest(self) -> str:
        """The cluster's id: SHA-256 over its canonical JSON."""
        return document_digest(self)

    @property
    def num_ranks(self) -> int:
        return sum(group.num_ranks for group in self.node_groups)

    @property
    def device_kinds(self) -> tuple[str, ...]:
        """Each device kind once, in the order of the node groups."""
        return tuple(dict.fromkeys(group.device_kind for group in self.node_groups))

    @cached_property
    def groups_by_name(self) -> Mapping[str, NodeGroup]:
        return {group.name: group for group in self.node_groups}

    @cached_property
    def links_by_ends(self) -> Mapping[tuple[str, str, Tier], Link]:
        """(source, target, tier) -> the link that is stated for this direction."""
        return {(link.source, link.target, link.tier): link for link in self.links}

    def node_group(self, name: str) -> NodeGroup:
        return self.groups_by_name[name]

    def link(self, source: str, target: str, tier: Tier) -> Link | None:
        """The usable link from ``source`` to ``target``; the reverse one where this direction is not given."""
        stated = self.links_by_ends.get((source, target, tier)) or self.links_by_ends.get((target, source, tier))
        return stated if stated is not None and stated.usable else None
