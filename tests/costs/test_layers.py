"""Layer costs: fits, rounding, widening and refusals; numbers are the worked examples of the cost model."""

import pytest

from planner.costs.fit import fit_terms
from planner.costs.layers import KindCosts, RankShape
from planner.errors import PriceError
from planner.problem.profile import ModelProfile
from tests.helpers.documents import make_profile, make_statistics

SIX_SHAPES = [(1, 64), (8, 64), (1, 256), (4, 256), (1, 512), (2, 512)]


def llama_forward_ns(samples: int, sequence: int) -> float:
    """The prototype's fit of a block: a 2,100,000 ns, b 26,100 ns a token, c 20.2 ns."""
    tokens = samples * sequence
    return 2_100_000 + 26_100 * tokens + 20.2 * tokens * sequence


def llama_saved_bytes(samples: int, sequence: int) -> int:
    return 19_240 * samples * sequence + 256 * sequence


def llama_profile() -> ModelProfile:
    """One layer, measured at the six shapes, exactly on the formulas."""
    profile = make_profile(layer_forward_ns=[1_000])
    template = profile.measurements[0].points[0]
    points = tuple(
        template.model_copy(
            update={
                "micro_batch_size": samples,
                "sequence_length": sequence,
                "forward": make_statistics(round(llama_forward_ns(samples, sequence))),
                "saved_bytes": llama_saved_bytes(samples, sequence),
            }
        )
        for samples, sequence in SIX_SHAPES
    )
    measurement = profile.measurements[0].model_copy(update={"points": points})
    return profile.model_copy(update={"measurements": (measurement,)})


@pytest.mark.parametrize(("samples", "sequence", "expected"), [(2, 256, 18_110_854), (1, 64, 3_853_139)])
def test_forward_time_of_the_worked_example(samples: int, sequence: int, expected: int) -> None:
    price = KindCosts(llama_profile()).layer(0, RankShape(samples, 0, sequence))
    assert price.forward_ns == pytest.approx(expected, abs=40)


def test_outside_the_points_is_widened() -> None:
    # (4, 512) has twice the tokens of the largest point: 76,734,035.2 ns, and 15 %
    price = KindCosts(llama_profile()).layer(0, RankShape(4, 0, 512))
    assert price.forward_ns == pytest.approx(76_734_035.2 * 1.15, rel=1e-5)
    assert price.provenance == "shrunk"


def test_saved_bytes_are_exact() -> None:
    costs = KindCosts(llama_profile())
    assert costs.layer(0, RankShape(2, 0, 256)).saved_bytes == 9_916_416
    for samples, sequence in [(3, 64), (2, 300), (5, 100), (2, 511)]:
        assert costs.layer(0, RankShape(samples, 0, sequence)).saved_bytes == llama_saved_bytes(samples, sequence)


def test_measured_point_gives_itself() -> None:
    costs = KindCosts(make_profile(layer_forward_ns=[1_000_003], constant_ns=77))
    price = costs.layer(0, RankShape(2, 0, 16))
    assert (price.forward_ns, price.provenance) == (77 + 1_000_003, "measured")  # 2 samples of half the tokens


def test_between_points_is_interpolated() -> None:
    price = KindCosts(make_profile(layer_forward_ns=[1_000_000])).layer(0, RankShape(3, 0, 32))
    assert (price.forward_ns, price.saved_bytes, price.provenance) == (3_000_000, 12_000, "interpolated")


@pytest.mark.parametrize("shape", [RankShape(17, 0, 32), RankShape(1, 0, 65), RankShape(1, 0, 7)])
def test_too_far_outside_is_refused_by_name(shape: RankShape) -> None:
    with pytest.raises(PriceError, match=r"layer 1 \('layers.1'\) on 'cpu-a'.*more than 2x away") as found:
        KindCosts(make_profile()).layer(1, shape)
    assert found.value.code == "no_price"


def test_unknown_degree_is_refused() -> None:
    with pytest.raises(PriceError, match="tensor 2"):
        KindCosts(make_profile()).layer(0, RankShape(1, 0, 32, tensor=2))


def test_out_of_memory_bounds() -> None:
    profile = make_profile(layer_forward_ns=[1_000])
    points = list(profile.measurements[0].points)
    points[-1] = points[-1].model_copy(update={"status": "oom", "forward": None, "backward": None})
    measurement = profile.measurements[0].model_copy(update={"points": tuple(points)})
    costs = KindCosts(profile.model_copy(update={"measurements": (measurement,)}))
    assert costs.layer(0, RankShape(8, 0, 16)).forward_ns > 0
    with pytest.raises(PriceError, match="ran out of memory at 8 x 32"):
        costs.layer(0, RankShape(8, 0, 32))


def test_slices_of_a_sequence_add_up() -> None:
    """Attention of a slice [s, e) grows with e^2 - s^2: no constant, so three slices cost the whole."""
    profile = llama_profile()
    costs = KindCosts(profile)
    whole = costs.layer(0, RankShape(2, 0, 512)).forward_ns
    parts = [costs.layer(0, RankShape(2, a, b)).forward_ns for a, b in [(0, 128), (128, 256), (256, 512)]]
    assert sum(parts) - 2 * 2_100_000 == pytest.approx(whole, rel=1e-6)


def test_memory_is_never_below_a_point_that_does_not_fit_the_formula() -> None:
    profile = llama_profile()
    points = [
        point.model_copy(update={"saved_bytes": (point.saved_bytes or 0) + (1 + number % 3) * 10_007})
        for number, point in enumerate(profile.measurements[0].points)
    ]
    measurement = profile.measurements[0].model_copy(update={"points": tuple(points)})
    bent = profile.model_copy(update={"measurements": (measurement,)})
    near = KindCosts(bent)
    for point in points:
        # one token more than the point: the fit counts, and must not be below the point itself
        shape = RankShape(point.micro_batch_size, 0, point.sequence_length + 1)
        assert near.layer(0, shape).saved_bytes >= (point.saved_bytes or 0)


def test_fit_is_non_negative_and_on_relative_error() -> None:
    # values fall with the second term: its coefficient is 0, not negative; both points weigh alike
    fit = fit_terms([(1.0, 0.0), (1.0, 1.0)], [2.0, 1.0])
    # minimise (x/2 - 1)^2 + (x - 1)^2: x = (1/2 + 1) / (1/4 + 1) = 1.2
    assert fit.coefficients == pytest.approx((1.2, 0.0))
    assert fit.worst_under_share == pytest.approx(0.4)


def test_one_point_gives_a_line_through_it() -> None:
    fit = fit_terms([(100.0, 1.0, 5.0)], [50.0])
    assert fit.coefficients == pytest.approx((0.5, 0.0, 0.0))


def test_layer_without_weights_has_its_backward_as_input_gradient() -> None:
    profile = make_profile(layer_forward_ns=[1_000], num_params=0)
    price = KindCosts(profile).layer(0, RankShape(1, 0, 32))
    assert (price.backward_ns, price.backward_input_ns, price.backward_weight_ns) == (2_000, 2_000, 0)


def test_rounding_up_does_not_add_a_byte_for_float_noise() -> None:
    value = KindCosts(make_profile(saved_bytes=32_000_000)).layer(0, RankShape(3, 0, 32)).saved_bytes
    assert value == 96_000_000
