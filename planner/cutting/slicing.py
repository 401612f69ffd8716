"""A layer that runs token slice by token slice: what it carries from one slice to the next, and who says so.

A module that declares ``num_carried`` and ``forward_slice`` carries that many tensors (attention: keys and values) of
every slice to all later ones. Any other module is run as it is: a causal layer without such a declaration works token
by token. A ``Sequential`` carries what its children carry, in turn. Positions are those of the whole sample.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

__all__ = ["SliceCache", "SliceOutput", "Sliced", "num_carried", "run_slice"]

Carried = tuple[Tensor, ...]  # of one slice


class SliceOutput(NamedTuple):
    """``carried``: what later slices need of this one."""

    output: Tensor
    carried: Carried


class Sliced(Protocol):
    """What a module with ``forward_slice`` offers; a pure function, so that it can be run again."""

    num_carried: int

    def forward_slice(
        self, inputs: Sequence[Tensor], *, before: Sequence[Carried], first_token: int
    ) -> SliceOutput: ...


def num_carried(module: nn.Module) -> int:
    """How many tensors of a slice the module carries on."""
    if hasattr(module, "forward_slice"):
        return int(module.num_carried)  # type: ignore[arg-type]
    return sum(num_carried(child) for child in module) if isinstance(module, nn.Sequential) else 0


def run_slice(
    module: nn.Module, inputs: Sequence[Tensor], *, before: Sequence[Carried], first_token: int
) -> SliceOutput:
    """``inputs`` of the slice that begins at ``first_token``; ``before``: what each earlier slice carries."""
    if hasattr(module, "forward_slice"):
        found: SliceOutput = module.forward_slice(inputs, before=before, first_token=first_token)  # type: ignore[operator]
        return found
    if not isinstance(module, nn.Sequential):
        return SliceOutput(module(*inputs), ())
    carried: Carried = ()
    for child in module:
        end = len(carried) + num_carried(child)
        part = [earlier[len(carried) : end] for earlier in before]
        output, own = run_slice(child, inputs, before=part, first_token=first_token)
        inputs, carried = (output,), carried + own
    return SliceOutput(inputs[0], carried)


class SliceCache:
    """What transformers' attention and masks ask of a cache, for one layer and one slice, with gradients.

    ``own``: keys and values of this slice, once the attention has run.
    """

    is_compileable = False

    def __init__(self, before: Sequence[Carried], first_token: int) -> None:
        self.own: Carried = ()
        self._before, self._first_token = before, first_token

    def update(self, keys: Tensor, values: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Keys and values [samples, heads, tokens, size] of all tokens up to the end of the slice."""
        self.own = (keys, values)
        if not self._before:
            return keys, values
        all_keys = torch.cat([*(earlier[0] for earlier in self._before), keys], dim=2)
        return all_keys, torch.cat([*(earlier[1] for earlier in self._before), values], dim=2)

    def get_query_offset(self, *_: object) -> int:
        return self._first_token

    def get_mask_sizes(self, num_tokens: int, *_: object) -> tuple[int, int]:
        """Number of keys, and the position of the first."""
        return self._first_token + num_tokens, 0
