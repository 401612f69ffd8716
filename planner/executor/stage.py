"""The layers of one stage on this rank, run forward with their autograd graph."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from planner.cutting.layer import CutLayer, reads_labels
from planner.cutting.slicing import num_carried, run_slice
from planner.executor.deferral import Deferral
from planner.executor.deferred_functions import Work
from planner.executor.draws import Chance, Draws, chances, may_draw
from planner.executor.layout import StageLayout
from planner.executor.recompute import Cell, run_recomputed, run_recomputed_parts
from planner.executor.slices import Handed, SlicePlace
from planner.plan.graph import LayerGraph
from planner.plan.plan import Stage

__all__ = ["Portion", "StageRunner", "VisitState"]


_Result = TypeVar("_Result")


@dataclass(slots=True)
class VisitState:
    """What lives of one visit of this rank from its F to its last backward; tensors by layer number.

    ``taken`` came in over borders, ``given`` leaves with its graph, ``returned`` are gradients of ``given`` by
    (reader stage, layer), ``back`` gradients of ``taken``; ``handed`` is what later slices read of this one,
    ``weight_works`` what I left for W. ``first_sample``: of its rows, counted from the first step of the training.
    """

    taken: dict[int, Tensor] = field(default_factory=dict)
    given: dict[int, Tensor] = field(default_factory=dict)
    returned: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    back: dict[int, Tensor] = field(default_factory=dict)
    first_sample: int = 0
    loss: Tensor | None = None
    handed: list[Handed] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    weight_works: list[Work] = field(default_factory=list)

    def clear(self) -> None:
        """All but the work of W."""
        for kept in (self.taken, self.given, self.returned, self.back, self.handed, self.cells):
            kept.clear()
        self.loss = None


class Portion(NamedTuple):
    """The part of the batch that a visit reads; None where no layer of its stage does."""

    inputs: Tensor | None
    labels: Tensor | None


class _Call(NamedTuple):
    layer: int
    module: nn.Module
    sources: tuple[int, ...]
    detached: tuple[int, ...]
    recomputed: bool
    reads_labels: bool
    num_carried: int
    chances: tuple[Chance, ...]


_Run = Callable[[_Call, list[Tensor]], Tensor]


class StageRunner:
    """Runs a stage's layers in order; a layer gets the outputs that it reads, or the batch."""

    def __init__(
        self, stage: Stage, layout: StageLayout, *, layers: tuple[CutLayer, ...], graph: LayerGraph, draws: Draws
    ) -> None:
        dropped = set(stage.recompute.get("full", ()))
        self.layout = layout
        self._draws = draws
        modules = [layers[number].module for number in stage.layers]
        self._calls = tuple(
            _Call(
                number,
                module,
                *graph.layer_reads[number],
                recomputed=number in dropped,
                reads_labels=reads_labels(module),
                num_carried=num_carried(module),
                chances=chances(module),
            )
            for number, module in zip(stage.layers, modules, strict=True)
        )
        self.reads_labels = bool(layout.loss_layers) or any(call.reads_labels for call in self._calls)
        self._free_after = _last_uses(self._calls, frozenset({*layout.given_layers, *layout.loss_layers}))
        self._anchor = torch.zeros(0, requires_grad=True)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """Of the stage's layers."""
        return tuple(call.module for call in self._calls)

    @cached_property
    def deferral(self) -> Deferral:
        """For visits whose backward is split."""
        return Deferral(self.modules)

    def forward(self, visit: VisitState, portion: Portion) -> list[Tensor]:
        """Fill ``visit.given``; the outputs that a loss is computed of, in the order of ``layout.loss_layers``."""
        return self._forward(visit, portion, partial(self._whole, visit))

    def forward_slice(self, visit: VisitState, portion: Portion, place: SlicePlace) -> list[Tensor]:
        """The same for one slice; what it carries goes into ``place.carried`` and ``visit.handed``."""
        return self._forward(visit, portion, partial(self._slice, visit, place))

    def _forward(self, visit: VisitState, portion: Portion, run: _Run) -> list[Tensor]:
        values = dict(visit.taken)
        for call, free in zip(self._calls, self._free_after, strict=True):
            arguments = [values[source] for source in call.sources]
            if call.detached:
                arguments += [values[source].detach() for source in call.detached]
            if not arguments:
                assert portion.inputs is not None, "a layer that reads the batch gets it"
                arguments = [portion.inputs]
            if call.reads_labels:
                assert portion.labels is not None, "a layer that reads the labels gets them"
                arguments.append(portion.labels)
            values[call.layer] = run(call, arguments)
            for layer in free:
                del values[layer]
        for layer in self.layout.given_layers:
            visit.given[layer] = values[layer]
        return [values[layer] for layer in self.layout.loss_layers]

    def _whole(self, visit: VisitState, call: _Call, arguments: list[Tensor]) -> Tensor:
        if call.recomputed and torch.is_grad_enabled():
            cell = Cell(call.module, self._drawing(call.module, call, sample=visit.first_sample))
            visit.cells.append(cell)
            return run_recomputed(cell, self._anchor, arguments)
        output: Tensor = self._drawing(call.module, call, sample=visit.first_sample)(*arguments)
        return output

    def _slice(self, visit: VisitState, place: SlicePlace, call: _Call, arguments: list[Tensor]) -> Tensor:
        before = place.carried.before(call.layer) if call.num_carried else []
        if call.recomputed and torch.is_grad_enabled():
            run = partial(_run_flat, call, place.first_token, len(arguments))
            cell = Cell(call.module, self._drawing(run, call, sample=visit.first_sample, token=place.first_token))
            visit.cells.append(cell)
            flat = [*arguments, *(tensor for earlier in before for tensor in earlier)]
            output, *parts = run_recomputed_parts(cell, self._anchor, flat)
            carried = tuple(parts)
        else:
            whole = partial(run_slice, call.module, arguments, before=before, first_token=place.first_token)
            output, carried = self._drawing(whole, call, sample=visit.first_sample, token=place.first_token)()
        if call.num_carried and not place.is_last:
            visit.handed += place.carried.add(call.layer, carried)
        return output

    def _drawing(
        self, run: Callable[..., _Result], call: _Call, *, sample: int, token: int = 0
    ) -> Callable[..., _Result]:
        """``run`` as it is, where it draws no random numbers; a second run must draw those of the first in any case."""
        if (call.recomputed and call.module.training) or (call.chances and may_draw(call.chances)):
            return self._draws.seeded(run, call.layer, sample=sample, token=token)
        return run


def _run_flat(call: _Call, first_token: int, num_inputs: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    """``run_slice`` for inputs and then all that earlier slices carry, in one row: what recompute can keep."""
    earlier = tensors[num_inputs:]
    before = [earlier[first : first + call.num_carried] for first in range(0, len(earlier), call.num_carried or 1)]
    output, carried = run_slice(call.module, tensors[:num_inputs], before=before, first_token=first_token)
    return (output, *carried)


def _last_uses(calls: tuple[_Call, ...], kept: frozenset[int]) -> tuple[tuple[int, ...], ...]:
    """After each call: the values that no later call reads and nobody else keeps."""
    last: dict[int, int] = {}
    for place, call in enumerate(calls):
        for layer in (call.layer, *call.sources, *call.detached):
            last[layer] = place
    return tuple(
        tuple(layer for layer, use in last.items() if use == place and layer not in kept) for place in range(len(calls))
    )
