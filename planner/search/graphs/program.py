"""Any parts of a layer graph as an integer programme for CP-SAT: the bound, and the proof on small graphs.

    sum_d x[v,d] = 1;  sum_v bytes_v x[v,d] <= limit_d
    cut[e,d] >= x[a,d] - x[b,d]   for the pins a, b of net e that follow each other in a circle
    T >= sum_v time_v x[v,d] + sum_e cost_e cut[e,d]   for every device d

A net with a pin inside and a pin outside has such a pair in its circle, so these few rows say "cut" exactly. T lies
between a proven bound and the best value known, whose placement is the hint. With one worker, a seed and a
deterministic limit the answer is the same every time. ``planner.search.graphs.child`` limits memory.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

from ortools.sat.python import cp_model

from planner.search.graphs.merged import Merged
from planner.search.graphs.placement import Range, Solved, device_kinds

__all__ = ["ProgramEffort", "solve_placement"]

_MOST_BOOLEANS = 500_000  # more would take minutes to build
_ASK_EVERY_S = 0.05


class ProgramEffort(NamedTuple):
    """``deterministic``: of CP-SAT's own clock, about seconds on an idle core."""

    deterministic: float = 20.0
    seed: int = 0
    workers: int = 1


class _Variables:
    """``at(v, d)``: whether vertex v lies on device d."""

    def __init__(self, model: cp_model.CpModel, merged: Merged, within: Range) -> None:
        self.kinds = device_kinds(merged)
        self.largest_ns = model.new_int_var(within.low_ns, within.high_ns, "")
        self._at = [[model.new_bool_var("") for _ in self.kinds] for _ in merged.parts]

    def at(self, vertex: int, device: int) -> cp_model.IntVar:
        return self._at[vertex][device]

    def devices_of(self, vertex: int) -> list[cp_model.IntVar]:
        return self._at[vertex]


def solve_placement(merged: Merged, within: Range, effort: ProgramEffort, *, stop: Callable[[], bool]) -> Solved:
    """The best placement within the range that the effort finds, and a proven bound."""
    if (len(merged.parts) + len(merged.nets)) * merged.problem.num_devices > _MOST_BOOLEANS:
        return Solved("too_large", None, within.low_ns)
    model = cp_model.CpModel()
    variables = _Variables(model, merged, within)
    _every_vertex_lies_somewhere(model, variables, merged)
    _memory_suffices(model, variables, merged)
    _loads_stay_below(model, variables, merged)
    model.minimize(variables.largest_ns)
    if within.hint is not None:
        for vertex, device in enumerate(within.hint):
            for other, literal in enumerate(variables.devices_of(vertex)):
                model.add_hint(literal, other == device)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = effort.workers
    solver.parameters.random_seed = effort.seed
    solver.parameters.max_deterministic_time = effort.deterministic
    return _extract(solver, _solve(solver, model, stop), variables, merged, within)


def _every_vertex_lies_somewhere(model: cp_model.CpModel, variables: _Variables, merged: Merged) -> None:
    """sum_d x[v,d] = 1, on the devices that can run it"""
    times = [merged.times_ns(kind) for kind in range(len(merged.problem.kinds))]
    for vertex in range(len(merged.parts)):
        model.add_exactly_one(variables.devices_of(vertex))
        for device, kind in enumerate(variables.kinds):
            if times[kind][vertex] is None:
                model.add(variables.at(vertex, device) == 0)


def _memory_suffices(model: cp_model.CpModel, variables: _Variables, merged: Merged) -> None:
    """sum_v bytes_v x[v,d] <= limit_d"""
    for device, kind in enumerate(variables.kinds):
        limit_bytes = merged.problem.kinds[kind].memory_bytes
        if limit_bytes is not None and sum(merged.memory_bytes) > limit_bytes:
            used = [size * variables.at(vertex, device) for vertex, size in enumerate(merged.memory_bytes)]
            model.add(sum(used) <= limit_bytes)


def _loads_stay_below(model: cp_model.CpModel, variables: _Variables, merged: Merged) -> None:
    """sum_v time_v x[v,d] + sum_e cost_e cut[e,d] <= T"""
    for device, kind in enumerate(variables.kinds):
        terms: list[cp_model.LinearExprT] = [
            (time or 0) * variables.at(vertex, device) for vertex, time in enumerate(merged.times_ns(kind))
        ]
        if merged.problem.kinds[kind].pays_transfers:
            for pins, cost_ns in merged.nets:
                cut = model.new_bool_var("")
                for a, b in zip(pins, (*pins[1:], pins[0]), strict=True):
                    model.add_bool_or(variables.at(a, device).negated(), variables.at(b, device), cut)
                terms.append(cost_ns * cut)
        model.add(sum(terms) <= variables.largest_ns)


def _solve(solver: cp_model.CpSolver, model: cp_model.CpModel, stop: Callable[[], bool]) -> cp_model.CpSolverStatus:
    """A thread of its own asks ``stop`` meanwhile."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_ASK_EVERY_S):
            if stop():
                solver.stop_search()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        return solver.solve(model)
    finally:
        done.set()
        thread.join()


def _extract(
    solver: cp_model.CpSolver, status: cp_model.CpSolverStatus, variables: _Variables, merged: Merged, within: Range
) -> Solved:
    if status == cp_model.INFEASIBLE:
        return Solved("infeasible", None, within.high_ns + 1)
    bound_ns = max(within.low_ns, round(solver.best_objective_bound)) if status != cp_model.MODEL_INVALID else 0
    assert status != cp_model.MODEL_INVALID, "the model is ours"
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solved("unknown", None, bound_ns)
    placement = tuple(
        next(d for d, literal in enumerate(variables.devices_of(vertex)) if solver.boolean_value(literal))
        for vertex in range(len(merged.parts))
    )
    return Solved("optimal" if status == cp_model.OPTIMAL else "feasible", placement, bound_ns)
