"""What one rank has to write, and what it has to fill: tensors by their names in the checkpoint.

Every weight is written once: by the holder that has the fewest bytes to write so far, so that data ranks share the
work. Running statistics come from the lowest holder, as in the file of weights. Random state is each rank's own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.executor.team import Team
from planner.executor.weights import Weight
from planner.plan.plan import Plan

__all__ = ["Progress", "RankState", "model_name", "random_names", "random_tensors", "set_random", "writers"]


@dataclass(frozen=True)
class Progress:
    """``steps`` done, also those that were skipped, and ``samples`` of the data seen by them."""

    steps: int = 0
    samples: int = 0

    def after(self, samples: int) -> "Progress":
        """One step of ``samples`` later."""
        return Progress(self.steps + 1, self.samples + samples)

    def within(self, samples: int) -> "Progress":
        """Inside a step whose update comes with a later batch."""
        return Progress(self.steps, self.samples + samples)


@dataclass(frozen=True)
class RankState:
    """What a checkpoint keeps of a run. ``weights``: of the whole model; ``tensors``: this rank's, by name."""

    plan: Plan
    team: Team
    weights: tuple[Weight, ...]
    tensors: Mapping[str, Tensor]
    optimizer: Optimizer

    @property
    def parameter_names(self) -> dict[Tensor, str]:
        """Of this rank's weights."""
        return {tensor: name for name, tensor in self.tensors.items() if isinstance(tensor, nn.Parameter)}


def model_name(weight: str) -> str:
    return f"model.{weight}"


def writers(weights: Iterable[Weight]) -> dict[str, int]:
    """weight -> the rank that writes it; the same on all ranks."""
    load_bytes: dict[int, int] = {}
    found: dict[str, int] = {}
    for weight in weights:
        holders = weight.holders if weight.trained else weight.holders[:1]
        rank = min(holders, key=lambda holder: (load_bytes.get(holder, 0), holder))
        load_bytes[rank] = load_bytes.get(rank, 0) + torch.Size(weight.shape).numel() * weight.dtype.itemsize
        found[weight.name] = rank
    return found


def random_names(rank: int, device: torch.device) -> tuple[str, ...]:
    """Of the states of this rank's generators."""
    kinds = ("cpu",) if device.type == "cpu" else ("cpu", device.type)
    return tuple(f"random.{kind}.{rank}" for kind in kinds)


def random_tensors(rank: int, device: torch.device) -> dict[str, Tensor]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return dict(zip(random_names(rank, device), states, strict=True))


def set_random(tensors: Mapping[str, Tensor], rank: int, device: torch.device) -> None:
    """Those states of this rank that ``tensors`` holds."""
    for name in random_names(rank, device):
        if name in tensors and name.startswith("random.cpu."):
            torch.set_rng_state(tensors[name])
        elif name in tensors:
            torch.cuda.set_rng_state(tensors[name], device)
