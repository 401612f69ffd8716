"""Shapes and types of what every layer gives, worked out on meta: the model is never run to learn them.

All layers run once in order on tensors without values, for each different number of samples and tokens that a rank
or a message holds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from planner.cutting.example import example_batch
from planner.cutting.layer import CutLayer
from planner.errors import ExecutorError
from planner.plan.graph import LayerGraph
from planner.plan.plan import Plan

__all__ = ["BatchShape", "Extent", "LayerShapes", "TensorShape", "batch_shape", "layer_shapes"]


class TensorShape(NamedTuple):
    """``shape`` [samples, ...] and type of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def text(self) -> str:
        return f"[{', '.join(map(str, self.shape))}] {str(self.dtype).removeprefix('torch.')}"


class Extent(NamedTuple):
    """How much of the batch a rank or a message holds."""

    samples: int
    tokens: int


class BatchShape(NamedTuple):
    """What ``step`` must be given: ``samples`` inputs and labels, inputs shaped [samples, *inner].

    ``cuts_tokens``: the plan cuts dimension 1 of inputs and labels, the tokens.
    """

    samples: int
    inner: tuple[int, ...]
    dtype: torch.dtype
    cuts_tokens: bool


@dataclass(frozen=True)
class LayerShapes:
    """Outputs of all layers by how much is computed at once."""

    by_extent: dict[Extent, tuple[TensorShape, ...]]

    def of(self, layer: int, extent: Extent) -> TensorShape:
        return self.by_extent[extent][layer]


def batch_shape(plan: Plan, model: nn.Module) -> BatchShape:
    """The whole global batch of the plan, as the model reads it; the longest micro-batch fills it."""
    tokens = max(batch.cuts[-1] for batch in plan.micro_batches)
    example = example_batch(model, 1, tokens)
    cuts_tokens = any(batch.cuts != (0, tokens) for batch in plan.micro_batches)
    if cuts_tokens and (example.ndim < 2 or example.shape[1] != tokens):
        raise ExecutorError(
            f"found a batch [samples, {', '.join(map(str, example.shape[1:]))}], expected {tokens} tokens in "
            "dimension 1: the plan cuts micro-batches by tokens",
            code="not_sliceable",
            pointer="/micro_batches",
        )
    samples = sum(batch.samples for batch in plan.micro_batches)
    return BatchShape(samples, tuple(example.shape[1:]), example.dtype, cuts_tokens)


def layer_shapes(
    layers: tuple[CutLayer, ...], graph: LayerGraph, batch: BatchShape, *, extents: Iterable[Extent]
) -> LayerShapes:
    """Run the layers on meta for each extent."""
    return LayerShapes({extent: _run_all(layers, graph, batch, extent) for extent in sorted(set(extents))})


def _run_all(
    layers: tuple[CutLayer, ...], graph: LayerGraph, batch: BatchShape, extent: Extent
) -> tuple[TensorShape, ...]:
    inner = (extent.tokens, *batch.inner[1:]) if batch.cuts_tokens else batch.inner
    inputs = torch.empty((extent.samples, *inner), dtype=batch.dtype, device="meta")
    outputs: list[Tensor] = []
    for layer, reads in zip(layers, graph.layer_reads, strict=True):
        read: list[Tensor] = [outputs[source] for source in (*reads.sources, *reads.detached)]
        output = _on_meta(layer.module, read or [inputs])
        if not isinstance(output, Tensor) or output.ndim == 0 or output.shape[0] != extent.samples:
            found = f"{list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise ExecutorError(
                f"layer {layer.id!r} gives {found}, expected one tensor with {extent.samples} samples in dimension 0",
                code="layer_output",
                pointer=layer.id,
            )
        outputs.append(output)
    return tuple(TensorShape(tuple(output.shape), output.dtype) for output in outputs)


def _on_meta(module: nn.Module, inputs: list[Tensor]) -> object:
    tensors = {name: torch.empty_like(t, device="meta") for name, t in module.named_parameters()}
    tensors |= {name: torch.empty_like(t, device="meta") for name, t in module.named_buffers()}
    with torch.no_grad():
        output: object = functional_call(module, tensors, tuple(inputs))
    return output
