"""Which layers share weights: sets of layers joined by common names."""

from collections.abc import Iterable, Mapping, Sequence

from planner.problem.profile import TiedWeights

__all__ = ["tied_weights"]


def tied_weights(parameters: Sequence[Mapping[str, object]]) -> tuple[TiedWeights, ...]:
    """Disjoint sets of layers that share a weight, directly or over others, ascending, with the shared names."""
    holders: dict[str, list[int]] = {}
    for layer, names in enumerate(parameters):
        for name in names:
            holders.setdefault(name, []).append(layer)
    shared = {name: layers for name, layers in holders.items() if len(layers) > 1}
    return tuple(
        TiedWeights(
            layers=tuple(sorted(layers)),
            parameter_names=tuple(name for name, held in shared.items() if layers >= set(held)),
        )
        for layers in _joined(shared.values())
    )


def _joined(sets: Iterable[Sequence[int]]) -> list[set[int]]:
    """Sets that meet become one; ordered by their first layer."""
    result: list[set[int]] = []
    for members in sets:
        touching = [one for one in result if one & set(members)]
        result = [one for one in result if one not in touching] + [set(members).union(*touching)]
    return sorted(result, key=min)
