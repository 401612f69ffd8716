"""A profile of one device kind from another one's, when the device itself is not at hand.

All times are multiplied by one factor; memory stays, as it comes from shapes. Provenance says ``scaled:<kind>``, so a
plan that rests on such a profile says so (cost model, section 7: the last fallback).
"""

import math
from fractions import Fraction

from planner.errors import ProblemError
from planner.problem.canonical import document_bytes
from planner.problem.contract import LongestDuration
from planner.problem.profile import Device, Measurement, ModelProfile, Overheads, Point, SplitCosts, Statistics
from planner.problem.reading import read_document

__all__ = ["scale_profile"]

_TIMES = ("min_ns", "p10_ns", "p25_ns", "median_ns", "mean_ns", "p90_ns")
_OPERATIONS = ("forward", "backward", "backward_input", "backward_weight")


def scale_profile(
    profile: ModelProfile, device_kind: str, factor: float | Fraction, usable_bytes: int | None = None
) -> ModelProfile:
    """``profile`` for ``device_kind``, whose operations take ``factor`` times as long.

    ``usable_bytes`` of the new device; None: as much as the old one. A point that did not fit is kept only where the
    new device has no more memory. Raises ``ProblemError`` for a factor that is not positive or the same device kind.
    """
    exact = Fraction(factor) if math.isfinite(factor) else Fraction(0)
    if exact <= 0:
        raise ProblemError(f"found the factor {factor}, expected a positive number", code="range")
    if device_kind == profile.device.kind:
        raise ProblemError(f"the profile is of {device_kind!r} already, expected another kind", code="same_kind")
    measurements = tuple(_measurement(one, profile, exact, usable_bytes) for one in profile.measurements)
    if any(not one.points for one in measurements):
        raise ProblemError("a layer has only shapes that did not fit the old device", code="no_usable_shape")
    scaled = profile.model_copy(
        update={
            "provenance": profile.provenance.model_copy(update={"scaled_from": profile.device.kind}),
            "device": _device(profile.device, device_kind, usable_bytes),
            "measurements": measurements,
            "overheads": _overheads(profile.overheads, exact),
            "calibration": (),
        }
    )
    # a copy is not checked, and keeps what the first one has worked out of itself (its digest): read it anew
    return read_document(document_bytes(scaled), ModelProfile)


def _device(device: Device, kind: str, usable_bytes: int | None) -> Device:
    limit = usable_bytes or device.usable_bytes
    return device.model_copy(
        update={
            "kind": kind,
            "usable_bytes": limit,
            "total_bytes": device.total_bytes if usable_bytes is None else limit,
            "peak_flops_per_s": None,
            "identity": None,
            "other_processes": None,
        }
    )


def _overheads(overheads: Overheads, factor: Fraction) -> Overheads:
    names = ("per_instruction_ns", "update_ns_per_million_params", "update_ns")
    return overheads.model_copy(update={name: _scaled(getattr(overheads, name), factor) for name in names})


def _measurement(
    measurement: Measurement, profile: ModelProfile, factor: Fraction, usable_bytes: int | None
) -> Measurement:
    more_memory = usable_bytes is not None and usable_bytes > profile.device.usable_bytes
    points = [point for point in measurement.points if not (more_memory and point.status == "oom")]
    provenance = f"scaled:{_plain(profile.device.kind)}"
    return measurement.model_copy(update={"points": tuple(_point(point, provenance, factor) for point in points)})


def _point(point: Point, provenance: str, factor: Fraction) -> Point:
    times = {name: _statistics(getattr(point, name), factor) for name in _OPERATIONS}
    return point.model_copy(update={"provenance": provenance, "split": _split(point.split, factor), **times})


def _split(found: SplitCosts | None, factor: Fraction) -> SplitCosts | None:
    return None if found is None else found.model_copy(update={"forward": _statistics(found.forward, factor)})


def _statistics(found: Statistics | None, factor: Fraction) -> Statistics | None:
    if found is None:
        return None
    times: dict[str, int | None] = {name: _scaled(getattr(found, name), factor) for name in _TIMES}
    return found.model_copy(update={**times, "cpu_median_ns": None})


def _scaled(duration_ns: int, factor: Fraction) -> int:
    result = round(duration_ns * factor)
    if result > LongestDuration:
        raise ProblemError(f"{duration_ns} ns x {float(factor):g} is beyond the longest duration", code="range")
    return result


def _plain(kind: str) -> str:
    """A device kind in the letters that a provenance may have."""
    allowed = "".join(character if character.isascii() and character.isalnum() else "-" for character in kind)
    return allowed[:64]
