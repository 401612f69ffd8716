"""The streams of the families as text, and whole plans from parts."""

from dataclasses import replace

import pytest

from planner.check.structure import check_plan
from planner.errors import PlanError
from planner.problem.options import Family
from planner.problem.profile import Reads
from planner.schedules.build import PlanParts, build_plan
from planner.schedules.families import family_plan
from planner.schedules.family import FamilyShape
from planner.schedules.interleaved import round_sizes
from planner.schedules.placements import v
from tests.helpers.plans import Line, line_plan, make_parts


def test_gpipe_goes_forward_with_all_then_backward_with_all() -> None:
    assert line_plan("gpipe", 2, 3).streams == (
        "0F0 0F1 0F2 0B0 0B1 0B2 0G0 0U0",
        "1F0 1F1 1F2 1B0 1B1 1B2 1G0 1U0",
    )


def test_breadth_first_takes_its_stages_in_order_and_back() -> None:
    assert line_plan("gpipe", 2, 2, legs=2).streams[0] == "0F0 0F1 2F0 2F1 2B0 2B1 2G0 0B0 0B1 0G0 0U0 2U0"


def test_1f1b() -> None:
    assert line_plan("1f1b", 3, 4).streams == (
        "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3 0G0 0U0",
        "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3 1G0 1U0",
        "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2G0 2U0",
    )


def test_1f1b_with_fewer_micro_batches_than_groups() -> None:
    assert line_plan("1f1b", 3, 1).streams[0] == "0F0 0B0 0G0 0U0"


def test_1f1b_with_slices() -> None:
    """p = 2, m = 2, 2 slices: forward slices in order, backward in reverse, one more forward in the warm-up."""
    assert line_plan("1f1b", 2, 2, num_slices=2).streams == (
        "0F0.0 0F0.1 0F1.0 0B0.1 0F1.1 0B0.0 0B1.1 0B1.0 0G0 0U0",
        "1F0.0 1F0.1 1B0.1 1F1.0 1B0.0 1F1.1 1B1.1 1B1.0 1G0 1U0",
    )


def test_interleaved() -> None:
    """p = 2, two stages a group, m = 3: one round of 3."""
    streams = line_plan("interleaved", 2, 3, legs=2).streams
    assert streams[0] == "0F0 0F1 0F2 2F0 2F1 2F2 2B0 2B1 2B2 2G0 0B0 0B1 0B2 0G0 0U0 2U0"
    assert streams[1] == "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 3G0 1B0 1B1 1B2 1G0 1U0 3U0"


def test_rounds_are_of_near_equal_size() -> None:
    found = [round_sizes(m, p) for p, m in ((4, 9), (4, 11), (4, 5), (8, 18), (4, 3))]
    assert found == [[5, 4], [6, 5], [5], [9, 9], [3]]


@pytest.mark.parametrize("num_groups", range(1, 6))
def test_interleaved_with_unequal_numbers_of_stages_is_legal(num_groups: int) -> None:
    """Any number of stages from p to 3p: the last leg may be short."""
    for num_stages in range(num_groups, 3 * num_groups + 1):
        for num_micro_batches in (1, 2, num_groups, 2 * num_groups + 1):
            parts = make_parts([Line(num_groups, num_stages, num_micro_batches)], num_layers=num_stages)
            plan = build_plan(parts, "interleaved")
            assert [len(plan.stages_of_group(group)) for group in range(num_groups)] == [
                len(range(group, num_stages, num_groups)) for group in range(num_groups)
            ]
            assert check_plan(plan).fault is None


def test_each_route_gets_its_own_streams_and_micro_batches() -> None:
    """Unequal replicas: route 0 has two groups and micro-batches 0, 1; route 1 one group and micro-batch 2."""
    plan = build_plan(make_parts([Line(2, 2, 2), Line(1, 1, 1)], num_layers=2), "1f1b")
    assert plan.streams == ("0F0 0F1 0B0 0B1 0G0 0U0", "1F0 1B0 1F1 1B1 1G0 1U0", "2F2 2B2 2G0 2U0")


