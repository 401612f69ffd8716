"""Samples, memory figures and a description -> one profile document."""

import datetime
import platform
import statistics
from typing import Protocol

import planner
from planner.errors import ModelError
from planner.problem.profile import (
    Device,
    Measurement,
    Model,
    ModelProfile,
    Overheads,
    ProfileProvenance,
    Statistic,
)
from planner.problem.workload import Precision
from profiles.points import Measured, point_of
from profiles.protocol import Description, Grid
from profiles.samples import statistics_of
from profiles.source import ModelSource

__all__ = ["assemble"]

_NOT_MEASURED = {"oom": "it does not fit", "failed": "it failed"}


class _Options(Protocol):
    """The part of the capture's options that a profile records."""

    @property
    def num_ranks(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def precision(self) -> Precision: ...
    @property
    def statistic(self) -> Statistic: ...
    @property
    def target_share(self) -> float: ...
    @property
    def device_kind(self) -> str | None: ...
    @property
    def command(self) -> str: ...


def assemble(measured: Measured, *, source: ModelSource, grid: Grid, options: _Options) -> ModelProfile:
    """The profile. Raises ``ModelError`` for a layer without a single usable shape."""
    found = measured.description
    return ModelProfile(
        schema_version="profile/1",
        provenance=_provenance(found, options),
        device=Device(
            kind=options.device_kind or found.device_kind,
            total_bytes=found.total_bytes,
            usable_bytes=found.usable_bytes,
            wall_over_cpu_p50=_wall_over_cpu(measured),
        ),
        model=Model(
            fingerprint=found.model_fingerprint,
            source=source.factory[:128],
            precision=options.precision,
            cut=source.cut,
            reads=found.reads,
            tied=found.tied,
        ),
        layers=found.layers,
        measurements=tuple(_measurements(measured, grid, options)),
        statistic=options.statistic,
        overheads=_overheads(measured, options.statistic),
    )


def _provenance(found: Description, options: _Options) -> ProfileProvenance:
    return ProfileProvenance(
        tool=f"parallel-planner {planner.__version__}",
        created_utc=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=options.command,
        torch=found.torch_version,
        python=platform.python_version(),
        backend=found.backend,
        threads=options.threads,
        num_ranks=options.num_ranks,
    )


def _measurements(measured: Measured, grid: Grid, options: _Options) -> list[Measurement]:
    shapes, result = grid.shapes, []
    for place, fingerprint in enumerate(measured.description.measured):
        first = place * len(shapes)
        points = [point_of(measured, first + n, shape, options) for n, shape in enumerate(shapes)]
        if not any(point.status in ("ok", "noisy") for point in points):
            layer = next(layer.id for layer in measured.description.layers if layer.fingerprint == fingerprint)
            why = dict.fromkeys(point.failure or _NOT_MEASURED[point.status] for point in points)
            raise ModelError(
                f"no shape of the grid could be measured for layer {layer!r}: {next(iter(why))}"
                + (f" (and {len(why) - 1} more)" if len(why) > 1 else ""),
                code="no_usable_shape",
                pointer=layer,
            )
        result.append(Measurement(fingerprint=fingerprint, points=tuple(points)))
    return result


def _overheads(measured: Measured, statistic: Statistic) -> Overheads:
    """An update costs a constant and a rate: two sizes tell them apart. A visit's phases share its constant."""
    all_params, one_params = measured.description.update_params
    update_all, update_one, visit = (
        statistics_of(times.forward_ns, times.forward_cpu_ns, statistic, seed=0)
        for times in (measured.times[measured.num_layer_tasks + place] for place in range(3))
    )
    empty = measured.times[measured.num_layer_tasks + 2]
    back = statistics_of(empty.backward_ns, empty.backward_cpu_ns, statistic, seed=0)
    all_ns, one_ns = (int(getattr(found, statistic)) for found in (update_all, update_one))
    rate = max(0.0, (all_ns - one_ns) / (all_params - one_params)) if all_params > one_params else all_ns / all_params
    return Overheads(
        per_instruction_ns=(int(getattr(visit, statistic)) + int(getattr(back, statistic))) // 2,
        update_ns_per_million_params=round(rate * 1e6),
        update_ns=max(0, round(one_ns - rate * one_params)),
    )


def _wall_over_cpu(measured: Measured) -> float | None:
    """Median over all samples of wall time / CPU time; above 1 the device was shared."""
    shares = [
        (forward + backward) / (forward_cpu + backward_cpu)
        for task, times in measured.times.items()
        if task < measured.num_layer_tasks
        for forward, backward, forward_cpu, backward_cpu in zip(
            times.forward_ns, times.backward_ns, times.forward_cpu_ns, times.backward_cpu_ns, strict=True
        )
        if forward_cpu + backward_cpu > 0
    ]
    return statistics.median(shares) if shares else None
