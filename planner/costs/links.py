"""How long a message takes between two places of a cluster.

Inside a link's table: interpolation in log bytes x log time (cost model 6.1: a straight line misses by 20-60 %), over
times made monotone in size. Below the table: latency + bytes / bandwidth, at most the first entry. Above it: the last
entry and the further bytes at the link's bandwidth.
"""

import math
from bisect import bisect_left
from typing import NamedTuple

from planner.errors import PriceError
from planner.problem.cluster import Cluster, Link, Tier
from planner.units import NS_PER_SECOND

__all__ = ["Links", "Place", "message_ns"]


class Place(NamedTuple):
    """Where a rank runs: node group of the cluster, and the number of its node in the plan."""

    node_group: str
    node: int


class Links:
    """The links of a cluster, looked up once each."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._found: dict[tuple[str, str, Tier], Link | None] = {}

    def between(self, sender: Place, receiver: Place) -> Link:
        """The link from one place to another. Raises ``PriceError`` where the cluster has none."""
        tier: Tier = "inside_node" if sender.node == receiver.node else "between_nodes"
        return self.link(sender.node_group, receiver.node_group, tier)

    def link(self, source: str, target: str, tier: Tier) -> Link:
        """The link between node groups. Raises ``PriceError`` where the cluster has none."""
        key = (source, target, tier)
        if key not in self._found:
            self._found[key] = self._cluster.link(source, target, tier)
        found = self._found[key]
        if found is None:
            message = f"the cluster has no usable {tier} link from {source!r} to {target!r}"
            raise PriceError(message, code="no_link", pointer="/cluster/links")
        return found

    def message_ns(self, sender: Place, receiver: Place, num_bytes: int) -> int:
        return message_ns(self.between(sender, receiver), num_bytes)


def message_ns(link: Link, num_bytes: int) -> int:
    """One message of ``num_bytes`` one way; nothing to send takes no time."""
    if num_bytes <= 0:
        return 0
    if not link.table:
        return link.latency_ns + _at_bandwidth_ns(link, num_bytes)
    sizes = [point.message_bytes for point in link.table]
    times: list[int] = []
    for point in link.table:
        times.append(max(point.transfer_ns, times[-1] if times else 0))
    if num_bytes <= sizes[0]:
        straight = link.latency_ns + _at_bandwidth_ns(link, num_bytes)
        return times[0] if num_bytes == sizes[0] else min(times[0], straight)
    if num_bytes > sizes[-1]:
        return times[-1] + _at_bandwidth_ns(link, num_bytes - sizes[-1])
    upper = bisect_left(sizes, num_bytes)
    share = _log_share(num_bytes, sizes[upper - 1], sizes[upper])
    low, high = (math.log(max(1, time)) for time in times[upper - 1 : upper + 1])
    return round(math.exp(low + share * (high - low)))


def _log_share(value: int, low: int, high: int) -> float:
    return math.log(value / max(1, low)) / math.log(high / max(1, low))


def _at_bandwidth_ns(link: Link, num_bytes: int) -> int:
    return -(-num_bytes * NS_PER_SECOND // link.bandwidth_bytes_per_s)
