"""What a cut model is: layers that run alone, and what they share.

A layer's module is called ``module(*inputs)`` and gives one tensor. A layer that reads the batch gets the batch's
inputs; any other layer gets the outputs of its sources, then of its detached layers, ascending. A module that says
``reads_labels = True`` gets the labels last; where only shapes are worked out it is called without them. Parameters are
the model's own objects, named as the unsplit model names them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor, nn

from planner.errors import ModelError
from planner.problem.contract import Digest
from planner.problem.profile import LayerKind, Reads, TiedWeights

__all__ = ["CutLayer", "CutModel", "Part", "reads_labels", "with_tensors"]


class Part(NamedTuple):
    """A piece of a model as its family describes it, before names and digests are worked out."""

    id: str  # global name of the module that the piece begins with
    kind: LayerKind
    module: nn.Module
    causal: bool


@dataclass(frozen=True)
class CutLayer:
    """One layer of a model, able to run alone."""

    id: str
    kind: LayerKind
    module: nn.Module
    parameters: Mapping[str, nn.Parameter]  # by global name; a shared weight has the name of its first holder
    buffers: Mapping[str, Tensor]  # by global name
    local_names: Mapping[str, tuple[str, ...]]  # global name -> its places inside ``module``
    fingerprint: Digest  # equal layers are measured once
    causal: bool  # may be sliced by tokens


@dataclass(frozen=True)
class CutModel:
    """A model as a chain (or graph) of layers."""

    layers: tuple[CutLayer, ...]
    reads: tuple[Reads, ...]  # only layers that do not simply read the layer before them
    tied: tuple[TiedWeights, ...]
    aliases: Mapping[str, str]  # second name of a shared weight -> the name that ``parameters`` use
    fingerprint: Digest  # equal for a real copy and a copy on meta
    cut: tuple[str, ...]  # ids of the layers


def reads_labels(module: nn.Module) -> bool:
    """Whether a layer's module takes the labels, as its last input."""
    return bool(getattr(module, "reads_labels", False))


def with_tensors(layer: CutLayer, parameters: Mapping[str, nn.Parameter], buffers: Mapping[str, Tensor]) -> CutLayer:
    """``layer`` with other parameter and buffer objects put into its module, at every place where they stand.

    The module is changed; names that are not given stay. Raises ``ModelError`` for a name that the layer lacks.
    """
    for name, tensor in {**parameters, **buffers}.items():
        for place in layer.local_names.get(name, ()):
            owner, _, attribute = place.rpartition(".")
            setattr(layer.module.get_submodule(owner), attribute, tensor)
        if name not in layer.local_names:
            raise ModelError(
                f"found the tensor {name!r}, expected one of layer {layer.id!r}: {', '.join(layer.local_names)}",
                code="unknown_tensor",
                pointer=layer.id,
            )
    return replace(layer, parameters={**layer.parameters, **parameters}, buffers={**layer.buffers, **buffers})
