"""A layer whose activations are dropped after its forward and computed again before its backward.

Method: Chen et al. 2016 (sublinear memory), one layer a cell. ``RecomputedLayer`` keeps the layer's inputs only;
its backward runs the layer again, unless ``Cell.restore`` (the plan's R) already did. ``run`` draws the same random
numbers each time (``planner.executor.draws``).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Cell", "Outputs", "run_recomputed", "run_recomputed_parts"]

Outputs = Tensor | tuple[Tensor, ...]


class Cell:
    """One run of one layer: its inputs from F on, its graph from R, or from inside the backward, on.

    ``run``: how the layer is called where that is not by itself.
    """

    __slots__ = ("_inputs", "_leaves", "_module", "_needs", "_outputs", "_run")

    def __init__(self, module: nn.Module, run: Callable[..., Outputs] | None = None) -> None:
        self._module = module
        self._run: Callable[..., Outputs] = run if run is not None else module
        self._inputs: tuple[Tensor, ...] = ()
        self._needs: tuple[bool, ...] = ()
        self._leaves: tuple[Tensor, ...] = ()
        self._outputs: Outputs | None = None

    def forward(self, inputs: tuple[Tensor, ...], needs: tuple[bool, ...]) -> Outputs:
        self._inputs, self._needs = tuple(tensor.detach() for tensor in inputs), needs
        return self._run(*inputs)

    def restore(self) -> None:
        """Run the layer again and keep its activations."""
        leaves = [tensor.detach() for tensor in self._inputs]
        self._leaves = tuple(
            leaf.requires_grad_() if need else leaf for leaf, need in zip(leaves, self._needs, strict=True)
        )
        with torch.enable_grad():
            if not self._module.training:
                self._outputs = self._run(*self._leaves)
            else:
                with _spared_buffers(self._module):
                    self._outputs = self._run(*self._leaves)

    def backward(self, gradients: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """Add the weights' gradients, give the inputs'; nothing is kept afterwards. None: nobody read that output."""
        if self._outputs is None:
            self.restore()
        assert self._outputs is not None
        outputs = (self._outputs,) if isinstance(self._outputs, Tensor) else self._outputs
        # frozen layers alone give nothing back: the anchor calls for a backward all the same
        pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if g is not None and o.requires_grad]
        if pairs:
            torch.autograd.backward([output for output, _ in pairs], [gradient for _, gradient in pairs])
        found = tuple(leaf.grad for leaf in self._leaves)
        self._inputs, self._leaves, self._outputs = (), (), None
        return found


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


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, cell: Cell, anchor: Tensor, *inputs: Tensor) -> Outputs:
        context.cell = cell
        context.set_materialize_grads(False)
        return cell.forward(inputs, tuple(context.needs_input_grad[2:]))

    @staticmethod
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, None, *context.cell.backward(gradients))


def run_recomputed(cell: Cell, anchor: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """The layer's output; ``anchor`` requires a gradient, so that a layer that reads the batch goes backward too."""
    output: Tensor = _Recomputed.apply(cell, anchor, *inputs)  # type: ignore[no-untyped-call]
    return output


def run_recomputed_parts(cell: Cell, anchor: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The same for a cell whose run gives several tensors."""
    outputs: tuple[Tensor, ...] = _Recomputed.apply(cell, anchor, *inputs)  # type: ignore[no-untyped-call]
    return outputs
