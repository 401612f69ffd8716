"""What one visit costs on one stage: the sum of its layers and the overhead of each instruction.

Kept from forward to backward: what each layer saves and its input (the output of the layer before it, counted once);
of a layer under full recompute the input alone; and the stage's own output while something reads it.

A backward is split where the stream has both I and W of a stage. What I leaves for W counts from F on, as what F saves
(``LayerPrice.split_saved_bytes`` covers both); under recompute without an R too, as all layers wait for W together.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from planner.costs.layers import LayerPrice
from planner.costs.prices import VisitPrice
from planner.errors import PriceError
from planner.problem.profile import Layer
from planner.problem.workload import Workload

__all__ = [
    "GRADIENT_BYTES",
    "MOST_WAITING_BYTES",
    "StageUse",
    "StateCut",
    "layer_state_bytes",
    "require_split",
    "split_visit_price",
    "whole_visit_price",
]

GRADIENT_BYTES = 4  # of one parameter: fp32, or the fp32 main gradient of a 16-bit model
MOST_WAITING_BYTES = 1 << 23  # of gradients that the executor's W gathers before it adds them to the weights'


class StageUse(NamedTuple):
    """What of a stage its price depends on beside the layers' own prices."""

    recomputed: Sequence[bool]  # by layer of the stage
    restores_at_once: bool  # the stream has an R: everything dropped is back together
    is_read: bool  # another stage reads it: its output is kept
    per_instruction_ns: int
    waiting_bytes: int = 0  # of weight gradients that a W holds


def whole_visit_price(layers: Sequence[LayerPrice], use: StageUse) -> VisitPrice:
    """The price of a visit without both I and W; ``layers`` are those of the stage in order.

    An I or W that stands alone computes every gradient that there is.
    """
    price = _visit_price(layers, use)
    return price._replace(backward_input_ns=price.backward_ns, backward_weight_ns=price.backward_ns)


def split_visit_price(layers: Sequence[LayerPrice], use: StageUse) -> VisitPrice:
    """The price of a visit with I and W."""
    split = [layer.in_split_visit for layer in layers]
    price = _visit_price(split, use)
    transient_bytes = price.backward_transient_bytes + use.waiting_bytes
    if use.restores_at_once:
        return price._replace(backward_transient_bytes=transient_bytes)
    left = sum(layer.saved_bytes for layer, recomputed in zip(split, use.recomputed, strict=True) if recomputed)
    return price._replace(
        backward_transient_bytes=transient_bytes, kept_bytes=price.kept_bytes + left, restored_bytes=0
    )


def _visit_price(layers: Sequence[LayerPrice], use: StageUse) -> VisitPrice:
    pairs = list(zip(layers, use.recomputed, strict=True))
    dropped = [layer for layer, recomputed in pairs if recomputed]
    again_ns = sum(layer.forward_ns for layer in dropped)
    overhead_ns = use.per_instruction_ns
    inside_backward_ns = 0 if use.restores_at_once else again_ns
    saved = [layer.saved_bytes for layer in dropped]
    return VisitPrice(
        forward_ns=overhead_ns + sum(layer.forward_ns for layer in layers),
        backward_ns=overhead_ns + inside_backward_ns + sum(layer.backward_ns for layer in layers),
        backward_input_ns=overhead_ns + inside_backward_ns + sum(layer.backward_input_ns or 0 for layer in layers),
        backward_weight_ns=overhead_ns + sum(layer.backward_weight_ns or 0 for layer in layers),
        recompute_ns=(overhead_ns + again_ns) if dropped else 0,
        kept_bytes=sum(layer.input_bytes + (0 if recomputed else layer.saved_bytes) for layer, recomputed in pairs)
        + (layers[-1].output_bytes if use.is_read else 0),
        restored_bytes=sum(saved) if use.restores_at_once else max(saved, default=0),
        forward_transient_bytes=max(
            layer.forward_transient_bytes + (layer.saved_bytes if recomputed else 0) for layer, recomputed in pairs
        ),
        backward_transient_bytes=max(layer.backward_transient_bytes for layer in layers),
    )


class StateCut(NamedTuple):
    """How a weight's state is cut over the ranks of its group."""

    tensor: int = 1
    shards: int = 1
    sharded: str = "nothing"
    trained: bool = True


def layer_state_bytes(layer: Layer, workload: Workload, cut: StateCut) -> int:
    """Weights, gradients, optimizer state and buffers of one layer on one rank, rounded up.

    Trained parameters: ``workload.state_bytes_per_parameter``; the others their weight alone.
    """
    weight_bytes = 4 if workload.precision == "fp32" else 2
    optimizer_bytes = workload.state_bytes_per_parameter - weight_bytes - GRADIENT_BYTES
    trained = layer.num_trained_params if cut.trained else 0
    parts = [
        (layer.num_params * weight_bytes, cut.sharded == "parameters"),
        (trained * GRADIENT_BYTES, cut.sharded in ("gradients", "parameters")),
        (trained * optimizer_bytes, cut.sharded != "nothing"),
    ]
    ranks = [(size, cut.tensor * (cut.shards if is_cut else 1)) for size, is_cut in parts]
    return layer.buffer_bytes + sum(-(-size // over) for size, over in ranks)


def require_split(layers: Iterable[tuple[Layer, LayerPrice]]) -> None:
    """Raises ``PriceError`` where a layer's backward is split in a stream but was not measured split."""
    for layer, price in layers:
        if price.backward_input_ns is None or price.backward_weight_ns is None:
            message = f"layer {layer.id!r} has no times of input and weight gradient, which the streams ask for"
            raise PriceError(message, code="no_price", pointer="/streams")
