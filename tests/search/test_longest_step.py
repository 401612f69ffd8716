"""A step that no document can state is refused by its size, never by a broken document."""

import pytest

from planner.errors import PriceError, SolverError
from planner.plan.plan import Plan
from planner.problem.options import SearchOptions
from planner.problem.problem import Problem
from planner.search.child import answered
from planner.search.search import Listener, search
from tests.helpers.documents import make_problem, make_profile, make_workload

OPTIONS = SearchOptions(time_limit_ns=10**9)


def long_steps(per_instruction_ns: int, global_batch_size: int = 8) -> Problem:
    profiles = [make_profile(per_instruction_ns=per_instruction_ns)]
    return make_problem(profiles=profiles, workload=make_workload(global_batch_size=global_batch_size))


def test_a_search_whose_best_step_is_too_long_says_its_length() -> None:
    """One F and one B of 10^15 ns each at the least."""
    with pytest.raises(
        PriceError, match=r"the step takes 2[0-9]{15} ns, expected at most 1000000000000000 ns"
    ) as caught:
        search(long_steps(10**15), OPTIONS)
    assert caught.value.code == "range"


def test_a_plan_that_is_too_long_is_only_passed_on_the_way() -> None:
    """64 samples in micro-batches of one are too long, in micro-batches of more they are not."""
    heard: list[Plan] = []
    answer = search(long_steps(10**14, 64), OPTIONS, Listener(on_incumbent=heard.append))
    assert answer.plan is not None
    assert answer.plan.prediction is not None
    assert answer.plan.prediction.step_ns <= 10**15
    assert all(plan.prediction and plan.prediction.step_ns <= 10**15 for plan in heard)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PriceError("too long", code="range"), "range"),
        (PriceError("no link", code="no_link"), "invalid"),
        (SolverError("late", code="no_plan_in_time"), "no_plan_in_time"),
    ],
)
def test_a_child_passes_the_code_on(error: Exception, code: str) -> None:
    def fail() -> Plan:
        raise error

    failure = answered(fail)
    assert not isinstance(failure, Plan)
    assert failure.code == code
