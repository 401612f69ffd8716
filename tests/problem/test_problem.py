"""Profiles, cluster and workload belong together, and what names a problem and its answer."""

from collections.abc import Callable

import pytest

from planner.errors import ProblemError
from planner.problem.options import Constraints, LayerPin, SearchOptions
from planner.problem.problem import Problem, check_options, request_digest
from planner.problem.profile import ModelProfile, Reads
from tests.helpers.documents import make_cluster, make_profile, make_workload

FAST = make_profile(kind="fast")
SLOW = make_profile(kind="slow", layer_forward_ns=(2_000_000,) * 4)
CLUSTER = make_cluster(("fast", 1, 2), ("slow", 1, 2))


def _problem(*profiles: ModelProfile) -> Problem:
    return Problem(profiles=profiles, cluster=CLUSTER, workload=make_workload())


@pytest.mark.parametrize(
    ("profiles", "code", "pointer"),
    [
        ((), "missing", "/profiles"),
        ((FAST,), "no_profile_for_device", "/cluster/node_groups/1"),
        ((FAST, FAST), "duplicate_id", "/profiles/1/device/kind"),
        ((FAST, SLOW, make_profile(kind="other")), "no_profile_for_device", "/profiles/2/device/kind"),
        ((FAST, make_profile(kind="slow", model="another")), "model_mismatch", "/profiles/1/model/fingerprint"),
        ((FAST, make_profile(kind="slow", tied=[(0, 3)])), "model_mismatch", "/profiles/1/model/tied"),
        (
            (FAST, make_profile(kind="slow", reads=[Reads(layer=3, sources=(0, 2))])),
            "model_mismatch",
            "/profiles/1/model/reads",
        ),
        (
            (FAST, make_profile(kind="slow", layer_forward_ns=(1_000,) * 3)),
            "profile_incomplete",
            "/profiles/1/layers",
        ),
        (
            (FAST, make_profile(kind="slow", layer_forward_ns=(1_000,) * 5)),
            "profile_extra_layer",
            "/profiles/1/layers/4",
        ),
        ((make_profile(kind="fast", precision="bf16"), SLOW), "precision_mismatch", "/profiles/0/model/precision"),
    ],
)
def test_profiles_that_do_not_belong_together(profiles: tuple[ModelProfile, ...], code: str, pointer: str) -> None:
    with pytest.raises(ProblemError) as caught:
        _problem(*profiles)
    assert (caught.value.code, caught.value.pointer) == (code, pointer)


def test_an_incomplete_profile_names_the_layer_and_the_kind() -> None:
    with pytest.raises(ProblemError, match=r"the profile of 'slow' lacks layer 'layers\.3'"):
        _problem(FAST, make_profile(kind="slow", layer_forward_ns=(1_000,) * 3))


def test_the_order_of_profiles_does_not_matter() -> None:
    one, other = _problem(FAST, SLOW), _problem(SLOW, FAST)
    assert one.digest == other.digest
    assert one.profile_of("slow") is SLOW
    assert one.num_layers == 4


@pytest.mark.parametrize(
    ("constraints", "code", "pointer"),
    [
        (Constraints(num_stages=5), "stages_gt_layers", "/constraints/num_stages"),
        (Constraints(pins=(LayerPin(layer=4, device_kind="fast"),)), "dangling_edge", "/constraints/pins/0"),
        (Constraints(pins=(LayerPin(layer=0, device_kind="none"),)), "dangling_edge", "/constraints/pins/0"),
        (Constraints(unused_kinds=("slow", "none")), "dangling_edge", "/constraints/unused_kinds/1"),
    ],
)
def test_options_that_ask_for_the_impossible(constraints: Constraints, code: str, pointer: str) -> None:
    with pytest.raises(ProblemError) as caught:
        check_options(_problem(FAST, SLOW), SearchOptions(constraints=constraints))
    assert (caught.value.code, caught.value.pointer) == (code, pointer)


def test_options_that_can_be_met() -> None:
    pins = (LayerPin(layer=3, device_kind="slow"),)
    check_options(_problem(FAST, SLOW), SearchOptions(constraints=Constraints(num_stages=4, pins=pins)))


def _named(
    problem: Problem | None = None, options: SearchOptions | None = None, planner: str = "1", solver: str = "2"
) -> str:
    return request_digest(problem or _problem(FAST, SLOW), options or SearchOptions(), planner=planner, solver=solver)


@pytest.mark.parametrize(
    "other",
    [
        lambda: _named(planner="2"),
        lambda: _named(solver="1"),
        lambda: _named(options=SearchOptions(seed=1)),
        lambda: _named(options=SearchOptions(mode="fast")),
        lambda: _named(options=SearchOptions(time_limit_ns=10**9)),
        lambda: _named(options=SearchOptions(constraints=Constraints(num_stages=2))),
        lambda: _named(
            problem=Problem(profiles=(FAST, SLOW), cluster=CLUSTER, workload=make_workload(global_batch_size=64))
        ),
    ],
)
def test_whatever_changes_the_answer_changes_its_name(other: Callable[[], str]) -> None:
    assert other() != _named()


def test_equal_requests_have_one_name() -> None:
    assert _named() == _named(problem=_problem(SLOW, FAST), options=SearchOptions(constraints=Constraints()))
