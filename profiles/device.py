"""The device of a measuring process: whether it is there and what a rank may use of it."""

import resource

import torch

from planner.errors import DeviceError
from profiles.machine import cpu_memory_bytes, usable_cpu_bytes

__all__ = ["require_device", "total_bytes", "usable_bytes"]

_KIB = 1024  # ru_maxrss counts KiB on Linux


def require_device(device: str) -> None:
    """Raises ``DeviceError`` where this machine does not have the device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("torch finds no CUDA device on this machine; cpu is always there", code="device_missing")


def total_bytes(device: str) -> int:
    """Memory of the current GPU or of the machine."""
    return torch.cuda.mem_get_info()[1] if device == "cuda" else cpu_memory_bytes()


def usable_bytes(device: str, num_ranks: int) -> int:
    """Free after the context exists; on a CPU the share of one of ``num_ranks`` without what the runtime holds."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    return usable_cpu_bytes(num_ranks, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB)
