"""What a profile refuses, one rule a test; each edit breaks one thing of a good profile."""

import json
import time

import pytest

from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from tests.helpers.documents import digest_of, make_profile, make_statistics
from tests.helpers.edits import edited, json_of, refusal, without

GOOD = json_of(make_profile(layer_forward_ns=(1_000, 2_000, 3_000, 4_000)))
POINT = "/measurements/0/points/0"
_POINT = GOOD["measurements"][0]["points"][0]  # type: ignore[index]


def _read(value: dict[str, object]) -> ModelProfile:
    return read_document(json.dumps(value).encode(), ModelProfile)


@pytest.mark.parametrize(
    ("pointer", "value", "code"),
    [
        ("/layers", [], "empty_model"),
        (f"{POINT}/forward/min_ns", -1, "range"),
        (f"{POINT}/forward/p90_ns", 10**15 + 1, "range"),
        (f"{POINT}/forward/min_ns", -0.0, "type"),
        (f"{POINT}/forward/min_ns", 5e-324, "type"),
        (f"{POINT}/forward/min_ns", 1e15, "type"),
        (f"{POINT}/forward/min_ns", 10**9, "range"),  # min above p10
        (f"{POINT}/saved_bytes", 0.5, "type"),
        (f"{POINT}/saved_bytes", -1, "range"),
        (f"{POINT}/saved_bytes", None, "missing"),  # the point is ok: it must say
        (f"{POINT}/status", "fine", "choice"),
        (f"{POINT}/provenance", "guessed", "pattern"),
        (f"{POINT}/micro_batch_size", 0, "range"),
        (f"{POINT}/micro_batch_size", -1, "range"),
        ("/device/usable_bytes", 0, "range"),
        ("/device/peak_flops_per_s", 0, "range"),
        ("/device/wall_over_cpu_p50", "1", "type"),
        ("/layers/1/id", "layers.0", "duplicate_id"),
        ("/layers/1/param_bytes", -4, "range"),
        ("/layers/1/causal", 1, "type"),
        ("/layers/1/fingerprint", digest_of("nobody measured this"), "profile_incomplete"),
        ("/layers/1/fingerprint", "A" * 64, "pattern"),
        ("/layers/1/fingerprint", "a" * 64 + "\n", "pattern"),
        ("/model/reads", [{"layer": 2, "sources": [1, 4]}], "dangling_edge"),
        ("/model/reads", [{"layer": 4, "sources": [0]}], "dangling_edge"),
        ("/model/reads", [{"layer": 2, "sources": [3]}], "cycle"),
        ("/model/reads", [{"layer": 2, "sources": [2]}], "cycle"),
        ("/model/reads", [{"layer": 2, "detached": [2]}], "cycle"),
        ("/model/reads", [{"layer": 2, "sources": [0, 0]}], "graph_order"),
        ("/model/reads", [{"layer": 2, "sources": [0], "detached": [0]}], "graph_order"),
        ("/model/reads", [{"layer": 3, "sources": [0]}, {"layer": 2, "sources": [0]}], "graph_order"),
        ("/model/reads", [{"layer": 2, "sources": [0]}, {"layer": 2, "sources": [1, 0]}], "graph_order"),
        ("/model/reads", [{"layer": 2, "sources": [1]}], "graph_default"),
        ("/model/reads", [{"layer": 0}], "graph_default"),
        ("/model/tied", [{"layers": [0, 4], "parameter_names": ["w"]}], "dangling_edge"),
        ("/model/tied", [{"layers": [0], "parameter_names": ["w"]}], "too_short"),
        ("/model/tied", [{"layers": [3, 0], "parameter_names": ["w"]}], "graph_tied"),
        ("/model/tied", [{"layers": [0, 0], "parameter_names": ["w"]}], "graph_tied"),
        ("/model/tied", [{"layers": [0, 1], "parameter_names": ["w"]}] * 2, "graph_tied"),
        ("/model/tied", [{"layers": [0, 3], "parameter_names": []}], "too_short"),
        ("/statistic", "mean", "choice"),
        ("/overheads/per_instruction_ns", -1, "range"),
        ("/schema", "profile/2", "schema"),
    ],
)
def test_a_broken_profile(pointer: str, value: object, code: str) -> None:
    assert refusal(edited(GOOD, pointer, value), ModelProfile).code == code


