"""Is there a cut whose stages all take at most T? A small integer programme that does not grow with the device count.

Positions count stages from the end; ``caps[j][o]`` is how many layers option o can hold at position j within T and
memory. One option at most a position, used positions contiguous, devices of each kind not exceeded, all layers held:

    sum_o x[j,o] <= 1;  sum_o x[j+1,o] <= sum_o x[j,o];  sum size_o x[j,o] <= count_k;  sum caps[j,o] x[j,o] >= L

With equal layers it decides the bottleneck exactly; with caps over the cheapest windows of unequal layers it is a
relaxation, so that "infeasible" proves that no cut has a bottleneck up to T. Solved by CP-SAT: one worker, a seed and a
deterministic limit give the same answer every time; equal devices appear as counts, never as individuals.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from planner.search.partition import PartitionProblem

__all__ = [
    "Bisection",
    "CapacityOption",
    "CapacityProgram",
    "EqualLayers",
    "Placed",
    "bisect_bottleneck",
    "place_layers",
    "window_program",
]

Status = Literal["feasible", "infeasible", "unknown"]
_DETERMINISTIC_LIMIT = 2.0  # of CP-SAT's own clock, for one T


class CapacityOption(NamedTuple):
    """Kind and number of devices of an option."""

    kind: int
    size: int


class CapacityProgram(NamedTuple):
    """The programme at one T."""

    options: tuple[CapacityOption, ...]
    counts: tuple[int, ...]
    num_layers: int
    caps: tuple[tuple[int, ...], ...]  # [position from the end][option]


class Placed(NamedTuple):
    """``options``: of each used position from the end, with the layers that it can hold."""

    status: Status
    options: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class EqualLayers:
    """``num_layers`` equal layers and a head on the last stage. One entry an option; bytes of all its devices."""

    options: tuple[CapacityOption, ...]
    counts: tuple[int, ...]
    num_layers: int
    num_positions: int
    num_micro_batches: int
    border_ns: int
    layer_ns: tuple[int, ...]
    usable_bytes: tuple[int, ...]
    state_bytes: int
    saved_bytes: int
    head_layers: int  # the head takes as long as this many layers
    head_bytes: int

    def at(self, limit_ns: int) -> CapacityProgram:
        """``cap[j,o] = min((T - border - head_o) // layer_o, (usable_o - head) // (state + min(j,m) saved), L)``."""
        caps = tuple(
            tuple(self._cap(position, option, limit_ns) for option in range(len(self.options)))
            for position in range(1, self.num_positions + 1)
        )
        return CapacityProgram(self.options, self.counts, self.num_layers, caps)

    def _cap(self, position: int, option: int, limit_ns: int) -> int:
        heads = self.head_layers if position == 1 else 0
        free_ns = limit_ns - self.border_ns - heads * self.layer_ns[option]
        free_bytes = self.usable_bytes[option] - (self.head_bytes if position == 1 else 0)
        need_bytes = self.state_bytes + min(position, self.num_micro_batches) * self.saved_bytes
        return max(0, min(free_ns // self.layer_ns[option], free_bytes // need_bytes, self.num_layers))


def window_program(problem: PartitionProblem, limit_ns: int) -> CapacityProgram:
    """A relaxation of a cut of unequal layers: a stage holds n layers if any n neighbours would fit there."""
    caps = []
    for in_flight in problem.in_flight:
        row = []
        for option in problem.options:
            first, end = np.nonzero((option.time_ns <= limit_ns) & (option.most_in_flight >= in_flight))
            row.append(int((end - first).max(initial=0)))
        caps.append(tuple(max(0, cap) for cap in row))
    options = tuple(CapacityOption(option.kind, option.size) for option in problem.options)
    return CapacityProgram(options, problem.counts, problem.num_layers, tuple(caps))


class _Variables:
    """``at(j, o)``: whether position j has option o."""

    def __init__(self, model: cp_model.CpModel, program: CapacityProgram) -> None:
        self._at = [[model.new_bool_var("") for _ in program.options] for _ in program.caps]

    def at(self, position: int, option: int) -> cp_model.IntVar:
        return self._at[position][option]

    def used(self, position: int) -> cp_model.LinearExprT:
        return sum(self._at[position])


def place_layers(program: CapacityProgram, *, seed: int = 0, workers: int = 1) -> Placed:
    """Whether the layers can be held, and by what."""
    model = cp_model.CpModel()
    variables = _Variables(model, program)
    _one_option_a_position(model, variables, program)
    _positions_are_contiguous(model, variables, program)
    _devices_suffice(model, variables, program)
    _layers_are_held(model, variables, program)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = _DETERMINISTIC_LIMIT
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Placed("infeasible")
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Placed("unknown")
    chosen = [
        (option, caps[option])
        for position, caps in enumerate(program.caps)
        for option in range(len(program.options))
        if solver.boolean_value(variables.at(position, option))
    ]
    return Placed("feasible", tuple(chosen))


def _one_option_a_position(model: cp_model.CpModel, variables: _Variables, program: CapacityProgram) -> None:
    """sum_o x[j,o] <= 1"""
    for position in range(len(program.caps)):
        model.add_at_most_one(variables.at(position, option) for option in range(len(program.options)))


def _positions_are_contiguous(model: cp_model.CpModel, variables: _Variables, program: CapacityProgram) -> None:
    """sum_o x[j+1,o] <= sum_o x[j,o]"""
    for position in range(len(program.caps) - 1):
        model.add(variables.used(position + 1) <= variables.used(position))


def _devices_suffice(model: cp_model.CpModel, variables: _Variables, program: CapacityProgram) -> None:
    """sum over options of kind k and positions of size_o x[j,o] <= count_k"""
    for kind, count in enumerate(program.counts):
        used = [
            option.size * variables.at(position, number)
            for position in range(len(program.caps))
            for number, option in enumerate(program.options)
            if option.kind == kind
        ]
        model.add(sum(used) <= count)


def _layers_are_held(model: cp_model.CpModel, variables: _Variables, program: CapacityProgram) -> None:
    """sum caps[j,o] x[j,o] >= L"""
    held = [
        cap * variables.at(position, option)
        for position, caps in enumerate(program.caps)
        for option, cap in enumerate(caps)
    ]
    model.add(sum(held) >= program.num_layers)


class Bisection(NamedTuple):
    """``proven_ns``: no cut has a bottleneck up to there. ``found_ns``: least T that was placed, if any."""

    proven_ns: int
    found_ns: int | None
    placed: Placed


def bisect_bottleneck(
    program_at: Callable[[int], CapacityProgram], *, low_ns: int, high_ns: int, seed: int = 0, tolerance: float = 0.0
) -> Bisection:
    """The least feasible T in (low, high], ``low_ns`` being proven infeasible; until both ends are close enough.

    What the solver leaves open counts as neither: the search goes on above, the proof stays below.
    """
    low, found_ns, best = low_ns, None, Placed("unknown")
    proven_ns, top_ns = low_ns, high_ns + 1
    while top_ns - low > 1 and top_ns - low > tolerance * low:
        middle_ns = (low + top_ns) // 2
        placed = place_layers(program_at(middle_ns), seed=seed)
        if placed.status == "feasible":
            found_ns, best, top_ns = middle_ns, placed, middle_ns
        else:
            low = middle_ns
            if placed.status == "infeasible":
                proven_ns = middle_ns
    return Bisection(proven_ns, found_ns, best)
