"""What a graph partition says, and its loads counted again straight from the definition."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.plan.answer import Limit
from planner.search.graphs.problem import GraphProblem

__all__ = ["GraphAnswer", "GraphPart", "GraphPlan", "load_ns", "plan_of"]


class GraphPart(NamedTuple):
    """What one device holds: the layers by number, ascending."""

    kind: int
    layers: tuple[int, ...]
    load_ns: int
    memory_bytes: int


class GraphPlan(NamedTuple):
    """Parts that hold every layer once; of a contiguous plan, in order. ``value_ns``: the largest load."""

    parts: tuple[GraphPart, ...]
    value_ns: int


class GraphAnswer(NamedTuple):
    """The best plan so far, if any, and what no plan can beat; ``limit``: what ended the search, None: it goes on."""

    plan: GraphPlan | None
    bound_ns: int
    limit: Limit | None = None

    @property
    def gap(self) -> float:
        """Of the best plan, as a share of the bound."""
        if self.plan is None:
            return float("inf")
        return (self.plan.value_ns - self.bound_ns) / max(1, self.bound_ns)


def load_ns(problem: GraphProblem, kind: int, layers: Sequence[int]) -> int:
    """Of one device of ``kind`` that holds ``layers``: times, and each output that enters or leaves, once."""
    inside = set(layers)
    times = [problem.layers[number].times_ns[kind] for number in layers]
    assert all(time is not None for time in times), "a layer on a kind that cannot run it"
    total_ns = sum(time for time in times if time is not None)
    if not problem.kinds[kind].pays_transfers:
        return total_ns
    for number, readers in enumerate(problem.readers):
        enters = number not in inside and any(reader in inside for reader in readers)
        leaves = number in inside and any(reader not in inside for reader in readers)
        total_ns += problem.layers[number].transfer_ns * (enters or leaves)
    return total_ns


def plan_of(problem: GraphProblem, parts: Sequence[tuple[int, Sequence[int]]]) -> GraphPlan:
    """Checks that the parts (kind, layers) are legal and counts their loads anew."""
    held = sorted(layer for _, layers in parts for layer in layers)
    assert held == list(range(len(problem.layers))), "every layer lies on one device"
    found = []
    for number, (kind, layers) in enumerate(parts):
        memory_bytes = sum(problem.layers[layer].memory_bytes for layer in layers)
        limit_bytes = problem.kinds[kind].memory_bytes
        assert limit_bytes is None or memory_bytes <= limit_bytes, f"part {number} exceeds the memory of its device"
        found.append(GraphPart(kind, tuple(sorted(layers)), load_ns(problem, kind, layers), memory_bytes))
    for kind, device in enumerate(problem.kinds):
        assert sum(part.kind == kind for part in found) <= device.num_devices, (
            f"more than {device.num_devices} {device.name}"
        )
    return GraphPlan(tuple(found), max(part.load_ns for part in found))