@pytest.mark.parametrize(
    "reads",
    [
        [{"layer": 2, "sources": [0, 1]}],  # a skip
        [{"layer": 2, "detached": [1]}],  # a local loss
        [{"layer": 2}],  # a second tower reads the batch
        [{"layer": 1}, {"layer": 3, "sources": [1, 2]}],
    ],
)
def test_reads_that_are_accepted(reads: list[dict[str, object]]) -> None:
    assert len(_read(edited(GOOD, "/model/reads", reads)).model.reads) == len(reads)


def test_all_times_zero() -> None:
    value = json_of(make_profile(layer_forward_ns=(1,), micro_batch_sizes=(1,), sequence_lengths=(32,)))
    for operation in ("forward", "backward"):
        for name in ("min_ns", "p10_ns", "p25_ns", "median_ns", "mean_ns", "p90_ns"):
            value = edited(value, f"{POINT}/{operation}/{name}", 0)
    assert refusal(value, ModelProfile).code == "all_zero"


@pytest.mark.parametrize(
    ("backward_ns", "part_ns", "code"),
    [
        (2_000_000, 0, "all_zero"),
        (2_000_000, 1, "implausible_unit"),
        (2_000_000, 999, "implausible_unit"),  # 1,998 ns together: 1/1001 of B
        (2_000_000, 1_000, None),
        (2_000, 1_000_000, None),
        (2_000, 1_000_001, "implausible_unit"),
        (0, 1, None),  # nothing to compare with
    ],
)
def test_the_parts_of_a_backward_are_of_its_order(backward_ns: int, part_ns: int, code: str | None) -> None:
    """I and W of ``part_ns`` each beside a B of ``backward_ns``."""
    value = json_of(make_profile(layer_forward_ns=(1_000,), micro_batch_sizes=(1,), sequence_lengths=(32,)))
    for name in ("min_ns", "p10_ns", "p25_ns", "median_ns", "mean_ns", "p90_ns"):
        value = edited(value, f"{POINT}/backward/{name}", backward_ns)
    part = json_of(make_statistics(part_ns))
    value = edited(edited(value, f"{POINT}/backward_input", part), f"{POINT}/backward_weight", part)
    if code is None:
        assert _read(value).digest
    else:
        assert refusal(value, ModelProfile).code == code


def test_one_time_above_zero_is_enough() -> None:
    assert _read(json_of(make_profile(layer_forward_ns=(0, 1_000)))).layers


def test_a_missing_and_an_extra_measurement() -> None:
    missing = refusal(without(GOOD, "/measurements/1"), ModelProfile)
    assert (missing.code, "'layers.1'" in missing.message) == ("profile_incomplete", True)
    extra = edited(GOOD, "/measurements/-", {**GOOD["measurements"][0], "fingerprint": digest_of("x")})  # type: ignore[index]
    assert refusal(extra, ModelProfile).code == "profile_extra_layer"
    twice = edited(GOOD, "/measurements/-", GOOD["measurements"][0])  # type: ignore[index]
    assert refusal(twice, ModelProfile).code == "duplicate_id"


def test_a_point_lacks_what_its_status_promises() -> None:
    error = refusal(edited(GOOD, f"{POINT}/peak_forward_bytes", None), ModelProfile)
    assert error.message == "a point with status ok lacks peak_forward_bytes"
    assert error.pointer == POINT


def test_out_of_memory_is_a_point_without_times() -> None:
    names = ("forward", "backward", "saved_bytes", "input_bytes", "output_bytes")
    value = edited(GOOD, f"{POINT}/status", "oom")
    for name in (*names, "peak_forward_bytes", "peak_backward_bytes"):
        value = edited(value, f"{POINT}/{name}", None)
    profile = _read(value)
    assert len(list(profile.usable_points(0))) == len(profile.points_of(0)) - 1


