"""The layers of one stage on this rank, run forward with their autograd graph."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from planner.cutting.layer import CutLayer
from planner.executor.deferral import Deferral
from planner.executor.deferred_functions import Work
from planner.executor.layout import StageLayout
from planner.executor.recompute import Cell, run_recomputed
from planner.plan.graph import LayerGraph
from planner.plan.plan import Stage

__all__ = ["StageRunner", "VisitState"]


@dataclass(slots=True)
class VisitState:
    """What lives of one visit of this rank from its F to its last backward; tensors by layer number.

    ``taken`` came in over borders, ``given`` leaves with its graph, ``returned`` are gradients of ``given`` by
    (reader stage, layer), ``back`` gradients of ``taken``; ``weight_works`` is what I left for W.
    """

    taken: dict[int, Tensor] = field(default_factory=dict)
    given: dict[int, Tensor] = field(default_factory=dict)
    returned: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    back: dict[int, Tensor] = field(default_factory=dict)
    loss: Tensor | None = None
    cells: list[Cell] = field(default_factory=list)
    weight_works: list[Work] = field(default_factory=list)

    def clear(self) -> None:
        """All but the work of W."""
        for kept in (self.taken, self.given, self.returned, self.back, self.cells):
            kept.clear()
        self.loss = None


class _Call(NamedTuple):
    layer: int
    module: nn.Module
    sources: tuple[int, ...]
    detached: tuple[int, ...]
    recomputed: bool


class StageRunner:
    """Runs a stage's layers in order; a layer gets the outputs that it reads, or the batch."""

    def __init__(self, stage: Stage, layout: StageLayout, *, layers: tuple[CutLayer, ...], graph: LayerGraph) -> None:
        dropped = set(stage.recompute.get("full", ()))
        self.layout = layout
        self._calls = tuple(
            _Call(number, layers[number].module, *graph.layer_reads[number], number in dropped)
            for number in stage.layers
        )
        self._kept = frozenset({*layout.given_layers, stage.end_layer - 1} if layout.has_loss else layout.given_layers)
        self._last_layer = stage.end_layer - 1
        self._free_after = _last_uses(self._calls, self._kept)
        self._anchor = torch.zeros(0, requires_grad=True)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """Of the stage's layers."""
        return tuple(call.module for call in self._calls)

    @cached_property
    def deferral(self) -> Deferral:
        """For visits whose backward is split."""
        return Deferral(self.modules)

    def forward(self, visit: VisitState, inputs: Tensor | None) -> Tensor | None:
        """Fill ``visit.given``; the last layer's output where the stage has the loss."""
        values = dict(visit.taken)
        for call, free in zip(self._calls, self._free_after, strict=True):
            arguments = [values[source] for source in call.sources]
            if call.detached:
                arguments += [values[source].detach() for source in call.detached]
            if not arguments:
                assert inputs is not None, "a layer that reads the batch gets it"
                arguments = [inputs]
            if call.recomputed and torch.is_grad_enabled():
                cell = Cell(call.module)
                visit.cells.append(cell)
                values[call.layer] = run_recomputed(cell, self._anchor, arguments)
            else:
                values[call.layer] = call.module(*arguments)
            for layer in free:
                del values[layer]
        for layer in self.layout.given_layers:
            visit.given[layer] = values[layer]
        return values[self._last_layer] if self.layout.has_loss else None


def _last_uses(calls: tuple[_Call, ...], kept: frozenset[int]) -> tuple[tuple[int, ...], ...]:
    """After each call: the values that no later call reads and nobody else keeps."""
    last: dict[int, int] = {}
    for place, call in enumerate(calls):
        for layer in (call.layer, *call.sources, *call.detached):
            last[layer] = place
    return tuple(
        tuple(layer for layer, use in last.items() if use == place and layer not in kept) for place in range(len(calls))
    )
