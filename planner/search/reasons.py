"""Why nothing fits, in words that name a layer, a device kind and the missing bytes; and what a search left out.

Memory: the least amount by which every device would have to grow is found by bisection over the reachability of cuts,
which is a second, independent answer to "nothing fits" (plain sets, no programme over times). The stage that needs it
is named.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.costs.price import ProblemCosts
from planner.plan.answer import Reason
from planner.problem.options import Constraints, Family, SearchOptions
from planner.schedules.families import FAMILIES
from planner.search.enumeration import stage_counts
from planner.search.orders import ChainShape, serves, splits_backward
from planner.search.space import Space
from planner.search.tables import ClassTables
from planner.units import bytes_text, counted

__all__ = ["reachable_cut", "reasons", "warnings"]

_MOST_BYTES = 2**52
_MOST_SPACES = 8  # the ones with the smallest micro-batches


class _Stage(NamedTuple):
    device_class: int
    first_layer: int
    end_layer: int
    in_flight: int
    recomputes: bool


class _Shortfall(NamedTuple):
    """Every device needs ``missing_bytes`` more; then ``stage`` fits exactly."""

    missing_bytes: int
    space: Space
    stage: _Stage


def warnings(costs: ProblemCosts, spaces: Sequence[Space], options: SearchOptions) -> tuple[Reason, ...]:
    """Micro-batch sizes, device kinds and split backwards that the profiles cannot price."""
    splits = any(map(splits_backward, options.constraints.families))
    asks = splits or (options.schedules == "synthesised" and not options.constraints.families)
    unsplit = _unsplit_reason(costs, spaces) if asks else None
    return (*((unsplit,) if unsplit else ()), *_unpriced_reasons(spaces))


def _unsplit_reason(costs: ProblemCosts, spaces: Sequence[Space]) -> Reason | None:
    """None where every layer has its input and weight gradient measured apart, on every device kind."""
    for space in spaces:
        for device_class, tables in zip(space.classes, space.tables, strict=True):
            layer = next((t.unsplit_layer for t in tables.values() if t.unsplit_layer is not None), None)
            if layer is not None:
                name, kind = costs.problem.profiles[0].layers[layer].id, device_class.device_kind
                where = f"layer {layer} ({name!r}) on {kind!r}"
                text = f"{where} has no times of input and weight gradient: no order with a split backward was tried"
                return Reason(code="no_split", message=text, layer=layer, device_kind=kind)
    return None


def _unpriced_reasons(spaces: Sequence[Space]) -> tuple[Reason, ...]:
    found: dict[str, Reason] = {}
    for space in spaces:
        for error in space.unpriced:
            found.setdefault(error.message, Reason(code="no_price", message=error.message[:1024]))
    return tuple(found.values())[:3]


def reasons(costs: ProblemCosts, spaces: Sequence[Space], constraints: Constraints) -> tuple[Reason, ...]:
    """The demands that cannot be met together."""
    if not spaces:
        no_devices = _no_devices_reason(costs, constraints)
        if no_devices is not None:
            return (no_devices,)
        batch = costs.problem.workload.global_batch_size
        dealt = f"deals a batch of {counted(batch, 'sample')} to the devices"
        text = f"no data degree and micro-batch size that is allowed {dealt}"
        return (Reason(code="divisibility", message=text),)
    priced = [space for space in spaces if space.classes]
    if not priced:
        return _unpriced_reasons(spaces)
    if constraints.families and all(map(splits_backward, constraints.families)):
        unsplit = _unsplit_reason(costs, spaces)
        if unsplit is not None:
            return (unsplit,)
    stages = constraints.num_stages or 1
    looping = not constraints.families or any(FAMILIES[name].placement != "line" for name in constraints.families)
    legs = constraints.most_legs if looping else 1
    allowed = [space for space in priced if stages <= space.num_blocks * legs]
    if not allowed:
        most = max(space.num_blocks for space in priced)
        return (
            Reason(
                code="devices",
                message=f"{counted(stages, 'stage')} asked for, at most {counted(most, 'group')} of devices",
            ),
        )
    tried = [_shortfall(space, constraints) for space in _smallest(allowed)]
    shortfalls = [found for found in tried if found is not None and found.missing_bytes]
    if not shortfalls:
        return (_conflict_reason(allowed, constraints),)
    return (_memory_reason(costs, min(shortfalls, key=lambda found: found.missing_bytes)),)


def _no_devices_reason(costs: ProblemCosts, constraints: Constraints) -> Reason | None:
    """None where some node group may be used and has the ranks of some allowed data degree."""
    groups = costs.problem.cluster.node_groups
    usable = [group for group in groups if group.device_kind not in constraints.unused_kinds]
    if not usable:
        kinds = ", ".join(sorted({repr(group.device_kind) for group in groups}))
        text = f"no device is left: unused_kinds names every device kind of the cluster ({kinds})"
        return Reason(code="devices", message=text)
    most, least = max(group.num_ranks for group in usable), min(constraints.data_degrees, default=1)
    if least > most:
        text = f"data degree {least} asked for, the largest node group that may be used has {counted(most, 'rank')}"
        return Reason(code="devices", message=text)
    return None


def _conflict_reason(spaces: Sequence[Space], constraints: Constraints) -> Reason:
    """Memory is enough: which constraints leave no schedule."""
    families = constraints.families
    if constraints.recompute == ("full",) and families and all(map(splits_backward, families)):
        text = f"recompute 'full' asked for, but {', '.join(families)} split the backward and recompute nothing"
    elif families and not any(_serves(space, family, constraints) for space in spaces for family in families):
        most = max(space.num_blocks for space in spaces)
        stages = f"{constraints.num_stages} stages" if constraints.num_stages else "an allowed number of stages"
        text = (
            f"none of the families asked for ({', '.join(families)}) has a schedule of {stages} on up to "
            f"{counted(most, 'group')} with at most {counted(constraints.most_legs, 'stage')} a group"
        )
    elif constraints.pins:
        text = "no order of device kinds, number of stages and family that is allowed holds all layers as pinned"
    else:
        text = "no order of device kinds, number of stages and family that is allowed fits the constraints together"
    return Reason(code="constraint", message=text)


def _serves(space: Space, family: Family, constraints: Constraints) -> bool:
    """Whether the family has streams for some number of groups and stages that the constraints allow."""
    for groups in range(1, min(space.num_layers, space.num_blocks) + 1):
        for stages in stage_counts(space, family, groups, constraints):
            if serves(ChainShape(family, groups, stages, space.degrees.num_micro_batches)):
                return True
    return False


def _smallest(spaces: Sequence[Space]) -> list[Space]:
    """Of each data degree the smallest micro-batches: they need least memory."""
    best: dict[int, Space] = {}
    for space in sorted(spaces, key=lambda space: space.degrees.micro_batch_size):
        best.setdefault(space.degrees.data, space)
    return list(best.values())[:_MOST_SPACES]


def _memory_reason(costs: ProblemCosts, shortfall: _Shortfall) -> Reason:
    space, stage = shortfall.space, shortfall.stage
    device_class = space.classes[stage.device_class]
    need = device_class.usable_bytes + shortfall.missing_bytes
    layers = costs.problem.profiles[0].layers
    name = layers[stage.first_layer].id
    held = f"layer {stage.first_layer} ({name!r})"
    if stage.end_layer - stage.first_layer > 1:
        held = f"layers {stage.first_layer} to {stage.end_layer - 1} ({name!r} to {layers[stage.end_layer - 1].id!r})"
    text = (
        f"nothing fits: with one stage a group at the least {held} on {device_class.device_kind!r} "
        f"need {bytes_text(need)}, "
        f"it has {bytes_text(device_class.usable_bytes)}: {shortfall.missing_bytes} bytes short "
        f"(data degree {space.degrees.data}, micro-batch size {space.degrees.micro_batch_size}, "
        f"{stage.in_flight} in flight)"
    )
    return Reason(
        code="memory",
        message=text,
        layer=stage.first_layer,
        device_kind=device_class.device_kind,
        need_bytes=need,
        have_bytes=device_class.usable_bytes,
    )


def _shortfall(space: Space, constraints: Constraints) -> _Shortfall | None:
    """None where more memory would not help."""
    if reachable_cut(space, constraints, more_bytes=_MOST_BYTES) is None:
        return None
    low, high = 0, _MOST_BYTES
    while low < high:
        middle = (low + high) // 2
        if reachable_cut(space, constraints, more_bytes=middle) is None:
            low = middle + 1
        else:
            high = middle
    stages = reachable_cut(space, constraints, more_bytes=low)
    assert stages is not None
    tightest = max(stages, key=lambda stage: _need_bytes(space, stage) - _usable_bytes(space, stage))
    return _Shortfall(low, space, tightest)


def _usable_bytes(space: Space, stage: _Stage) -> int:
    return space.classes[stage.device_class].usable_bytes


def reachable_cut(space: Space, constraints: Constraints, *, more_bytes: int) -> tuple[_Stage, ...] | None:
    """Some cut whose stages can fit at the least, one stage a group, counted from the last stage; None: there is none.

    Plain reachability over (layer, devices used) from the end: stage j from the end keeps min(j, m) micro-batches.
    """
    counts = [len(device_class.blocks) for device_class in space.classes]
    most = constraints.num_stages or constraints.most_stages or space.num_layers
    start = (space.num_layers, (0,) * len(counts))
    level: dict[tuple[int, tuple[int, ...]], tuple[_Stage, ...]] = {start: ()}
    for j in range(1, min(space.num_layers, space.num_blocks, most) + 1):
        following: dict[tuple[int, tuple[int, ...]], tuple[_Stage, ...]] = {}
        for (end, used), stages in level.items():
            for number, count in enumerate(counts):
                if used[number] < count:
                    rest = tuple(n + (k == number) for k, n in enumerate(used))
                    for stage in _fitting_stages(space, number, end, j, more_bytes):
                        following.setdefault((stage.first_layer, rest), (stage, *stages))
        level = following
        done = [stages for (first, _), stages in level.items() if first == 0]
        if done and j >= (constraints.num_stages or 1):
            return done[0]
    return None


def _fitting_stages(space: Space, number: int, end: int, position: int, more_bytes: int) -> list[_Stage]:
    in_flight = min(position, space.degrees.num_micro_batches)
    found = []
    for first in range(end - 1, -1, -1):
        options = [_Stage(number, first, end, in_flight, again) for again in space.recompute]
        fits = [stage for stage in options if _need_bytes(space, stage) <= _usable_bytes(space, stage) + more_bytes]
        if not fits or not space.full(number).allowed[first, end]:
            break
        found.append(fits[0])
    return found


def _need_bytes(space: Space, stage: _Stage) -> int:
    """The least that any replay needs, of the smallest micro-batches."""
    tables = _least_tables(space, stage.device_class)
    memory = tables.memory(recomputes=stage.recomputes)
    place = (stage.first_layer, stage.end_layer)
    forward = memory.forward_bytes[place] + memory.arriving_bytes[place]
    backward = memory.backward_bytes[place] + memory.returning_bytes[place]
    running = int(np.maximum(forward, backward))
    return int(tables.state_bytes[place]) + stage.in_flight * int(memory.kept_bytes[place]) + running


def _least_tables(space: Space, device_class: int) -> ClassTables:
    return space.tables[device_class][min(space.tables[device_class])]