def test_two_points_of_one_shape() -> None:
    points = GOOD["measurements"][0]["points"]  # type: ignore[index]
    error = refusal(edited(GOOD, "/measurements/0/points/-", points[0]), ModelProfile)
    assert (error.code, "'layers.0'" in error.message) == ("duplicate_id", True)


@pytest.mark.parametrize(
    ("saved", "accepted"),
    [
        ([100, 200, 400, 800], True),
        ([100, 200, 197, 800], True),  # 1.5 % less: allocators round
        ([1000, 1000, 979, 2000], False),  # 2.1 % less
        ([100, 200, 400, 90], False),
        ([400, 100, 390, 800], False),  # below its smaller neighbour, and the third is within 2.5 % of the first
        ([0, 0, 0, 0], True),
    ],
)
def test_memory_does_not_fall_as_the_micro_batch_grows(saved: list[int], accepted: bool) -> None:
    """Points are (micro-batch, sequence): (1,16) (1,32) (2,16) (2,32) ...: the even ones are of sequence 16."""
    value = GOOD
    for number, size in enumerate(saved):
        value = edited(value, f"/measurements/0/points/{2 * number}/saved_bytes", size)
    if accepted:
        assert _read(value).digest
    else:
        error = refusal(value, ModelProfile)
        assert error.code == "non_monotone"
        assert "'layers.0'" in error.message


def test_memory_may_fall_between_sequences() -> None:
    """A longer sequence with less memory is another shape, not a larger micro-batch."""
    value = edited(GOOD, f"{POINT}/saved_bytes", 2_100)  # (1,16); (1,32) keeps 4,000, (2,16) 4,000
    assert _read(edited(value, "/measurements/0/points/1/saved_bytes", 1)).digest


@pytest.mark.parametrize(
    ("peak", "accepted"),
    [
        # 10^4 FLOP a token, 16 tokens in 1000 x 16/32 = 500 ns: 3.2e11 FLOP/s
        (10**11, False),  # 3.2x the peak
        (15 * 10**10, False),  # 2.13x
        (16 * 10**10, True),  # 2x
        (3 * 10**11, True),
    ],
)
def test_a_wrong_unit_shows_as_an_impossible_rate(peak: int, accepted: bool) -> None:
    value = json_of(make_profile(layer_forward_ns=(1_000,), micro_batch_sizes=(1,), sequence_lengths=(16,)))
    value = edited(edited(value, "/layers/0/forward_flops_per_token", 10**4), "/device/peak_flops_per_s", peak)
    if accepted:
        assert _read(value).digest
    else:
        assert refusal(value, ModelProfile).code == "implausible_unit"


def test_a_rate_far_below_the_peak_is_a_wrong_unit() -> None:
    value = json_of(make_profile(layer_forward_ns=(10**12,), micro_batch_sizes=(1,), sequence_lengths=(32,)))
    value = edited(edited(value, "/layers/0/forward_flops_per_token", 1), "/device/peak_flops_per_s", 10**12)
    assert refusal(value, ModelProfile).code == "implausible_unit"  # 32 FLOP in 1000 s of 1e12 FLOP/s


def test_frozen_layers_are_accepted() -> None:
    value = json_of(make_profile(layer_forward_ns=(1_000, 1_000), layer_backward_ns=(0, 2_000)))
    assert _read(edited(value, "/layers/0/num_trained_params", 0)).layers[0].num_trained_params == 0


def test_equal_layers_are_measured_once() -> None:
    profile = make_profile(layer_forward_ns=(1_000,) * 6)
    assert len(profile.measurements) == 2  # layer 0 reads the batch, the others read a layer
    assert profile.points_of(1) is profile.points_of(5)


def test_many_points_are_checked_in_linear_time() -> None:
    """10,000 points of one layer, the most allowed, were 10^8 comparisons: minutes."""
    points = [{**_POINT, "micro_batch_size": size} for size in range(1, 10_001)]
    data = json.dumps(edited(GOOD, "/measurements/0/points", points)).encode()
    start = time.process_time()
    assert len(read_document(data, ModelProfile).points_of(0)) == 10_000
    assert time.process_time() - start < 10  # usually 0.5 s
