"""What the slices of a micro-batch hand on inside a stage: keys and values forward, their gradients backward.

A slice leaves fresh leaves of what it carries (``planner.cutting.slicing``); later slices read them, and autograd adds
up in each leaf's ``grad`` what they give back. Backwards go in reverse, so the sum is whole when the slice's own
backward begins (docs/plan-contract.md section 3), which takes it as the gradient of the tensor behind the leaf.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["CarriedTensors", "Handed", "SlicePlace"]


class Handed(NamedTuple):
    """A tensor with its graph, and the leaf that later slices read in its place."""

    tensor: Tensor
    leaf: Tensor


@dataclass
class CarriedTensors:
    """Of one micro-batch on one stage: layer -> the leaves of each slice so far."""

    leaves: dict[int, list[tuple[Tensor, ...]]] = field(default_factory=dict)

    def before(self, layer: int) -> list[tuple[Tensor, ...]]:
        return self.leaves.setdefault(layer, [])

    def add(self, layer: int, carried: tuple[Tensor, ...]) -> list[Handed]:
        """What one slice carries; later slices read the leaves."""
        handed = [Handed(tensor, _leaf(tensor)) for tensor in carried]
        self.leaves.setdefault(layer, []).append(tuple(one.leaf for one in handed))
        return [one for one in handed if one.leaf.requires_grad]

    def drop_last(self) -> None:
        """The last slice that is left has gone backward: nobody reads its leaves any more."""
        for leaves in self.leaves.values():
            leaves.pop()

    def clear(self) -> None:
        self.leaves.clear()


class SlicePlace(NamedTuple):
    """Where a slice stands in its sample. ``is_last``: nothing of it is carried on."""

    first_token: int
    is_last: bool
    carried: CarriedTensors


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad and torch.is_grad_enabled())
