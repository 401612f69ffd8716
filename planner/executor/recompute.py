"""A layer whose activations are dropped after its forward and computed again before its backward.

Method: Chen et al. 2016 (sublinear memory), one layer a cell. ``RecomputedLayer`` keeps the layer's inputs only;
its backward runs the layer again, unless ``Cell.restore`` (the plan's R) already did. Random numbers are those of the
first run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Cell", "run_recomputed"]


class Cell:
    """One run of one layer: its inputs from F on, its graph from R, or from inside the backward, on."""

    __slots__ = ("_inputs", "_leaves", "_module", "_needs", "_output", "_random")

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._inputs: tuple[Tensor, ...] = ()
        self._needs: tuple[bool, ...] = ()
        self._leaves: tuple[Tensor, ...] = ()
        self._output: Tensor | None = None
        self._random: _RandomState | None = None

    def forward(self, inputs: tuple[Tensor, ...], needs: tuple[bool, ...]) -> Tensor:
        self._inputs, self._needs = tuple(tensor.detach() for tensor in inputs), needs
        self._random = _RandomState(inputs[0].device) if self._module.training else None
        output: Tensor = self._module(*inputs)
        return output

    def restore(self) -> None:
        """Run the layer again and keep its activations."""
        leaves = [tensor.detach() for tensor in self._inputs]
        self._leaves = tuple(
            leaf.requires_grad_() if need else leaf for leaf, need in zip(leaves, self._needs, strict=True)
        )
        with torch.enable_grad():
            if self._random is None:
                self._output = self._module(*self._leaves)
            else:
                with self._random.replayed(), _spared_buffers(self._module):
                    self._output = self._module(*self._leaves)

    def backward(self, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Add the weights' gradients, give the inputs'; nothing is kept afterwards."""
        if self._output is None:
            self.restore()
        assert self._output is not None
        if self._output.requires_grad:  # not behind frozen layers alone: the anchor calls for a backward all the same
            torch.autograd.backward(self._output, gradient)
        gradients = tuple(leaf.grad for leaf in self._leaves)
        self._inputs, self._leaves, self._output = (), (), None
        return gradients


@contextmanager
def _spared_buffers(module: nn.Module) -> Iterator[None]:
    """Running statistics stay as the first run left them: the second one changes copies that nobody keeps."""
    held = [(part, name, buffer) for part in module.modules() for name, buffer in part.named_buffers(recurse=False)]
    for part, name, buffer in held:
        setattr(part, name, buffer.clone())
    try:
        yield
    finally:
        for part, name, buffer in held:
            setattr(part, name, buffer)


class _RandomState:
    def __init__(self, device: torch.device) -> None:
        self._cpu = torch.get_rng_state()
        self._device = device if device.type == "cuda" else None
        self._cuda = torch.cuda.get_rng_state(device) if self._device is not None else None

    def replayed(self) -> "_Replay":
        return _Replay(self)

    def set(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._cuda is not None and self._device is not None:
            torch.cuda.set_rng_state(self._cuda, self._device)

    def now(self) -> "_RandomState":
        return _RandomState(self._device or torch.device("cpu"))


class _Replay:
    """The random numbers of a state inside the block, those from before after it."""

    def __init__(self, state: _RandomState) -> None:
        self._state = state
        self._before = state.now()

    def __enter__(self) -> None:
        self._state.set()

    def __exit__(self, *_: object) -> None:
        self._before.set()


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, cell: Cell, anchor: Tensor, *inputs: Tensor) -> Tensor:
        context.cell = cell
        return cell.forward(inputs, tuple(context.needs_input_grad[2:]))

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, *context.cell.backward(gradients[0]))


def run_recomputed(cell: Cell, anchor: Tensor, inputs: list[Tensor]) -> Tensor:
    """The layer's output; ``anchor`` requires a gradient, so that a layer that reads the batch goes backward too."""
    output: Tensor = _Recomputed.apply(cell, anchor, *inputs)  # type: ignore[no-untyped-call]
    return output
