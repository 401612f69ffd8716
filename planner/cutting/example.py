"""Random batches that a model accepts, by its first layer, for tracing shapes and for measuring.

A model may say itself what it reads: a method ``example_batch(samples, tokens) -> Tensor``. Values are random, never
zeros: power and clock of a device depend on the data.
"""

import torch
from torch import Tensor, nn

from planner.errors import ModelError

__all__ = ["example_batch"]


def example_batch(model: nn.Module, samples: int, tokens: int) -> Tensor:
    """Inputs of ``samples`` samples of ``tokens`` tokens: token numbers [samples, tokens] or features.

    Raises ``ModelError`` where the first layer with weights does not tell what it reads.
    """
    own = getattr(model, "example_batch", None)
    if callable(own):
        batch = own(samples, tokens)
        if not isinstance(batch, Tensor) or batch.shape[0] != samples:
            raise ModelError(
                f"example_batch({samples}, {tokens}) gave {type(batch).__name__} {tuple(getattr(batch, 'shape', ()))}, "
                f"expected a tensor with {samples} samples in dimension 0",
                code="no_example",
            )
        return batch
    first = next((module for module in model.modules() if not list(module.children()) and _weights(module)), None)
    if isinstance(first, nn.Embedding):
        return torch.randint(0, first.num_embeddings, (samples, tokens))
    if isinstance(first, nn.Linear):
        return torch.randn(samples, tokens, first.in_features, dtype=first.weight.dtype)
    if isinstance(first, nn.LayerNorm):
        return torch.randn(samples, tokens, *first.normalized_shape, dtype=first.weight.dtype)
    found = "no layer with weights" if first is None else f"{type(first).__name__} as the first layer with weights"
    raise ModelError(
        f"found {found}, expected Embedding, Linear or LayerNorm to tell what the model reads: "
        "give the model a method example_batch(samples, tokens)",
        code="no_example",
    )


def _weights(module: nn.Module) -> bool:
    return next(module.parameters(recurse=False), None) is not None
