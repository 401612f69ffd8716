"""Run a module without values: its tensors are replaced by empty ones on meta for the length of the call."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

__all__ = ["call_on_meta"]


def call_on_meta(module: nn.Module, value: Tensor) -> object:
    """What ``module(value)`` gives, as shapes and dtypes; ``module`` keeps its own tensors."""
    tensors = {name: torch.empty_like(t, device="meta") for name, t in module.named_parameters()}
    tensors |= {name: torch.empty_like(t, device="meta") for name, t in module.named_buffers()}
    with torch.no_grad():
        output: object = functional_call(module, tensors, (value.to("meta"),))
    return output