def test_a_stage_without_weights_only_hands_the_gradient_back() -> None:
    """Layer 1 of 3 has no weights: I, no G and no U; what stands before it still trains."""
    parts = replace(make_parts([Line(3, 3, 1)], num_layers=3), untrained_layers=frozenset({1}))
    assert build_plan(parts, "gpipe").streams == ("0F0 0B0 0G0 0U0", "1F0 1I0", "2F0 2B0 2G0 2U0")


def test_a_stage_without_weights_behind_a_detached_read_goes_forward_only() -> None:
    """Layer 2 reads layer 1 detached, and nothing trained stands between."""
    parts = make_parts([Line(3, 3, 1)], num_layers=3, reads=(Reads(layer=2, detached=(1,)),))
    found = build_plan(replace(parts, untrained_layers=frozenset({2})), "gpipe").streams
    assert found == ("0F0 0B0 0G0 0U0", "1F0 1B0 1G0 1U0", "2F0")


def test_copies_of_a_weight_agree_on_training() -> None:
    """Route 1 cuts elsewhere: its first stage holds only the frozen layer 0, which stage 0 trains with the rest."""
    parts = make_parts([Line(1, 1, 1), Line(2, 2, 1)], num_layers=2)
    plan = build_plan(replace(parts, untrained_layers=frozenset({0})), "1f1b")
    assert plan.streams == ("0F0 0B0 0G0 0U0", "1F1 1B1 1G0 1U0", "2F1 2B1 2G0 2U0")


@pytest.mark.parametrize(
    ("family", "num_stages", "code", "found"),
    [
        ("1f1b", 4, "family", "4 stages on 2 groups"),
        ("interleaved", 3, None, ""),
        ("gpipe", 3, None, ""),
    ],
)
def test_1f1b_wants_one_stage_a_group(family: Family, num_stages: int, code: str | None, found: str) -> None:
    parts = make_parts([Line(2, num_stages, 2)], num_layers=4)
    if code is None:
        assert check_plan(build_plan(parts, family)).ok
        return
    with pytest.raises(PlanError, match=found) as error:
        build_plan(parts, family)
    assert error.value.code == code


def test_what_a_family_cannot_serve_is_refused() -> None:
    sliced = make_parts([Line(2, 2, 2, num_slices=2)], num_layers=2)
    with pytest.raises(PlanError, match="2 slices, expected 1 for interleaved"):
        build_plan(sliced, "interleaved")
    parts = make_parts([Line(2, 4, 2)], num_layers=4)
    shared = replace(parts, routes=((0, 1), (2, 3)))
    with pytest.raises(PlanError, match="routes 0 and 1 share group 0"):
        build_plan(shared, "gpipe")
    swapped = [
        stage.model_copy(update={"group": group}) for stage, group in zip(parts.stages, (0, 1, 1, 0), strict=True)
    ]
    with pytest.raises(PlanError, match="stage 2 lies on group 1, expected group 0"):
        build_plan(replace(parts, stages=tuple(swapped)), "interleaved")
    with pytest.raises(PlanError, match="route 0 has no micro-batch"):
        build_plan(replace(parts, micro_batches=()), "gpipe")


@pytest.mark.parametrize("counts", [(2, 3), (1, 0), (2,), (3, 2, 1)])
def test_warm_up_counts_that_would_block_are_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(PlanError, match="counts that do not rise") as error:
        line_plan("1f1b", 2, 4, forwards_first=counts)
    assert error.value.code == "warm_up"


@pytest.mark.parametrize("counts", [(1, 1, 1), (2, 1, 1), (2, 2, 2), (3, 3, 1), (9, 9, 9)])
def test_warm_up_counts_that_do_not_rise_end(counts: tuple[int, ...]) -> None:
    plan = line_plan("1f1b", 3, 5, forwards_first=counts)
    assert check_plan(plan).ok
    for stream, count in zip(plan.streams, counts, strict=True):
        words = stream.split(" ")
        assert sum("F" in word for word in words[: next(n for n, word in enumerate(words) if "B" in word)]) == min(
            count, 5
        )


