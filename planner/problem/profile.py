"""Measured costs of one model's layers on one device kind, ``profile/1``.

One document per (model fingerprint, device kind, precision). Points are the truth, fits over them are made where they
are used. Equal layers share a ``fingerprint`` and are measured once: ``layers`` says what the model is,
``measurements`` what each different layer costs.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.problem.canonical import document_digest
from planner.problem.contract import (
    MOST_LAYERS,
    Bytes,
    Contract,
    Count,
    Digest,
    FiniteFloat,
    Index,
    Many,
    Name,
    Nanoseconds,
    fault,
)
from planner.problem.profile_rules import profile_fault
from planner.problem.workload import Precision

__all__ = [
    "Calibration",
    "Device",
    "Layer",
    "LayerKind",
    "Measurement",
    "Model",
    "ModelProfile",
    "Overheads",
    "Point",
    "ProfileProvenance",
    "Provenance",
    "Reads",
    "SplitCosts",
    "Statistic",
    "Statistics",
    "TiedWeights",
]

LayerKind = Literal["embedding", "block", "pre", "attention", "post", "head", "other"]
Statistic = Literal["p25_ns", "median_ns", "mean_ns", "min_ns"]
Provenance = Annotated[
    str,
    Field(
        pattern=r"^(measured|interpolated|shrunk|roofline-measured|roofline-catalogue|scaled:[A-Za-z0-9._-]{1,64})$",
        max_length=80,
    ),
]


def _is_none(value: object) -> bool:
    """Of a field that is left out of a document where it has no value: older documents keep their digests."""
    return value is None


class Reads(Contract):
    """What a layer reads when it does not simply read the layer before it.

    No sources and none detached: it reads the batch, as layer 0 does.
    """

    layer: Index
    sources: Many[Index] = ()  # outputs come in, gradients go back
    detached: Many[Index] = ()  # outputs come in, nothing goes back


class TiedWeights(Contract):
    """Layers that share weights, and the global names of the shared parameters."""

    layers: Annotated[Many[Index], Field(min_length=2)]
    parameter_names: Annotated[Many[Name], Field(min_length=1)]


class Statistics(Contract):
    """One operation at one point: statistics of the samples, never the samples' mean alone."""

    num_samples: Count
    min_ns: Nanoseconds
    p10_ns: Nanoseconds
    p25_ns: Nanoseconds
    median_ns: Nanoseconds
    mean_ns: Nanoseconds
    p90_ns: Nanoseconds
    cpu_median_ns: Nanoseconds | None  # process CPU time; None where the device has none
    confidence_95_share: FiniteFloat | None = None  # width of the bootstrap interval of the statistic, relative

    @model_validator(mode="after")
    def _ordered(self) -> "Statistics":
        quantiles = (self.min_ns, self.p10_ns, self.p25_ns, self.median_ns, self.p90_ns)
        if list(quantiles) != sorted(quantiles):
            raise fault("range", f"found quantiles {quantiles}, expected min <= p10 <= p25 <= median <= p90")
        return self


class SplitCosts(Contract):
    """What a visit with its backward split into I and W costs beside those two; the executor's own split."""

    forward: Statistics  # as it runs then
    kept_bytes: Bytes  # at the most, from F to W, without parameters and without the layer's input
    peak_bytes: Bytes  # most bytes above the kept ones while I or W runs


class Point(Contract):
    """Costs of one layer for one shape on one rank; ``oom`` is a valid point: it bounds, it has no times."""

    micro_batch_size: Count  # samples of one rank
    sequence_length: Count
    tensor: Count = 1
    context: Count = 1
    experts: Count = 1
    status: Literal["ok", "oom", "noisy", "failed"]
    provenance: Provenance
    forward: Statistics | None
    backward: Statistics | None
    backward_input: Statistics | None = None
    backward_weight: Statistics | None = None
    split: SplitCosts | None = Field(default=None, exclude_if=_is_none)
    saved_bytes: Bytes | None  # kept from forward to backward, without parameters and without the layer's input
    input_bytes: Bytes | None
    output_bytes: Bytes | None
    peak_forward_bytes: Bytes | None  # most bytes above the start, saved bytes included
    peak_backward_bytes: Bytes | None  # most bytes above the kept ones while the backward runs
    failure: Annotated[str, Field(max_length=1024)] | None = Field(default=None, exclude_if=_is_none)  # of what failed

    @model_validator(mode="after")
    def _complete(self) -> "Point":
        needed = ("forward", "saved_bytes", "input_bytes", "output_bytes", "peak_forward_bytes", "peak_backward_bytes")
        if self.status in ("ok", "noisy") and (absent := [name for name in needed if getattr(self, name) is None]):
            raise fault("missing", f"a point with status {self.status} lacks {', '.join(absent)}")
        return self


