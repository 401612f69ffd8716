"""The worked numbers of the schedule families: messages free unless said, F = U, B = 2 U, U = 1 of the whole group.

Bubble time = step - 3 m U, memory in micro-batches of a group's whole share (A); both are published closed forms
(GPipe, 1F1B 3(p-1); interleaved 3(p-1)/v) or replays by an independent simulator, quoted at each table.
"""

import pytest

from planner.costs.prices import VisitPrice
from planner.plan.plan import Plan
from planner.problem.options import Family
from planner.schedules.build import build_plan
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline
from tests.helpers.plans import Line, line_plan, make_parts, make_prices

U_NS = 1200  # divides by 2, 3 and 4 stages a group
A_BYTES = 240


def unit_timeline(plan: Plan, *, parts: int = 1) -> Timeline:
    """F = U, B = 2 U of a whole group's share, cut into ``parts`` (stages a group x slices)."""
    price = VisitPrice(U_NS // parts, 2 * U_NS // parts, 0, 0, kept_bytes=A_BYTES // parts)
    return simulate(plan, make_prices(plan, lambda stage: price))


def bubble_time(plan: Plan, timeline: Timeline) -> float:
    """In U: the step without the ideal busy time 3 m."""
    return timeline.step_ns / U_NS - 3 * len(plan.micro_batches)


def memory(timeline: Timeline) -> list[float]:
    assert timeline.peak_bytes is not None
    return [found / A_BYTES for found in timeline.peak_bytes]


@pytest.mark.parametrize("family", ["gpipe", "1f1b"])
@pytest.mark.parametrize("num_groups", [1, 2, 4, 8])
@pytest.mark.parametrize("num_micro_batches", [1, 2, 3, 5, 8, 16, 32])
def test_one_stage_a_group_has_the_bubble_3_p_minus_1(family: Family, num_groups: int, num_micro_batches: int) -> None:
    plan = line_plan(family, num_groups, num_micro_batches)
    timeline = unit_timeline(plan)
    assert bubble_time(plan, timeline) == 3 * (num_groups - 1)
    if family == "gpipe":
        assert memory(timeline) == [num_micro_batches] * num_groups
    else:  # group d keeps p-d micro-batches, never more than there are
        assert memory(timeline) == [min(num_groups - group, num_micro_batches) for group in range(num_groups)]


def test_1f1b_on_4_groups_with_8_micro_batches_idles_27_3_percent() -> None:
    timeline = unit_timeline(line_plan("1f1b", 4, 8))
    assert timeline.bubble == pytest.approx(9 / 33)


# section 2: interleaved; m = 2p and m = 4p give the same values; memory of the first and of the last group
@pytest.mark.parametrize("rounds", [2, 4])
@pytest.mark.parametrize(
    ("num_groups", "legs", "bubble", "first", "last"),
    [(4, 2, 4.5, 5.5, 2.5), (8, 2, 10.5, 11.5, 4.5), (4, 4, 2.25, 4.75, 3.25), (8, 4, 5.25, 9.75, 6.25)],
)
def test_interleaved_divides_the_bubble_by_the_stages_of_a_group(
    rounds: int, num_groups: int, legs: int, bubble: float, first: float, last: float
) -> None:
    plan = line_plan("interleaved", num_groups, rounds * num_groups, legs=legs)
    timeline = unit_timeline(plan, parts=legs)
    assert bubble_time(plan, timeline) == bubble
    found = memory(timeline)
    assert (found[0], found[-1]) == (first, last)
    assert found == sorted(found, reverse=True)


# section 3.3: any m; rounds of near-equal size
@pytest.mark.parametrize(
    ("num_groups", "legs", "num_micro_batches", "bubble", "most"),
    [
        (4, 2, 9, 4.5, 6.0),
        (4, 2, 11, 4.5, 6.5),
        (4, 4, 5, 2.25, 5.0),
        (4, 4, 9, 2.25, 5.5),
        (8, 2, 10, 10.5, 10),
        (8, 2, 18, 10.5, 12.0),
        (4, 2, 3, 6.0, 3),
    ],
)
def test_interleaved_with_rounds_of_unequal_size(
    num_groups: int, legs: int, num_micro_batches: int, bubble: float, most: float
) -> None:
    plan = line_plan("interleaved", num_groups, num_micro_batches, legs=legs)
    timeline = unit_timeline(plan, parts=legs)
    assert bubble_time(plan, timeline) == bubble
    assert max(memory(timeline)) == most


def test_interleaved_with_as_many_micro_batches_as_groups_keeps_all_on_the_first() -> None:
    assert memory(unit_timeline(line_plan("interleaved", 4, 4, legs=2), parts=2)) == [4, 4, 3.5, 2.5]


INTERLEAVED_CASES = [(p, v, m) for p in range(2, 7) for v in range(2, 5) for m in range(1, 3 * p + 4)]


def test_interleaved_keeps_its_bubble_for_every_number_of_micro_batches() -> None:
    """p 2..6, v 2..4, m 1..3p+3: all end, and the bubble time is exactly 3(p-1)/v for every m >= p."""
    assert len(INTERLEAVED_CASES) == 225
    for num_groups, legs, num_micro_batches in INTERLEAVED_CASES:
        plan = line_plan("interleaved", num_groups, num_micro_batches, legs=legs)
        found = bubble_time(plan, unit_timeline(plan, parts=legs))
        if num_micro_batches >= num_groups:
            assert found * legs == pytest.approx(3 * (num_groups - 1), abs=1e-9), (num_groups, legs, num_micro_batches)


# section 2: breadth-first, v stages a group: 3(p-1)/v, everything kept
@pytest.mark.parametrize(("num_groups", "legs", "bubble"), [(4, 2, 4.5), (4, 4, 2.25), (8, 2, 10.5), (8, 4, 5.25)])
def test_breadth_first(num_groups: int, legs: int, bubble: float) -> None:
    plan = line_plan("gpipe", num_groups, 2 * num_groups, legs=legs)
    timeline = unit_timeline(plan, parts=legs)
    assert bubble_time(plan, timeline) == bubble
    assert memory(timeline) == [2 * num_groups] * num_groups


# section 2: Seq1F1B and TeraPipe with n equal slices: 3(p-1)/n; Seq1F1B keeps (p-d+n-1)/n micro-batches
@pytest.mark.parametrize("num_groups", [4, 8])
@pytest.mark.parametrize("num_slices", [2, 4])
def test_slices_divide_the_bubble(num_groups: int, num_slices: int) -> None:
    for family in ("1f1b", "gpipe"):
        plan = line_plan(family, num_groups, 2 * num_groups, num_slices=num_slices)
        timeline = unit_timeline(plan, parts=num_slices)
        assert bubble_time(plan, timeline) == 3 * (num_groups - 1) / num_slices
        if family == "gpipe":
            assert memory(timeline) == [2 * num_groups] * num_groups
        else:
            kept = [(num_groups - group + num_slices - 1) / num_slices for group in range(num_groups)]
            assert memory(timeline) == kept


# section 4.5: p = 4, m = 32, a delay on the middle border; steps by warm-up counts and delay
WARM_UPS = {
    (4, 3, 2, 1): (70, 102, 134, 166, 198),
    (5, 4, 2, 1): (70, 72, 94, 116, 138),
    (6, 5, 2, 1): (70, 72, 74, 90, 106),
    (7, 6, 2, 1): (70, 72, 74, 76, 90),
    (8, 7, 2, 1): (70, 72, 74, 76, 78),
    (7, 5, 3, 1): (70, 72, 90, 110, 130),
}


@pytest.mark.parametrize("counts", WARM_UPS)
def test_a_longer_warm_up_hides_a_slow_border(counts: tuple[int, ...]) -> None:
    plan = line_plan("1f1b", 4, 32, forwards_first=counts)
    for delay, step in enumerate(WARM_UPS[counts]):
        prices = make_prices(
            plan, lambda stage: VisitPrice(1, 1, 0, 0), message_ns=lambda a, b, c=delay: c if (a, b) == (1, 2) else 0
        )
        assert simulate(plan, prices).step_ns == step


@pytest.mark.parametrize(
    ("counts", "steps"), [((4, 3, 2, 1), (105, 153, 201, 249, 297)), ((8, 7, 2, 1), (105, 108, 111, 114, 117))]
)
def test_a_longer_warm_up_with_b_twice_f(counts: tuple[int, ...], steps: tuple[int, ...]) -> None:
    """F = 1, B = 2, delays 0, 1.5, 3, 4.5, 6; here in halves."""
    plan = line_plan("1f1b", 4, 32, forwards_first=counts)
    for number, step in enumerate(steps):
        prices = make_prices(
            plan, lambda stage: VisitPrice(2, 4, 0, 0), message_ns=lambda a, b, c=3 * number: c if a == 1 else 0
        )
        assert simulate(plan, prices).step_ns == 2 * step


# section 4.7: replicas of 2 groups (F=3, B=6) and of 3 groups (F=2, B=4), both 1F1B
@pytest.mark.parametrize(("first", "second", "step"), [(6, 6, 63), (4, 8, 60), (5, 7, 54), (4, 6, 48)])
def test_unequal_replicas(first: int, second: int, step: int) -> None:
    parts = make_parts([Line(2, 2, first), Line(3, 3, second)], num_layers=6)
    plan = build_plan(parts, "1f1b")
    prices = make_prices(plan, lambda stage: VisitPrice(3, 6, 0, 0) if stage < 2 else VisitPrice(2, 4, 0, 0))
    assert simulate(plan, prices).step_ns == step


# section 4.2: 1F1B and interleaved under a message delay of F/4, p = 8 (F = 1 of a whole share)
@pytest.mark.parametrize(
    ("num_micro_batches", "line", "legs2"), [(8, 51.5, 42.0), (16, 79.0, 66.0), (32, 134.0, 114.0)]
)
def test_message_delay_of_a_quarter_forward(num_micro_batches: int, line: float, legs2: float) -> None:
    for family, legs, expected in (("1f1b", 1, line), ("interleaved", 2, legs2)):
        plan = line_plan(family, 8, num_micro_batches, legs=legs)
        price = VisitPrice(U_NS // legs, 2 * U_NS // legs, 0, 0)
        prices = make_prices(plan, lambda stage, p=price: p, message_ns=lambda a, b: U_NS // 4)
        assert simulate(plan, prices).step_ns / U_NS == expected
