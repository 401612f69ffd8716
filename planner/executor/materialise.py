"""This rank's weights on its device: kept where the model is real, made where it is on meta.

On meta a weight is initialised by (seed, global name of its module): the same values under every plan, on every rank.
A module is initialised by its model's ``_init_weights`` (transformers) or its own ``reset_parameters``; what neither
fills is refused, never left to chance.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from planner.cutting.layer import CutLayer, CutModel, with_tensors
from planner.errors import ExecutorError
from planner.executor.team import Circle, Team
from planner.executor.weights import Weight, WeightTable

__all__ = ["Held", "hold_layers", "share_first_values"]


class Held(NamedTuple):
    """The layers of the model, those of this rank on its device, and this rank's parameters by global name."""

    layers: tuple[CutLayer, ...]
    parameters: dict[str, nn.Parameter]
    buffers: dict[str, Tensor]


def hold_layers(model: nn.Module, cut: CutModel, *, held: frozenset[int], device: torch.device, seed: int) -> Held:
    """Put the layers ``held`` on ``device``; the model's modules are changed, other layers stay as they are."""
    layers = list(cut.layers)
    first_holders = {name: _first_holder(cut, name) for number in held for name in layers[number].parameters}
    needed = sorted(held | set(first_holders.values()), reverse=True)
    if any(_is_meta(layers[number]) for number in needed):
        _make(model, layers, needed=needed, device=device, seed=seed)
        for number in set(needed) - held:  # only served to give first values to a shared weight
            _drop(layers, number, keep=set().union(*(layers[other].parameters for other in held)))
    else:
        for number in held:
            layers[number].module.to(device)
    return Held(
        tuple(layers),
        {name: parameter for number in sorted(held) for name, parameter in layers[number].parameters.items()},
        {name: buffer for number in sorted(held) for name, buffer in layers[number].buffers.items()},
    )


def _first_holder(cut: CutModel, name: str) -> int:
    return next(number for number, layer in enumerate(cut.layers) if name in layer.parameters)


def _is_meta(layer: CutLayer) -> bool:
    return any(tensor.is_meta for tensor in (*layer.parameters.values(), *layer.buffers.values()))


def _make(model: nn.Module, layers: list[CutLayer], *, needed: list[int], device: torch.device, seed: int) -> None:
    """Fill the layers from the last to the first: the first holder of a shared weight has the last word."""
    made: dict[str, nn.Parameter] = {}
    for number in needed:
        layer = layers[number]
        for name, parameter in layer.parameters.items():
            if name not in made:
                made[name] = nn.Parameter(_unset(parameter, device), requires_grad=parameter.requires_grad)
        parameters = {name: made[name] for name in layer.parameters}
        buffers = {name: _unset(buffer, device) for name, buffer in layer.buffers.items()}
        layers[number] = with_tensors(layer, parameters, buffers)
    for number in needed:
        _initialise(model, layers[number], seed)
        _require_set(layers[number])


def _unset(tensor: Tensor, device: torch.device) -> Tensor:
    """Memory filled with a mark that no initialisation leaves."""
    made = torch.empty_like(tensor, device=device, requires_grad=False)
    if made.dtype == torch.bool:
        raise ExecutorError("a table of booleans on meta has no values: give a real model", code="no_initialiser")
    return made.fill_(float("nan") if made.is_floating_point() else torch.iinfo(made.dtype).min)


def _require_set(layer: CutLayer) -> None:
    for name, tensor in (*layer.parameters.items(), *layer.buffers.items()):
        unset = tensor.isnan() if tensor.is_floating_point() else tensor == torch.iinfo(tensor.dtype).min
        if bool(unset.any()):
            raise ExecutorError(
                f"nothing initialises {name!r}, expected reset_parameters of its module: give a real model",
                code="no_initialiser",
                pointer=name,
            )


def _initialise(model: nn.Module, layer: CutLayer, seed: int) -> None:
    """Every module whose tensors all belong to the layer, children first, each from a state of its own."""
    own = {id(tensor) for tensor in (*layer.parameters.values(), *layer.buffers.values())}
    inside = [(name, module) for name, module in model.named_modules() if _is_inside(module, own)]
    cuda = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    for name, module in sorted(inside, key=lambda found: (-found[0].count("."), found[0])):
        with torch.random.fork_rng(devices=cuda), torch.no_grad():
            torch.manual_seed(_seed(seed, name))
            _fill(model, module)


def _is_inside(module: nn.Module, own: set[int]) -> bool:
    tensors = [id(tensor) for tensor in (*module.parameters(), *module.buffers())]
    return bool(tensors) and all(tensor in own for tensor in tensors)


def _fill(model: nn.Module, module: nn.Module) -> None:
    by_model = getattr(model, "_init_weights", None)
    if callable(by_model):
        by_model(module)
        return
    reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    if callable(reset):
        reset()


def _seed(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "big") >> 1


def _drop(layers: list[CutLayer], number: int, *, keep: set[str]) -> None:
    layer = layers[number]
    parameters = {
        name: nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=parameter.requires_grad)
        for name, parameter in layer.parameters.items()
        if name not in keep
    }
    buffers = {name: torch.empty_like(buffer, device="meta") for name, buffer in layer.buffers.items()}
    layers[number] = with_tensors(layer, parameters, buffers)


def share_first_values(
    table: WeightTable, tensors: dict[str, Tensor], team: Team, *, circles: dict[tuple[int, ...], Circle]
) -> None:
    """All holders start from the values of the first one."""
    for weight in _shared(table):
        if team.rank in weight.holders:
            circles[weight.holders].broadcast(tensors[weight.name].detach(), 0).wait()


def _shared(table: WeightTable) -> Iterable[Weight]:
    return (weight for weight in table.weights.values() if len(weight.holders) > 1)
