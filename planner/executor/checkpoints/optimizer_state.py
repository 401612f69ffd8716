"""An optimizer's state under the global names of the weights, and back into an optimizer of another rank.

A state is a tensor shaped as its weight, a tensor of one element, or a Python number; anything else is refused by
name. Every group's settings are kept; a group of a rank takes those of the saved group that its weights come from.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from planner.errors import CheckpointError
from planner.executor.checkpoints.manifest import OptimizerGroup, OptimizerRecord, Option, OptionValue, Piece
from planner.executor.checkpoints.storage import unset_tensor

__all__ = [
    "OptimizerTensors",
    "merged_record",
    "optimizer_kind",
    "read_optimizer",
    "restore_optimizer",
    "settle_numbers",
    "state_name",
]

_PREFIX = "optimizer."


class OptimizerTensors(NamedTuple):
    """What one rank's optimizer holds: tensors by their name in the checkpoint, and what is no tensor."""

    tensors: dict[str, Tensor]
    record: OptimizerRecord


def state_name(weight: str, state: str) -> str:
    """The name in the checkpoint; states of torch's optimizers have no dot in theirs."""
    return f"{_PREFIX}{weight}.{state}"


def optimizer_kind(optimizer: Optimizer) -> str:
    kind = type(optimizer)
    return f"{kind.__module__}.{kind.__qualname__}"


def read_optimizer(optimizer: Optimizer, names: Mapping[Tensor, str], writes: frozenset[str]) -> OptimizerTensors:
    """The states of the weights in ``writes`` and all groups. Raises ``CheckpointError`` for what has no place."""
    tensors: dict[str, Tensor] = {}
    numbers: set[str] = set()
    on_processor: set[str] = set()
    for parameter, states in optimizer.state.items():
        name = names.get(parameter)
        if name is None or name not in writes:
            continue
        for state, value in states.items():
            if value is None:
                continue
            tensor = _as_tensor(value, parameter, f"{state} of {name} in {optimizer_kind(optimizer)}")
            tensors[state_name(name, state)] = tensor
            if not isinstance(value, Tensor):
                numbers.add(state)
            if tensor.device.type == "cpu":
                on_processor.add(state)
    groups = tuple(_group(group, names) for group in optimizer.param_groups)
    record = OptimizerRecord(
        kind=optimizer_kind(optimizer),
        groups=groups,
        numbers=tuple(sorted(numbers)),
        on_processor=tuple(sorted(on_processor)),
    )
    return OptimizerTensors(tensors, record)


def _as_tensor(value: Any, parameter: Tensor, place: str) -> Tensor:
    if isinstance(value, Tensor) and value.layout == torch.strided and value.shape in (parameter.shape, ()):
        return value.detach()
    if isinstance(value, bool | int | float):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    found = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
    raise CheckpointError(
        f"{place} is {found}, expected a tensor shaped as the weight {list(parameter.shape)} or one number",
        code="optimizer_state",
        pointer=place,
    )


def _group(group: Mapping[str, Any], names: Mapping[Tensor, str]) -> OptimizerGroup:
    held = tuple(names[parameter] for parameter in group["params"] if parameter in names)
    options = sorted((name, value) for name, value in group.items() if name != "params")
    return OptimizerGroup(names=held, options=tuple(Option(name=name, value=_option(name, v)) for name, v in options))


def _option(name: str, value: Any) -> OptionValue:
    if isinstance(value, tuple | list):
        value = tuple(value)
    for part in value if isinstance(value, tuple) else (value,):
        finite = not isinstance(part, float) or math.isfinite(part)
        if not finite or not (part is None or isinstance(part, bool | int | float | str)):
            raise CheckpointError(
                f"the optimizer's setting {name} is {part!r}, expected finite numbers, text or nothing",
                code="optimizer_option",
                pointer=name,
            )
    found: OptionValue = value
    return found


def merged_record(records: Iterable[OptimizerRecord]) -> OptimizerRecord:
    """Of all ranks; group k of the ranks is one group. Raises ``CheckpointError`` where they differ."""
    found = list(records)
    first = found[0]
    for other in found[1:]:
        same = [group.options for group in other.groups] == [group.options for group in first.groups]
        if other.kind != first.kind or not same:
            raise CheckpointError(
                f"the ranks have different optimizers: {_said(first)} and {_said(other)}", code="optimizer_differs"
            )
    groups = zip(*(record.groups for record in found), strict=True)
    return OptimizerRecord(
        kind=first.kind,
        groups=tuple(
            OptimizerGroup(
                names=tuple(dict.fromkeys(name for group in same for name in group.names)), options=same[0].options
            )
            for same in groups
        ),
        numbers=tuple(sorted({state for record in found for state in record.numbers})),
        on_processor=tuple(sorted({state for record in found for state in record.on_processor})),
    )


def _said(record: OptimizerRecord) -> str:
    groups = "; ".join(", ".join(f"{o.name}={o.value}" for o in group.options) for group in record.groups)
    return f"{record.kind} ({groups})"


def restore_optimizer(
    optimizer: Optimizer, names: Mapping[Tensor, str], record: OptimizerRecord, *, pieces: Mapping[str, Piece]
) -> dict[str, Tensor]:
    """Give ``optimizer`` the saved settings and empty states; the tensors to fill, by their name in the checkpoint.

    ``pieces``: one of each saved optimizer tensor. Call ``settle_numbers`` once they are filled.
    """
    group_of = {name: number for number, group in enumerate(record.groups) for name in group.names}
    for number, group in enumerate(optimizer.param_groups):
        held = {group_of[names[p]] for p in group["params"] if p in names and names[p] in group_of} or {number}
        saved = [record.groups[place] for place in sorted(held) if place < len(record.groups)]
        if saved:
            _require_equal(saved, number)
            group.update({option.name: option.value for option in saved[0].options})
    by_weight: dict[str, list[str]] = {}
    for full_name in pieces:
        weight, _, state = full_name.removeprefix(_PREFIX).rpartition(".")
        by_weight.setdefault(weight, []).append(state)
    found: dict[str, Tensor] = {}
    optimizer.state.clear()
    for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
        for state in by_weight.get(names.get(parameter, ""), ()):
            full_name = state_name(names[parameter], state)
            device = torch.device("cpu") if state in record.on_processor else parameter.device
            piece = pieces[full_name]
            found[full_name] = unset_tensor(piece, device)
            optimizer.state[parameter][state] = found[full_name]
    return found


def _require_equal(saved: list[OptimizerGroup], number: int) -> None:
    if any(group.options != saved[0].options for group in saved):
        raise CheckpointError(
            f"group {number} of this optimizer holds weights that were saved with different settings",
            code="optimizer_groups",
        )


def settle_numbers(optimizer: Optimizer, record: OptimizerRecord) -> None:
    """States that were Python numbers are numbers again."""
    for states in optimizer.state.values():
        for state in record.numbers:
            if isinstance(states.get(state), Tensor):
                states[state] = states[state].item()
