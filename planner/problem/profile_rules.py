"""What a profile checks about itself beyond its field types, one rule a function; the first broken rule counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from planner.problem.contract import fault, first_repeated
from planner.units import NS_PER_SECOND

if TYPE_CHECKING:
    from planner.problem.profile import Measurement, ModelProfile, Point

__all__ = ["graph_fault", "profile_fault"]

_Found = PydanticCustomError | None
# memory may fall by this share as the micro-batch grows: allocators round
_MONOTONE_TOLERANCE = 0.02
_SPLIT_FACTOR = 1_000  # I + W against B: the step between two units of time


def profile_fault(profile: ModelProfile) -> _Found:
    """The first rule that ``profile`` breaks, or None."""
    return next((found for rule in _RULES if (found := rule(profile)) is not None), None)


def _has_layers(profile: ModelProfile) -> _Found:
    return None if profile.layers else fault("empty_model", "found 0 layers, expected at least 1")


def _layer_ids_differ(profile: ModelProfile) -> _Found:
    repeated = first_repeated(layer.id for layer in profile.layers)
    return None if repeated is None else fault("duplicate_id", f"layer id {repeated!r} stands twice")


def _graph_is_sound(profile: ModelProfile) -> _Found:
    reads = [(r.layer, r.sources, r.detached) for r in profile.model.reads]
    return graph_fault(len(profile.layers), reads, [tied.layers for tied in profile.model.tied])


def _every_layer_is_measured(profile: ModelProfile) -> _Found:
    repeated = first_repeated(m.fingerprint for m in profile.measurements)
    if repeated is not None:
        return fault("duplicate_id", f"two measurements of the fingerprint {str(repeated)[:12]}")
    known = {m.fingerprint for m in profile.measurements}
    for layer in profile.layers:
        if layer.fingerprint not in known:
            return fault("profile_incomplete", f"layer {layer.id!r} has no measurement ({layer.fingerprint[:12]})")
    extra = known - {layer.fingerprint for layer in profile.layers}
    if extra:
        return fault("profile_extra_layer", f"a measurement of no layer of the model ({min(extra)[:12]})")
    return None


def _points_differ(profile: ModelProfile) -> _Found:
    for measurement in profile.measurements:
        repeated = first_repeated(_shape(point) for point in measurement.points)
        if repeated is not None:
            return fault("duplicate_id", f"two points of the shape {repeated} for {_who(profile, measurement)}")
    return None


def _times_are_plausible(profile: ModelProfile) -> _Found:
    timed = [s for m in profile.measurements for p in m.points for s in (p.forward, p.backward) if s is not None]
    if timed and all(s.p90_ns == 0 for s in timed):
        return fault("all_zero", "every time is 0 ns, expected measured times")
    return _split_fault(profile) or _rate_fault(profile)


def _split_fault(profile: ModelProfile) -> _Found:
    """I and W together do the work of B: over all points that have all three the times are of one order."""
    points = [p for m in profile.measurements for p in m.points if p.backward_input and p.backward_weight]
    parts = [s for p in points for s in (p.backward_input, p.backward_weight) if s is not None]
    if parts and all(s.p90_ns == 0 for s in parts):
        return fault("all_zero", "every time of I and of W is 0 ns, expected measured times")
    whole = [(p.backward, p.backward_input, p.backward_weight) for p in points]
    sums = [(b.median_ns, i.median_ns + w.median_ns) for b, i, w in whole if b and i and w and b.median_ns]
    backward_ns, parts_ns = (sum(column) for column in zip(*sums, strict=True)) if sums else (0, 0)
    if backward_ns and not backward_ns <= parts_ns * _SPLIT_FACTOR <= backward_ns * _SPLIT_FACTOR**2:
        message = f"I and W take {parts_ns} ns together where B takes {backward_ns} ns: wrong unit?"
        return fault("implausible_unit", message)
    return None


def _rate_fault(profile: ModelProfile) -> _Found:
    """A time in a wrong unit shows as an impossible rate: above 2x the peak or below 1e-6 of it."""
    peak = profile.device.peak_flops_per_s
    speeds = {m.fingerprint: [_tokens_per_s(p) for p in m.points if _is_timed(p)] for m in profile.measurements}
    extremes = {fingerprint: (min(found), max(found)) for fingerprint, found in speeds.items() if found}
    for layer in profile.layers:
        for tokens_per_s in extremes.get(layer.fingerprint, ()):
            share = tokens_per_s * (layer.forward_flops_per_token or 0) / peak if peak else 0.0
            if share and not 1e-6 <= share <= 2:
                message = f"layer {layer.id!r} runs at {share:.3g} of the device's peak: wrong unit?"
                return fault("implausible_unit", message)
    return None


def _is_timed(point: Point) -> bool:
    return point.forward is not None and point.forward.median_ns > 0


def _tokens_per_s(point: Point) -> float:
    """Tokens that one rank computes in a second of its forward."""
    assert point.forward is not None
    tokens = point.micro_batch_size * point.sequence_length
    return tokens / point.tensor / point.context / point.forward.median_ns * NS_PER_SECOND


def _memory_grows(profile: ModelProfile) -> _Found:
    """Saved bytes do not fall as the micro-batch alone grows: each point against the fullest smaller one."""
    for measurement in profile.measurements:
        fullest: dict[tuple[int, ...], Point] = {}
        for point in sorted(measurement.points, key=_shape):
            smaller = fullest.get(_shape(point)[1:])
            if smaller is not None and _falls(smaller.saved_bytes, point.saved_bytes):
                return fault(
                    "non_monotone",
                    f"{_who(profile, measurement)} saves {smaller.saved_bytes} bytes at micro-batch "
                    f"{smaller.micro_batch_size} but {point.saved_bytes} at {point.micro_batch_size}",
                )
            if smaller is None or (point.saved_bytes or 0) > (smaller.saved_bytes or 0):
                fullest[_shape(point)[1:]] = point
    return None


def _falls(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after < before * (1 - _MONOTONE_TOLERANCE)


def _shape(point: Point) -> tuple[int, ...]:
    return (point.micro_batch_size, point.sequence_length, point.tensor, point.context, point.experts)


def _who(profile: ModelProfile, measurement: Measurement) -> str:
    return next(repr(layer.id) for layer in profile.layers if layer.fingerprint == measurement.fingerprint)


_RULES: tuple[Callable[[ModelProfile], _Found], ...] = (
    _has_layers,
    _layer_ids_differ,
    _graph_is_sound,
    _every_layer_is_measured,
    _points_differ,
    _times_are_plausible,
    _memory_grows,
)


def graph_fault(
    num_layers: int,
    reads: Sequence[tuple[int, Sequence[int], Sequence[int]]],
    tied: Sequence[Sequence[int]],
) -> _Found:
    """The first fault of a layer graph: (layer, sources, detached) triples and sets of tied layers, or None."""
    if list(dict.fromkeys(sorted(r[0] for r in reads))) != [r[0] for r in reads]:
        return fault("graph_order", "reads must name each layer once, ascending")
    for layer, sources, detached in reads:
        found = _reads_fault(num_layers, layer, [*sources, *detached])
        if found is not None:
            return found
        if (list(sources), list(detached)) == (([layer - 1], []) if layer else ([], [])):
            return fault("graph_default", f"reads of layer {layer} only repeat the default")
    members = [layer for layers in tied for layer in layers]
    if any(not 0 <= layer < num_layers for layer in members):
        bad = next(layer for layer in members if not 0 <= layer < num_layers)
        return fault("dangling_edge", f"tied weights name layer {bad}, expected 0..{num_layers - 1}")
    if len(set(members)) != len(members) or any(len(t) < 2 or list(t) != sorted(t) for t in tied):
        return fault("graph_tied", "tied sets must be disjoint and ascending, of two layers or more")
    return None


def _reads_fault(num_layers: int, layer: int, sources: Sequence[int]) -> _Found:
    for number in (layer, *sources):
        if not 0 <= number < num_layers:
            return fault("dangling_edge", f"layer {layer} reads layer {number}, expected layers 0..{num_layers - 1}")
    if any(source >= layer for source in sources):
        bad = next(source for source in sources if source >= layer)
        return fault("cycle", f"layer {layer} reads layer {bad}, expected lower numbers only: a cycle or wrong order")
    if len(set(sources)) != len(sources):
        return fault("graph_order", f"layer {layer} reads the same layer twice")
    return None
