"""The last page of a search: a plan gets its prediction and its provenance, and is checked like anybody else's."""

from typing import NamedTuple

import ortools

from planner import __version__
from planner.check.problem import check_against
from planner.plan.answer import Limit
from planner.plan.plan import Plan, Prediction, Provenance
from planner.problem.problem import Problem
from planner.search.contest import Made
from planner.simulate.simulate import require_in_range

__all__ = ["Origin", "finished_plan"]


class Origin(NamedTuple):
    """How a plan was found, and the bound of any schedule that stands beside it."""

    family: str
    method: str | None
    bound_ns: int
    seed: int
    limit: Limit
    search_ns: int


def finished_plan(made: Made, problem: Problem, origin: Origin) -> Plan:
    """The plan as it leaves the search. Raises ``PriceError`` (range) where no document can state its step."""
    require_in_range(made.timeline)
    step_ns = made.timeline.step_ns
    assert origin.bound_ns <= step_ns, f"bound {origin.bound_ns} ns above a step of {step_ns} ns"
    prediction = Prediction(
        step_ns=step_ns,
        bound_ns=origin.bound_ns,
        bound_model="any_schedule",
        bubble=made.timeline.bubble,
        peak_bytes=made.timeline.peak_bytes or (),
        memory_limit_bytes=made.prices.limit_bytes,
        costs=made.prices.costs,
    )
    provenance = Provenance(
        planner=__version__,
        family=origin.family,
        method=origin.method,
        solver=f"ortools {ortools.__version__}",
        seed=origin.seed,
        limit=origin.limit,
        search_ns=origin.search_ns,
        profiles=tuple(sorted(profile.digest for profile in problem.profiles)),
    )
    plan = made.plan.model_copy(update={"prediction": prediction, "provenance": provenance})
    verdict = check_against(plan, problem)
    assert verdict.fault is None, f"the search wrote a plan that is refused: {verdict.fault}"
    return plan
