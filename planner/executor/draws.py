"""Random numbers of a layer follow from what it computes, not from the rank that computes it, when, or after what.

Rule: a run of a layer in training starts from generators seeded by (the executor's seed, layer number of the model,
first sample of its rows counted from the first step of the training, first token of its slice); the generators of the
process are as before afterwards. So a layer draws the same under every plan that runs the same rows together, in F, in
R and inside a backward, and after a restart. Rows that a data degree splits draw as micro-batches of those rows would:
torch draws a tensor's numbers in one row, so other rows together are other numbers.

Only layers that may draw are touched (4 us a run). May draw: torch's dropouts with p > 0, ``RReLU``,
``FractionalMaxPool``, a module with a number other than 0 whose name holds ``drop`` or ``noise`` (how
``transformers`` and torch's attention and recurrent modules keep theirs), and every module of a class from elsewhere,
whose forward is not known.
The caller seeds recomputed layers in training without asking: two runs must agree.
"""

import hashlib
import struct
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

__all__ = ["Chance", "Draws", "chances", "may_draw"]

_Result = TypeVar("_Result")

_KNOWN_PACKAGES = ("planner", "torch", "transformers")
_WORDS = ("drop", "noise")
_ALWAYS = (nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)


class Chance(NamedTuple):
    """``part`` draws while it is in training and its attribute ``name`` is not 0."""

    part: nn.Module
    name: str


def chances(module: nn.Module) -> tuple[Chance, ...]:
    """Of a layer and all modules in it, as they stand; ``may_draw`` reads the numbers anew."""
    return tuple(Chance(part, name) for part in module.modules() for name in _names(part))


def may_draw(found: tuple[Chance, ...]) -> bool:
    """Whether one of them draws now."""
    return any(part.training and getattr(part, name) for part, name in found)


class Draws:
    """Seeds the generators that the layers of one rank draw from."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._seed = seed
        self._generators = [torch.default_generator]
        if device.type == "cuda":
            # torch's types do not know a device without a number, as its default device is
            index = device.index if device.index is not None else torch.cuda.current_device()  # type: ignore[redundant-expr]
            self._generators.append(torch.cuda.default_generators[index])

    def seeded(self, run: Callable[..., _Result], layer: int, *, sample: int, token: int) -> Callable[..., _Result]:
        """``run`` with the random numbers of ``layer`` for rows that begin at ``sample`` and ``token``, each time."""
        seed = _mixed(self._seed, layer, sample, token)

        def run_seeded(*arguments: Tensor) -> _Result:
            before = [generator.get_state() for generator in self._generators]
            try:
                for generator in self._generators:
                    generator.manual_seed(seed)
                return run(*arguments)
            finally:
                for generator, state in zip(self._generators, before, strict=True):
                    generator.set_state(state)

        return run_seeded


def _names(part: nn.Module) -> list[str]:
    if isinstance(part, _DropoutNd):
        return ["p"]
    if isinstance(part, _ALWAYS) or type(part).__module__.partition(".")[0] not in _KNOWN_PACKAGES:
        return ["training"]
    attributes = vars(part).items()
    return [name for name, value in attributes if isinstance(value, int | float) and any(w in name for w in _WORDS)]


def _mixed(*numbers: int) -> int:
    """63 bits of BLAKE2b: neighbours in any number are as unlike as strangers."""
    packed = struct.pack(f"<{len(numbers)}q", *numbers)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little") >> 1
