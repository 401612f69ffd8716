"""The table of all weights of the model: global name -> the layers and the ranks that hold it.

Two names of one storage are one weight (the cut says which); every rank makes the same table, the handshake compares
it. Names are global everywhere: sums, files, initial values.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch

from planner.cutting.layer import CutModel
from planner.cutting.precision import precision_fault
from planner.errors import HandshakeError
from planner.plan.plan import Plan
from planner.problem.canonical import canonical_digest
from planner.problem.contract import Digest

__all__ = ["Weight", "WeightTable", "check_model", "check_trained", "weight_table"]


@dataclass(frozen=True)
class Weight:
    """One parameter or buffer. ``layers`` and ``holders`` (ranks) ascend; the first holder speaks for all."""

    name: str
    layers: tuple[int, ...]
    holders: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    trained: bool

    @property
    def owner(self) -> int:
        """The rank that counts it in the norm and gives it to a file."""
        return self.holders[0]


@dataclass(frozen=True)
class WeightTable:
    """All weights by name, in the order of the layers."""

    weights: dict[str, Weight]

    def held_by(self, rank: int) -> tuple[Weight, ...]:
        return tuple(weight for weight in self.weights.values() if rank in weight.holders)

    def trained_by(self, rank: int) -> tuple[Weight, ...]:
        return tuple(weight for weight in self.held_by(rank) if weight.trained)

    @cached_property
    def digest(self) -> Digest:
        return canonical_digest(
            {
                weight.name: [list(weight.shape), str(weight.dtype), list(weight.holders), weight.trained]
                for weight in self.weights.values()
            }
        )


def weight_table(plan: Plan, cut: CutModel) -> WeightTable:
    """Parameters and buffers of all layers."""
    trains = {visit.stage for visit, text in plan.visit_operations.items() if "B" in text or "W" in text}
    ranks: dict[int, set[int]] = defaultdict(set)
    trained_layers: set[int] = set()
    for number, stage in enumerate(plan.stages):
        for layer in stage.layers:
            ranks[layer].update(plan.groups[stage.group])
            if number in trains:
                trained_layers.add(layer)
    layers_of = _layers_of((*layer.parameters, *layer.buffers) for layer in cut.layers)
    found: dict[str, Weight] = {}
    for name, layers in layers_of.items():
        holder = cut.layers[layers[0]]
        tensor = holder.parameters[name] if name in holder.parameters else holder.buffers[name]
        found[name] = Weight(
            name=name,
            layers=layers,
            holders=tuple(sorted({rank for layer in layers for rank in ranks[layer]})),
            shape=tuple(tensor.shape),
            dtype=tensor.dtype,
            trained=name in holder.parameters and tensor.requires_grad and layers[0] in trained_layers,
        )
    return WeightTable(found)


def _layers_of(names: Iterable[Iterable[str]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = defaultdict(list)
    for layer, held in enumerate(names):
        for name in held:
            found[name].append(layer)
    return {name: tuple(layers) for name, layers in found.items()}


def check_model(plan: Plan, cut: CutModel) -> None:
    """Raises ``HandshakeError`` where the plan was made for another model or misses that layers share a weight."""
    graph = plan.graph
    if len(cut.layers) != graph.num_layers or cut.fingerprint != graph.model:
        types = precision_fault(cut, plan.precision)
        raise HandshakeError(
            f"found a model of {len(cut.layers)} layers with fingerprint {cut.fingerprint}, "
            f"expected {graph.num_layers} layers and {graph.model}" + (f"; {types.message}" if types else ""),
            code="model_mismatch",
            pointer="/graph/model",
        )
    if cut.reads != graph.reads:
        raise HandshakeError(
            f"found layers that read {cut.reads}, expected {graph.reads}", code="model_graph", pointer="/graph/reads"
        )
    for tied in cut.tied:
        if tied.layers not in graph.tied:
            names = ", ".join(tied.parameter_names[:3])
            raise HandshakeError(
                f"layers {tied.layers} share {names}, which the plan does not know: its tied layers are {graph.tied}",
                code="tied_split",
                pointer="/graph/tied",
            )


def check_trained(plan: Plan, cut: CutModel) -> None:
    """Raises ``HandshakeError`` where a plan that trains leaves out trained weights of the model.

    The other way round nothing is lost: B of layers without trained weights is their I.
    """
    trains = {visit.stage for visit, text in plan.visit_operations.items() if {"B", "W"} & set(text)}
    left_out = (number for number in range(len(plan.stages)) if trains and number not in trains)
    for stage in left_out:
        for layer in plan.stages[stage].layers:
            names = [name for name, weight in cut.layers[layer].parameters.items() if weight.requires_grad]
            if names:
                raise HandshakeError(
                    f"found no B or W of stage {stage}, expected one: its layer {layer} has the trained weights "
                    f"{', '.join(names[:3])}{' ..' if names[3:] else ''}; freeze them, or take a plan that trains them",
                    code="untrained",
                    pointer=f"/stages/{stage}",
                )
