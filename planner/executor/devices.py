"""Where this rank computes, and what that device is called in profiles and plans."""

import platform
import re
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

__all__ = ["cpu_kind", "device_kind", "device_of"]

_NOISE = re.compile(r"\(R\)|\(TM\)|\bCPU\b|\bProcessor\b|@.*$|\b\d+-Core\b", re.IGNORECASE)


def device_of(model: nn.Module, group: dist.ProcessGroup | None) -> torch.device:
    """The device that the group's backend serves; without a group the model's, on meta torch's default device."""
    if group is not None:
        on_cuda = dist.get_backend(group) == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if on_cuda else torch.device("cpu")
    tensor = next(model.parameters(), None)
    return torch.get_default_device() if tensor is None or tensor.is_meta else tensor.device


def device_kind(device: torch.device) -> str:
    """The name of the device's type, as the profiler writes it."""
    return _words(torch.cuda.get_device_name(device)) if device.type == "cuda" else cpu_kind()


def cpu_kind() -> str:
    """The processor's name as a device kind: letters, digits, dots and dashes."""
    name = platform.machine()
    with suppress(FileNotFoundError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2] for line in lines if line.startswith("model name")), name)
    return f"cpu-{_words(_NOISE.sub(' ', name))}"[:64].rstrip("-")


def _words(name: str) -> str:
    return "-".join(re.findall(r"[A-Za-z0-9._]+", name))
