"""Where this rank computes, and what that device is called in profiles and plans."""

import torch
import torch.distributed as dist
from torch import nn

from planner.executor.processor import cpu_kind, kind_words

__all__ = ["device_kind", "device_of"]


def device_of(model: nn.Module, group: dist.ProcessGroup | None) -> torch.device:
    """The device that the group's backend serves; without a group the model's, on meta torch's default device."""
    if group is not None:
        on_cuda = dist.get_backend(group) == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if on_cuda else torch.device("cpu")
    tensor = next(model.parameters(), None)
    return torch.get_default_device() if tensor is None or tensor.is_meta else tensor.device


def device_kind(device: torch.device) -> str:
    """The name of the device's type, as profiles, clusters and plans write it: the maker's name is left out."""
    if device.type != "cuda":
        return cpu_kind()
    return kind_words(torch.cuda.get_device_name(device).replace("NVIDIA", ""))[:64]
