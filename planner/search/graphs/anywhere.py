"""Any parts of a layer graph, contiguous or not, at any moment: a start, local search, then CP-SAT for the proof.

The start is the contiguous plan of a few topological orders, or else the largest layers first. Where neither fits,
CP-SAT decides whether anything does.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from planner.errors import InfeasibleError, SolverError
from planner.search.graphs.contiguous import first_contiguous, least_load_ns, never, nothing_fits
from planner.search.graphs.kernels import Kernels, quickest_kernels
from planner.search.graphs.merged import Merged, merge_classes, with_leaves_joined
from planner.search.graphs.placement import (
    Effort,
    Placement,
    Range,
    Solved,
    first_fit,
    improved,
    placement_of,
    plan_of_placement,
)
from planner.search.graphs.plan import GraphAnswer
from planner.search.graphs.problem import GraphProblem
from planner.units import LARGEST_INTEGER

__all__ = ["AnywhereEffort", "anywhere_answers"]


class AnywhereEffort(NamedTuple):
    """How much of each method. ``deterministic``: of CP-SAT's own clock; 0: none of it, the work is the bound."""

    local: Effort = Effort()
    deterministic: float = 20.0
    workers: int = 1
    seed: int = 0


_EFFORT = AnywhereEffort()


def anywhere_answers(
    problem: GraphProblem,
    *,
    effort: AnywhereEffort = _EFFORT,
    kernels: Kernels | None = None,
    stop: Callable[[], bool] = never,
) -> Iterator[GraphAnswer]:
    """Answers, each at least as good as the one before; the last says what ended the search.

    Raises ``InfeasibleError`` where it is proven that nothing fits, ``SolverError`` (no_plan_in_time) where it is not.
    """
    merged = with_leaves_joined(merge_classes(problem))
    low_ns = least_load_ns(merged)
    best = _start(merged)
    if best is None:
        best = _any_that_fits(merged, low_ns, effort, stop)
    yield GraphAnswer(plan_of_placement(merged, best), low_ns)
    rounds = improved(merged, best, kernels=kernels or quickest_kernels(), effort=effort.local, seed=effort.seed)
    for best in rounds:
        plan = plan_of_placement(merged, best)
        if stop():
            yield GraphAnswer(plan, low_ns, "wall")
            return
        if plan.value_ns == low_ns:
            break
        yield GraphAnswer(plan, low_ns)
    yield _proven(merged, best, low_ns, effort, stop)


def _start(merged: Merged) -> Placement | None:
    plan = first_contiguous(merged.problem)
    return first_fit(merged) if plan is None else placement_of(merged, plan)


def _any_that_fits(merged: Merged, low_ns: int, effort: AnywhereEffort, stop: Callable[[], bool]) -> Placement:
    within = Range(low_ns, LARGEST_INTEGER, None)
    solved = _solve(merged, within, effort, stop)
    if solved.placement is not None:
        return solved.placement
    if solved.status == "infeasible":
        raise InfeasibleError((nothing_fits(merged.problem, "parts"),))
    raise SolverError("no parts that fit were found, nor that there are none", code="no_plan_in_time")


def _proven(
    merged: Merged, best: Placement, low_ns: int, effort: AnywhereEffort, stop: Callable[[], bool]
) -> GraphAnswer:
    """The last answer: better where CP-SAT finds it, and its bound."""
    plan = plan_of_placement(merged, best)
    if plan.value_ns == low_ns:
        return GraphAnswer(plan, low_ns, "optimal")
    if effort.deterministic == 0:
        return GraphAnswer(plan, low_ns, "deterministic")
    solved = _solve(merged, Range(low_ns, plan.value_ns, best), effort, stop)
    assert solved.status != "infeasible", "the best placement is within the range"
    if solved.placement is not None:
        plan = min(plan, plan_of_placement(merged, solved.placement), key=lambda one: one.value_ns)
    if solved.status == "optimal":
        return GraphAnswer(plan, plan.value_ns, "optimal")
    return GraphAnswer(plan, min(solved.bound_ns, plan.value_ns), "wall" if stop() else "deterministic")


def _solve(merged: Merged, within: Range, effort: AnywhereEffort, stop: Callable[[], bool]) -> Solved:
    from planner.search.graphs.program import ProgramEffort, solve_placement  # loads the solver: only where it is used

    return solve_placement(merged, within, ProgramEffort(effort.deterministic, effort.seed, effort.workers), stop=stop)
