"""The loss that is measured together with the last layer, and random labels for it.

The last layer's forward is followed by the loss in every training step, so both are one measured operation.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from planner.errors import ModelError
from profiles.source import load_named

__all__ = ["Loss", "example_labels", "named_loss", "squared_error", "token_cross_entropy"]

Loss = Callable[[Tensor, Tensor | None], Tensor]


def token_cross_entropy(output: Tensor, labels: Tensor | None) -> Tensor:
    """Sum over all tokens of logits [samples, tokens, vocabulary] against labels [samples, tokens]."""
    assert labels is not None, "cross entropy needs labels"
    return functional.cross_entropy(output.flatten(0, -2).float(), labels.flatten(), reduction="sum")


def squared_error(output: Tensor, labels: Tensor | None) -> Tensor:
    """Sum of squared differences to labels of the output's shape."""
    assert labels is not None, "a squared error needs labels"
    return (output - labels).square().sum()


def example_labels(output: Tensor, batch: Tensor) -> Tensor:
    """Random labels: a token each where the batch is tokens and the output logits, else values like the output's."""
    if not batch.is_floating_point() and output.ndim == batch.ndim + 1:
        return torch.randint(0, output.shape[-1], tuple(batch.shape))
    return torch.randn(tuple(output.shape), dtype=output.dtype)


def named_loss(text: str | None, folder: str, *, labels: Tensor) -> Loss:
    """The loss that the user named, or the one that fits the labels."""
    if text is None:
        return squared_error if labels.is_floating_point() else token_cross_entropy
    chosen = load_named(text, folder)

    def loss(output: Tensor, given: Tensor | None) -> Tensor:
        value = chosen(output, given)
        if not isinstance(value, Tensor) or value.numel() != 1:
            found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ModelError(f"the loss {text!r} gives {found}, expected one number: a sum", code="bad_loss")
        return value

    return loss
