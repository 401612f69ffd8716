"""Profiles for another device kind."""

import pytest

from planner.errors import ProblemError
from planner.problem.profile import ModelProfile
from profiles.scale import scale_profile
from tests.helpers.documents import make_profile, with_split_costs


def with_oom_point(profile: ModelProfile) -> ModelProfile:
    """The profile with its largest shape of every layer out of memory."""
    lost = {"status": "oom", "forward": None, "backward": None}
    return profile.model_copy(
        update={
            "measurements": tuple(
                m.model_copy(update={"points": (*m.points[:-1], m.points[-1].model_copy(update=lost))})
                for m in profile.measurements
            )
        }
    )


def test_times_are_multiplied_and_memory_stays() -> None:
    profile = make_profile(per_instruction_ns=100, update_ns_per_million_params=2_000, micro_batch_sizes=(1, 2))
    scaled = scale_profile(profile, "slow", 2.5)
    for before, after in zip(profile.measurements, scaled.measurements, strict=True):
        for old, new in zip(before.points, after.points, strict=True):
            assert old.forward is not None
            assert new.forward is not None
            assert new.forward.median_ns == round(old.forward.median_ns * 2.5)
            assert new.forward.num_samples == old.forward.num_samples
            assert new.forward.cpu_median_ns is None
            assert new.saved_bytes == old.saved_bytes
            assert new.provenance == "scaled:cpu-a"
    assert scaled.overheads.per_instruction_ns == 250
    assert scaled.overheads.update_ns_per_million_params == 5_000
    assert (scaled.device.kind, scaled.provenance.scaled_from) == ("slow", "cpu-a")
    assert scaled.model == profile.model


def test_the_parts_of_a_split_backward_are_multiplied_too() -> None:
    profile = with_split_costs(make_profile(split=True), forward_ns=7_000, kept_bytes=50, peak_bytes=20)
    old, new = (one.measurements[0].points[0] for one in (profile, scale_profile(profile, "slow", 3)))
    for name in ("backward_input", "backward_weight"):
        assert getattr(new, name).median_ns == 3 * getattr(old, name).median_ns
    assert new.split is not None
    assert (new.split.forward.median_ns, new.split.kept_bytes, new.split.peak_bytes) == (21_000, 50, 20)


def test_the_result_passes_its_own_contract_and_comes_back_when_scaled_back() -> None:
    profile = make_profile()
    there_and_back = scale_profile(scale_profile(profile, "slow", 2), "cpu-a", 0.5)
    assert ModelProfile.model_validate_json(there_and_back.model_dump_json()) == there_and_back
    first, last = profile.measurements[0].points[0].forward, there_and_back.measurements[0].points[0].forward
    assert first is not None
    assert last is not None
    assert last.median_ns == first.median_ns


def test_what_did_not_fit_is_kept_only_without_more_memory() -> None:
    profile = with_oom_point(make_profile(usable_bytes=1000))
    same = scale_profile(profile, "slow", 2)
    less = scale_profile(profile, "slow", 2, 900)
    more = scale_profile(profile, "slow", 2, 2000)
    assert same.measurements[0].points[-1].status == less.measurements[0].points[-1].status == "oom"
    assert all(point.status == "ok" for m in more.measurements for point in m.points)
    assert (more.device.usable_bytes, more.device.total_bytes) == (2000, 2000)


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf"), 1e18])
def test_factors_that_make_no_sense_are_refused(factor: float) -> None:
    with pytest.raises(ProblemError) as caught:
        scale_profile(make_profile(), "slow", factor)
    assert caught.value.code == "range"


def test_the_same_kind_is_refused() -> None:
    with pytest.raises(ProblemError) as caught:
        scale_profile(make_profile(), "cpu-a", 2)
    assert caught.value.code == "same_kind"