class Layer(Contract):
    """What one layer of the model is."""

    id: Name
    kind: LayerKind
    fingerprint: Digest  # of class, configuration, parameter and input shapes: equal layers are measured once
    param_bytes: Bytes
    num_params: Index
    num_trained_params: Index  # 0: frozen or without weights, no weight gradient
    buffer_bytes: Bytes
    causal: bool  # may be sliced by tokens
    splittable: bool  # W computes all its weight gradients, I none
    forward_flops_per_token: Index | None = None  # at the longest profiled sequence


class Measurement(Contract):
    """All points of one kind of layer."""

    fingerprint: Digest
    points: Annotated[Many[Point], Field(min_length=1, max_length=10_000)]


class Model(Contract):
    """The model as the cutter sees it."""

    fingerprint: Digest
    source: Name  # class of the model, or MODULE:FACTORY
    precision: Precision
    cut: Many[Name] | None  # module names given by the user; None: the automatic cut
    reads: Many[Reads] = ()
    tied: Many[TiedWeights] = ()


class Device(Contract):
    """The device that was measured."""

    kind: Name
    total_bytes: Count
    usable_bytes: Count  # after context and communicators exist
    peak_flops_per_s: Count | None = None  # dense, of the profile's precision
    identity: Name | None = None  # hash of the device's UUID
    other_processes: Index | None = None
    wall_over_cpu_p50: FiniteFloat | None = None  # above 1: the device was shared while it was measured


class Overheads(Contract):
    """Costs that belong to no layer."""

    per_instruction_ns: Nanoseconds  # added to every compute instruction
    update_ns_per_million_params: Nanoseconds
    update_ns: Nanoseconds = 0  # constant of one update
    load_factor: Annotated[FiniteFloat, Field(gt=0, le=1000)] = 1.0  # of every layer: calibrated


class Calibration(Contract):
    """One reference run: what was predicted and what was measured."""

    plan: Digest
    predicted_ns: Count
    measured_ns: Count


class ProfileProvenance(Contract):
    """With what and when it was measured; what makes a profile stale."""

    tool: Name
    created_utc: Name
    command: Annotated[str, Field(max_length=4096)]
    torch: Name | None
    python: Name
    backend: Name  # cpu, cuda 12.8 ...
    threads: Index
    num_ranks: Count  # ranks that measured at the same time
    scaled_from: Name | None = None  # another device kind


class ModelProfile(Contract):
    """Costs of every layer of one model on one device kind."""

    schema_version: Literal["profile/1"] = Field(alias="schema")
    provenance: ProfileProvenance
    device: Device
    model: Model
    layers: Annotated[Many[Layer], Field(max_length=MOST_LAYERS)]
    measurements: Annotated[Many[Measurement], Field(max_length=MOST_LAYERS)]
    statistic: Statistic  # which statistic of a point is its time
    overheads: Overheads
    calibration: Annotated[Many[Calibration], Field(max_length=1000)] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "ModelProfile":
        found = profile_fault(self)
        if found is not None:
            raise found
        return self

    @cached_property
    def digest(self) -> str:
        """The profile's id: SHA-256 over its canonical JSON."""
        return document_digest(self)

    @cached_property
    def points_by_fingerprint(self) -> Mapping[str, tuple[Point, ...]]:
        return {measurement.fingerprint: measurement.points for measurement in self.measurements}

    def points_of(self, layer: int) -> tuple[Point, ...]:
        """The points of a layer, by its number."""
        return self.points_by_fingerprint[self.layers[layer].fingerprint]

    def usable_points(self, layer: int) -> Iterator[Point]:
        """The points of a layer that carry times."""
        return (point for point in self.points_of(layer) if point.status in ("ok", "noisy"))