def test_warm_up_counts_belong_to_1f1b() -> None:
    with pytest.raises(PlanError, match="warm-up counts given for gpipe"):
        line_plan("gpipe", 2, 2, forwards_first=(2, 1))


def v_parts(num_groups: int, num_micro_batches: int) -> PlanParts:
    """2p stages down and up, one layer a stage."""
    parts = make_parts([Line(num_groups, 2 * num_groups, num_micro_batches)], num_layers=2 * num_groups)
    stages = [
        stage.model_copy(update={"group": group}) for stage, group in zip(parts.stages, v(num_groups), strict=True)
    ]
    return replace(parts, stages=tuple(stages))


@pytest.mark.parametrize("family", ["zb-v", "v-half", "v-min", "dualpipe-v"])
def test_families_of_the_registry_on_a_v(family: str) -> None:
    """The streams are those of the abstract plan: same shape, same order."""
    plan = build_plan(v_parts(3, 7), family)
    assert check_plan(plan).ok
    assert plan.streams == family_plan(family, FamilyShape(3, 7)).streams


def test_families_of_the_registry_on_replicas() -> None:
    """Two routes on own groups; route 1 has micro-batches 3 and 4."""
    plan = build_plan(make_parts([Line(2, 2, 3), Line(1, 1, 2)], num_layers=2), "zb-h1")
    assert check_plan(plan).ok
    assert plan.streams[1] == "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2 1G0 1U0"
    assert plan.streams[2] == "2F3 2I3 2W3 2F4 2I4 2W4 2G0 2U0"


def test_a_split_family_gives_each_stage_the_backward_that_it_needs() -> None:
    """Layer 1 without weights hands gradient back; with layer 0 frozen too there is nobody to hand it to."""
    parts = replace(make_parts([Line(3, 3, 2)], num_layers=3), untrained_layers=frozenset({1}))
    assert build_plan(parts, "zb-h1").streams[1] == "1F0 1F1 1I0 1I1"
    frozen = replace(parts, untrained_layers=frozenset({0, 1}))
    assert build_plan(frozen, "zb-h1").streams[:2] == ("0F0 0F1", "1F0 1F1")


def test_the_placement_must_be_that_of_the_family() -> None:
    parts = make_parts([Line(3, 3, 4)], num_layers=3)
    with pytest.raises(PlanError, match="zb-v has 1 route and 6 stages on 3 groups, expected 1 route, 3 stages"):
        build_plan(parts, "zb-v")
    with pytest.raises(PlanError, match="found family 'nothing'"):
        build_plan(parts, "nothing")
    with pytest.raises(PlanError, match="stage 3 lies on group 0, expected group 2"):
        build_plan(make_parts([Line(3, 6, 4)], num_layers=6), "v-half")
    with pytest.raises(PlanError, match="2 slices, expected 1 for zb-h1"):
        build_plan(make_parts([Line(3, 3, 4, num_slices=2)], num_layers=3), "zb-h1")


def test_what_a_family_leaves_open_is_fixed_by_the_parts() -> None:
    """Stages of a loop, slices of one; updates of an asynchronous stream keep their numbers."""
    loop = make_parts([Line(2, 5, 4)], num_layers=5)
    assert build_plan(loop, "breadth-first").streams == build_plan(loop, "gpipe").streams
    line = make_parts([Line(2, 2, 2), Line(1, 1, 2)], num_layers=2)
    assert build_plan(line, "seq1f1b").streams == build_plan(line, "1f1b").streams
    plan = build_plan(line, "1f1b-asynchronous")
    assert check_plan(plan).ok
    assert plan.streams[2] == "2F2 2B2 2G0 2U0 2F3 2B3 2G1 2U1"
