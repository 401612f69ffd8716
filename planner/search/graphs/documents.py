"""A ``graph/1`` document as the problem that the search works on."""

from planner.problem.graph import GraphDocument
from planner.search.graphs.problem import DeviceKind, GraphLayer, GraphProblem

__all__ = ["problem_of"]


def problem_of(document: GraphDocument) -> GraphProblem:
    """Raises what ``GraphProblem`` raises."""
    layers = tuple(
        GraphLayer(
            layer.name, layer.times_ns, layer.memory_bytes, layer.transfer_ns, layer.together or "", layer.is_backward
        )
        for layer in document.layers
    )
    kinds = tuple(DeviceKind(kind.name, kind.count, kind.memory_bytes, kind.pays_transfers) for kind in document.kinds)
    return GraphProblem(layers, document.reads, kinds)
