"""What one layer costs on one device kind for any shape: the points of a profile, and fits between them.

Time: ``a + b x tokens + c x tokens x sequence``, non-negative, least squares on relative error; without the last term
for a weight gradient. Memory: ``k1 x samples x tokens + k3 x tokens + k2 x samples x tokens^2 + k0``, rounded up, and
widened by the most that the fit is below a point. A measured point gives itself; inside the box of the points the fit;
up to twice outside the fit, widened by 15 %; beyond that there is no price. A slice ``[s, e)`` of a sequence has the
attention terms ``e^2 - s^2``, so that the slices of a sequence add up to the whole.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from planner.costs.fit import Fit, fit_terms
from planner.costs.provenance import worst_provenance
from planner.errors import PriceError
from planner.problem.profile import ModelProfile, Point, Statistics
from planner.units import counted

__all__ = ["KindCosts", "LayerPrice", "RankShape"]

_WIDENED = 1.15  # one-sided, outside the box of the points
_FARTHEST = 2.0


class RankShape(NamedTuple):
    """What one rank computes in one visit: samples of tokens ``[first_token, end_token)``, and the mesh degrees."""

    samples: int
    first_token: int
    end_token: int
    tensor: int = 1
    context: int = 1
    experts: int = 1

    @property
    def tokens(self) -> int:
        return self.end_token - self.first_token


class LayerPrice(NamedTuple):
    """One layer for one shape. Input and weight gradient are None where the profile has not measured them.

    The fields ``split_...`` stand in place of forward, saved and backward transient in a visit with I and W; where the
    profile says nothing of them they are equal to those.
    """

    forward_ns: int
    backward_ns: int
    backward_input_ns: int | None
    backward_weight_ns: int | None
    saved_bytes: int  # without the layer's input
    input_bytes: int
    output_bytes: int
    forward_transient_bytes: int  # above what is kept
    backward_transient_bytes: int
    split_forward_ns: int
    split_saved_bytes: int
    split_transient_bytes: int
    provenance: str

    @property
    def in_split_visit(self) -> "LayerPrice":
        """The price of the same layer in a visit whose backward is split into I and W."""
        return self._replace(
            forward_ns=self.split_forward_ns,
            saved_bytes=self.split_saved_bytes,
            backward_transient_bytes=self.split_transient_bytes,
        )


class _Measure(NamedTuple):
    """One column of the points: how it is read and fitted."""

    name: str
    terms: Callable[[RankShape], tuple[float, ...]]
    bytes: bool


def _time_terms(shape: RankShape) -> tuple[float, ...]:
    tokens = float(shape.samples * shape.tokens)
    return (tokens, 1.0, float(shape.samples * (shape.end_token**2 - shape.first_token**2)))


def _weight_time_terms(shape: RankShape) -> tuple[float, ...]:
    return (float(shape.samples * shape.tokens), 1.0)


def _byte_terms(shape: RankShape) -> tuple[float, ...]:
    square = float(shape.samples * (shape.end_token**2 - shape.first_token**2))
    return (float(shape.samples * shape.tokens), 1.0, float(shape.tokens), square)


_TIMES = (
    _Measure("forward", _time_terms, bytes=False),
    _Measure("backward", _time_terms, bytes=False),
    _Measure("backward_input", _time_terms, bytes=False),
    _Measure("backward_weight", _weight_time_terms, bytes=False),
    _Measure("split_forward", _time_terms, bytes=False),
)
_BYTES = tuple(
    _Measure(name, _byte_terms, bytes=True)
    for name in (
        "saved_bytes",
        "input_bytes",
        "output_bytes",
        "peak_forward_bytes",
        "peak_backward_bytes",
        "split_kept_bytes",
        "split_peak_bytes",
    )
)


class KindCosts:
    """The layers of one profile, priced; fits and prices are made once."""

    def __init__(self, profile: ModelProfile) -> None:
        self.profile = profile
        self._fits: dict[tuple[str, str, tuple[int, int, int]], Fit | None] = {}
        self._prices: dict[tuple[str, RankShape], LayerPrice] = {}

    def layer(self, layer: int, shape: RankShape) -> LayerPrice:
        """The price of a layer. Raises ``PriceError`` naming layer, device kind and shape where there is none."""
        key = (self.profile.layers[layer].fingerprint, shape)
        if key not in self._prices:
            self._prices[key] = self._priced(layer, shape)
        return self._prices[key]

    def is_measured(self, layer: int, shape: RankShape) -> bool:
        """Whether the profile has a point of the layer for the mesh degrees of ``shape``, whatever came of it."""
        return any((p.tensor, p.context, p.experts) == shape[3:] for p in self.profile.points_of(layer))

    def _priced(self, layer: int, shape: RankShape) -> LayerPrice:
        points = [p for p in self.profile.points_of(layer) if (p.tensor, p.context, p.experts) == shape[3:]]
        usable = [point for point in points if point.status in ("ok", "noisy")]
        outside = self._outside(layer, shape, usable)
        self._refuse_oom(layer, shape, points)
        exact = next((point for point in usable if _is_at(point, shape)), None)
        values = {measure.name: self._value(layer, shape, measure, exact, outside) for measure in (*_TIMES, *_BYTES)}
        if not self.profile.layers[layer].num_trained_params:  # nothing but the input gradient: B and I are the same
            values["backward_input"] = values["backward_input"] or values["backward"] or 0
            values["backward_weight"] = 0
        return _layer_price(values, _tag(usable, exact, outside), self._refusal(layer, shape, "lacks a backward"))

    def _value(
        self, layer: int, shape: RankShape, measure: _Measure, exact: Point | None, outside: float
    ) -> int | None:
        load = 1.0 if measure.bytes else self.profile.overheads.load_factor
        if exact is not None and (found := _read(exact, measure.name, self.profile.statistic)) is not None:
            return round(found * load)
        fit = self._fit(layer, shape, measure)
        if fit is None:
            return None
        value = fit.value(measure.terms(shape))
        if measure.bytes:
            return _up(value * (1 + fit.worst_under_share))
        return round(value * load * (_WIDENED if outside > 1 else 1.0))

    def _fit(self, layer: int, shape: RankShape, measure: _Measure) -> Fit | None:
        key = (self.profile.layers[layer].fingerprint, measure.name, shape[3:])
        if key not in self._fits:
            rows, values = [], []
            for point in self.profile.usable_points(layer):
                found = _read(point, measure.name, self.profile.statistic)
                if found is not None and (point.tensor, point.context, point.experts) == shape[3:]:
                    rows.append(measure.terms(_shape(point)))
                    values.append(float(found))
            self._fits[key] = fit_terms(rows, values) if rows else None
        return self._fits[key]

    def _outside(self, layer: int, shape: RankShape, points: list[Point]) -> float:
        """How far the shape is outside the box of the points in samples, tokens and their product; 1: inside."""
        if not points:
            raise self._refusal(layer, shape, "has no points for these degrees")
        shapes = [_shape(point) for point in points]
        factors = [1.0]
        for measure in (_samples, _sequence, _samples_x_tokens):
            measured = [measure(found) for found in shapes]
            factors += [measure(shape) / max(measured), min(measured) / measure(shape)]
        if max(factors) > _FARTHEST:
            reach = f"samples {_span(shapes, _samples)}, tokens {_span(shapes, _sequence)}"
            raise self._refusal(layer, shape, f"was measured only for {reach}, more than {_FARTHEST:g}x away")
        return max(factors)

    def _refuse_oom(self, layer: int, shape: RankShape, points: list[Point]) -> None:
        for point in points:
            if (
                point.status == "oom"
                and shape.samples >= point.micro_batch_size
                and shape.tokens >= (point.sequence_length)
            ):
                found = f"ran out of memory at {point.micro_batch_size} x {point.sequence_length} tokens"
                raise self._refusal(layer, shape, found)

    def _refusal(self, layer: int, shape: RankShape, why: str) -> PriceError:
        asked = f"{counted(shape.samples, 'sample')} of tokens [{shape.first_token}, {shape.end_token})"
        degrees = f"tensor {shape.tensor}, context {shape.context}, experts {shape.experts}"
        name, kind = self.profile.layers[layer].id, self.profile.device.kind
        message = f"layer {layer} ({name!r}) on {kind!r} {why}; asked for {asked}, {degrees}"
        return PriceError(message, code="no_price", pointer=f"/layers/{layer}")


def _layer_price(values: dict[str, int | None], tag: str, refusal: PriceError) -> LayerPrice:
    whole, parts = values["backward"], (values["backward_input"], values["backward_weight"])
    if whole is None:
        if parts == (None, None):
            whole = 0  # frozen and nothing before it: no backward at all
        elif None in parts:
            raise refusal
        else:
            whole = (parts[0] or 0) + (parts[1] or 0)
    forward, saved, peak = values["forward"], values["saved_bytes"], values["peak_backward_bytes"] or 0
    assert forward is not None
    assert saved is not None
    return LayerPrice(
        forward_ns=forward,
        backward_ns=whole,
        backward_input_ns=parts[0],
        backward_weight_ns=parts[1],
        saved_bytes=saved,
        input_bytes=values["input_bytes"] or 0,
        output_bytes=values["output_bytes"] or 0,
        forward_transient_bytes=max(0, (values["peak_forward_bytes"] or 0) - saved),
        backward_transient_bytes=peak,
        split_forward_ns=_or(values["split_forward"], forward),
        split_saved_bytes=_or(values["split_kept_bytes"], saved),
        split_transient_bytes=_or(values["split_peak_bytes"], peak),
        provenance=tag,
    )


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


_OF_SPLIT = {"split_forward": "forward", "split_kept_bytes": "kept_bytes", "split_peak_bytes": "peak_bytes"}


def _read(point: Point, name: str, statistic: str) -> int | None:
    of_split = _OF_SPLIT.get(name)
    found = getattr(point, name) if of_split is None else getattr(point.split, of_split, None)
    if isinstance(found, Statistics):
        value = getattr(found, statistic)
        assert isinstance(value, int)
        return value
    assert found is None or isinstance(found, int)
    return found


def _shape(point: Point) -> RankShape:
    degrees = (point.tensor, point.context, point.experts)
    return RankShape(point.micro_batch_size, 0, point.sequence_length, *degrees)


def _is_at(point: Point, shape: RankShape) -> bool:
    return _shape(point) == shape


def _samples(shape: RankShape) -> int:
    return shape.samples


def _sequence(shape: RankShape) -> int:
    return shape.tokens


def _samples_x_tokens(shape: RankShape) -> int:
    return shape.samples * shape.tokens


def _span(shapes: list[RankShape], measure: Callable[[RankShape], int]) -> str:
    return f"{min(map(measure, shapes))}..{max(map(measure, shapes))}"


def _tag(points: list[Point], exact: Point | None, outside: float) -> str:
    if exact is not None:
        return exact.provenance
    return worst_provenance(_tags(points, outside))


def _tags(points: list[Point], outside: float) -> Iterator[str]:
    yield "shrunk" if outside > 1 else "interpolated"
    for point in points:
        yield point.provenance


def _up(value: float) -> int:
    """Up to whole bytes; what is above a whole number by the rounding of floats alone stays there."""
    return math.ceil(value - 1e-3 - 1e-11 * value)
