"""The bound that holds for every order: worked values of the placements, and no order of random plans is below it."""

import random

import pytest

from planner.costs.prices import VisitPrice
from planner.errors import PlanError
from planner.plan.plan import Plan
from planner.schedules.families import FAMILIES
from planner.schedules.family import FamilyShape
from planner.simulate.bounds import order_bound_ns
from planner.simulate.scores import GroupCost, score_family
from planner.simulate.simulate import simulate
from tests.helpers.plans import line_plan, make_prices
from tests.helpers.prices import random_prices
from tests.helpers.random_plans import random_plan
from tests.helpers.streams import plan_with_streams
from tests.helpers.waves import wave_plan

EQUAL = GroupCost(1200, 1200, 1200)


def test_a_line_by_hand() -> None:
    """Two groups, two micro-batches, F 1 and 10, B 2 and 20, messages 3.

    Group 0: starts at 0, works 2 (1 + 2) = 6, nothing after its last B: 6. Group 1: starts at 1 + 3, works 60, after
    its last B come a message and B of group 0: 4 + 60 + 3 + 2 = 69. Longest path: 1 + 3 + 10 + 20 + 3 + 2 = 39.
    """
    plan = line_plan("1f1b", 2, 2)
    prices = make_prices(
        plan,
        lambda stage: VisitPrice(1, 2, 0, 0) if stage == 0 else VisitPrice(10, 20, 0, 0),
        message_ns=lambda a, b: 3,
    )
    assert order_bound_ns(plan, prices) == 69


def test_one_micro_batch_is_bound_by_its_path() -> None:
    """p = 3, m = 1: 3 F and 3 B in a row, 9; a group alone works only 3."""
    plan = line_plan("1f1b", 3, 1)
    assert order_bound_ns(plan, make_prices(plan, lambda stage: VisitPrice(1, 2, 0, 0))) == 9


@pytest.mark.parametrize(
    ("family", "four", "eight"),
    [
        ("1f1b", 9, 21),  # fused line 3(p-1)
        ("gpipe", 9, 21),
        ("zb-h1", 3, 7),  # split line p-1
        ("interleaved", 4.5, 10.5),  # fused loop 3(p-1)/v
        ("zb-v", 1.5, 3.5),  # split V (p-1)/2
        ("chimera", 3, 9),  # fused two lines 3(p/2-1)
        ("bitpipe", 1.5, 4.5),  # fused two V 3(p/4-1/2)
    ],
)
def test_placements(family: str, four: float, eight: float) -> None:
    for num_groups, bubble in ((4, four), (8, eight)):
        score = score_family(FAMILIES[family], FamilyShape(num_groups, 2 * num_groups), EQUAL)
        assert score.measures is not None
        assert score.measures.bound_units == bubble


def test_a_long_wave_is_bound_by_its_two_ends() -> None:
    """Split wave, 4 groups, 2 legs: group 3 starts after 3 F, nothing must follow its W: 3 + 2 m (F + I + W)."""
    plan = wave_plan(4, 8, 16)
    prices = make_prices(plan, lambda stage: VisitPrice(1, 0, 1, 1))
    assert order_bound_ns(plan, prices) == 3 + 2 * 16 * 3


def shuffled(source: random.Random, plan: Plan) -> Plan:
    """Neighbours in the streams change places; G and U stay behind everything."""
    streams = []
    for stream in plan.streams:
        words = stream.split(" ")
        visits = [word for word in words if not set(word) & {"G", "U"}]
        for _ in range(source.randint(1, 4)):
            place = source.randrange(len(visits))
            visits[place : place + 2] = reversed(visits[place : place + 2])
        ready = [word for word in words if "G" in word]
        streams.append(" ".join([*visits, *ready, *(word for word in words if "U" in word)]))
    return plan_with_streams(plan, streams)


def test_no_order_of_a_random_plan_is_below_its_bound() -> None:
    legal = 0
    for seed in range(60):
        source = random.Random(seed)
        plan = random_plan(source)
        prices = random_prices(source, plan)
        assert simulate(plan, prices).step_ns >= order_bound_ns(plan, prices)
        for _ in range(6):
            other = shuffled(source, plan)
            try:
                step_ns = simulate(other, prices).step_ns
            except PlanError:
                continue
            legal += 1
            assert step_ns >= order_bound_ns(plan, prices)
            assert order_bound_ns(other, prices) == order_bound_ns(plan, prices)
    assert legal > 60
