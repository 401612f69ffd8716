"""How long a sum over ranks takes, from point-to-point tables: ring, or hierarchical ring over several nodes.

Ring of n ranks: 2(n-1) rounds, each a message of S/n over the slowest link of the ring. On N > 1 nodes of g ranks each
(cost model 6.3): reduce-scatter inside the nodes, (g-1) messages of S/g; ring over the nodes, 2(N-1) messages of
S/(gN); all-gather inside, (g-1) of S/g. Nodes of unequal numbers of ranks: the plain ring.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from planner.costs.links import Links, Place

__all__ = ["sum_ns"]


def sum_ns(links: Links, places: Sequence[Place], num_bytes: int) -> int:
    """All-reduce of ``num_bytes`` a rank over the ranks at ``places``; one rank or no bytes: no time."""
    if len(places) < 2 or num_bytes <= 0:
        return 0
    members = Counter(places)
    nodes = sorted(members)
    if len(nodes) > 1 and len(set(members.values())) == 1:
        return _hierarchical_ns(links, nodes, members[nodes[0]], num_bytes)
    return 2 * (len(places) - 1) * _slowest_ns(links, places, -(-num_bytes // len(places)))


def _hierarchical_ns(links: Links, nodes: Sequence[Place], ranks: int, num_bytes: int) -> int:
    inside_bytes = -(-num_bytes // ranks)
    inside_ns = max(links.message_ns(node, node, inside_bytes) for node in nodes) if ranks > 1 else 0
    between_ns = _slowest_ns(links, nodes, -(-num_bytes // (ranks * len(nodes))))
    return 2 * (ranks - 1) * inside_ns + 2 * (len(nodes) - 1) * between_ns


def _slowest_ns(links: Links, places: Sequence[Place], num_bytes: int) -> int:
    """The dearest message between two neighbours of a ring that visits the places node by node."""
    around = [*sorted(places), min(places)]
    pairs = sorted(set(pairwise(around)))
    return max(links.message_ns(one, other, num_bytes) for one, other in pairs)
