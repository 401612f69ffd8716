"""Global names of a model's tensors, and which of them are one weight.

Weights are told apart by storage, not by name: two names of one parameter object, or two parameters that view one
storage, are one weight. Storage identity works on meta too, where every data pointer is 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor, nn

from planner.errors import ModelError

__all__ = ["TensorNames", "tensor_names"]


class _Place(NamedTuple):
    """Where a tensor's elements are."""

    storage: int
    first_byte: int
    end_byte: int
    layout: tuple[tuple[int, ...], tuple[int, ...], str]  # shape, stride, dtype


@dataclass(frozen=True)
class TensorNames:
    """The model's own names of its tensors; a shared weight has its first name."""

    parameters: Mapping[str, nn.Parameter]
    buffers: Mapping[str, Tensor]
    persistent: frozenset[str]  # names that the unsplit model's state holds, aliases left out
    aliases: Mapping[str, str]
    _names: Mapping[int, str]  # id of a tensor object -> name

    def name_of(self, tensor: Tensor) -> str | None:
        """The global name of one of the model's tensors; None for a tensor that the model does not hold."""
        return self._names.get(id(tensor))


def tensor_names(model: nn.Module) -> TensorNames:
    """Names and sharing of all tensors of ``model``. Raises ``ModelError`` where weights overlap in part."""
    first: dict[_Place | int, str] = {}
    parameters: dict[str, nn.Parameter] = {}
    aliases: dict[str, str] = {}
    names: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        name_kept = first.setdefault(_place(parameter), name)
        if name_kept == name:
            parameters[name] = parameter
        else:
            aliases[name] = name_kept
        names[id(parameter)] = name_kept
    _refuse_overlaps([(place, name) for place, name in first.items() if isinstance(place, _Place)])
    buffers: dict[str, Tensor] = {}
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if names.setdefault(id(buffer), name) == name:
            buffers[name] = buffer
        else:
            aliases[name] = names[id(buffer)]
    persistent = frozenset(model.state_dict(keep_vars=True)) - aliases.keys()
    return TensorNames(parameters, buffers, persistent, aliases, names)


def _place(tensor: Tensor) -> _Place | int:
    """Where the elements are; the object itself where there are none (empty tensors share no element)."""
    if tensor.numel() == 0:
        return id(tensor)
    size = tensor.element_size()
    first = int(tensor.storage_offset()) * size
    span = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    storage: int = tensor.untyped_storage()._cdata
    layout = (tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype))
    return _Place(storage, first, first + int(span) * size, layout)


def _refuse_overlaps(places: list[tuple[_Place, str]]) -> None:
    for (one, name), (other, other_name) in pairwise(sorted(places)):
        if one.storage == other.storage and other.first_byte < one.end_byte:
            raise ModelError(
                f"the weights {name!r} and {other_name!r} share a part of one storage, "
                "expected equal views or separate ones",
                code="tied_views",
                pointer=name,
            )
