"""Whole plans: the simulator confirms the step, memory holds, what is no chain is refused."""

import json

import pytest

from planner.check.structure import check_plan
from planner.costs.prices import VisitPrice
from planner.errors import PlanError
from planner.plan.plan import Plan
from planner.problem.reading import read_document
from planner.schedules.families import family_plan
from planner.schedules.family import FamilyShape
from planner.search.synthesis.plans import order_problem, synthesised_plan
from planner.search.synthesis.synthesise import Effort
from planner.simulate.simulate import simulate
from tests.helpers.plans import line_plan, make_prices

EFFORT = Effort(templates=6, shakes=12, moves=400)


def unequal(stage: int) -> VisitPrice:
    """Later stages faster; 10 bytes kept and 3 in passing."""
    forward = 100 - 7 * stage
    return VisitPrice(forward, 2 * forward + 5, forward, forward + 5, kept_bytes=10, backward_transient_bytes=3)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-v", "v-min", "interleaved", "chimera", "bitpipe"])
def test_the_simulated_step_is_that_of_the_order(name: str) -> None:
    """Without sums and updates the plan takes exactly what synthesis says, and never longer than the family."""
    plan = family_plan(name, FamilyShape(4, 8))
    prices = make_prices(plan, unequal, message_ns=lambda sender, receiver: 9)
    problem = order_problem(plan, prices)
    found = synthesised_plan(plan, prices, EFFORT)
    assert found.timeline.step_ns <= simulate(plan, prices).step_ns
    assert found.timeline == simulate(found.plan, prices)
    assert found.timeline.step_ns >= max(problem.group_work_ns)
    assert check_plan(found.plan).ok
    assert (found.plan.stages, found.plan.routes) == (plan.stages, plan.routes)
    split = {i.operation for stream in plan.instructions for i in stream} & {"I", "B"}
    assert {i.operation for stream in found.plan.instructions for i in stream} & {"I", "B"} == split


def test_memory_of_messages_counts() -> None:
    """Peaks of the simulator's walk stay within the limits, which leave room for 1F1B and no more."""
    plan = line_plan("1f1b", 4, 8)
    prices = make_prices(plan, unequal, message_bytes=4, message_ns=lambda sender, receiver: 30)
    peaks = simulate(plan, prices).peak_bytes
    assert peaks is not None
    tight = type(prices)(**{**vars(prices), "limit_bytes": peaks})
    found = synthesised_plan(plan, tight, EFFORT)
    assert found.timeline.peak_bytes is not None
    assert all(peak <= limit for peak, limit in zip(found.timeline.peak_bytes, peaks, strict=True))
    assert found.timeline.step_ns <= simulate(plan, prices).step_ns


def test_a_plan_whose_memory_is_too_small_is_given_back() -> None:
    plan = line_plan("1f1b", 4, 8)
    prices = make_prices(plan, unequal)
    none = type(prices)(**{**vars(prices), "limit_bytes": (1,) * 4})
    found = synthesised_plan(plan, none, EFFORT)
    assert found.method == "given"
    assert found.plan.streams == plan.streams


def test_what_is_no_chain_of_whole_visits_is_refused() -> None:
    for plan in (line_plan("1f1b", 2, 4, num_slices=2), family_plan("1f1b-asynchronous", FamilyShape(2, 4))):
        with pytest.raises(PlanError) as caught:
            order_problem(plan, make_prices(plan, unequal))
        assert caught.value.code == "synthesis"


def test_skips_are_refused() -> None:
    document = line_plan("gpipe", 3, 2).model_dump(mode="json")
    document["graph"]["reads"] = [{"layer": 2, "sources": [0, 1]}]
    plan = read_document(json.dumps(document).encode(), Plan)
    with pytest.raises(PlanError, match="beside a chain"):
        order_problem(plan, make_prices(plan, unequal))
