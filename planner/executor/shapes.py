"""Shapes and types of what every layer gives, worked out on meta: the model is never run to learn them.

All layers run once in order on tensors without values, for each different (samples, tokens) that a rank sees.
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

__all__ = ["BatchShape", "LayerShapes", "TensorShape", "batch_shape", "layer_shapes"]


class TensorShape(NamedTuple):
    """``shape`` [samples, ...] and type of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def text(self) -> str:
        return f"[{', '.join(map(str, self.shape))}] {str(self.dtype).removeprefix('torch.')}"


class BatchShape(NamedTuple):
    """What ``step`` must be given: ``samples`` inputs and labels, inputs shaped [samples, *inner]."""

    samples: int
    inner: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class LayerShapes:
    """Outputs of all layers by the number of samples."""

    by_samples: dict[int, tuple[TensorShape, ...]]

    def of(self, layer: int, samples: int) -> TensorShape:
        return self.by_samples[samples][layer]


def batch_shape(plan: Plan, model: nn.Module) -> BatchShape:
    """The whole global batch of the plan, as the model reads it."""
    example = example_batch(model, 1, plan.micro_batches[0].cuts[-1])
    samples = sum(batch.samples for batch in plan.micro_batches)
    return BatchShape(samples, tuple(example.shape[1:]), example.dtype)


def layer_shapes(
    layers: tuple[CutLayer, ...], graph: LayerGraph, batch: BatchShape, *, samples: Iterable[int]
) -> LayerShapes:
    """Run the layers on meta for each number of samples."""
    return LayerShapes({number: _run_all(layers, graph, batch, number) for number in sorted(set(samples))})


def _run_all(
    layers: tuple[CutLayer, ...], graph: LayerGraph, batch: BatchShape, samples: int
) -> tuple[TensorShape, ...]:
    inputs = torch.empty((samples, *batch.inner), dtype=batch.dtype, device="meta")
    outputs: list[Tensor] = []
    for layer, reads in zip(layers, graph.layer_reads, strict=True):
        read = [outputs[source] for source in (*reads.sources, *reads.detached)] or [inputs]
        output = _on_meta(layer.module, read)
        if not isinstance(output, Tensor) or output.ndim == 0 or output.shape[0] != samples:
            found = f"{list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise ExecutorError(
                f"layer {layer.id!r} gives {found}, expected one tensor with {samples} samples in dimension 0",
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
