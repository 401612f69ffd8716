"""A plan at its prices as one set of flat arrays that a sweep runs: instructions, and the sums between G and U.

Method: a sum is written as a row of waits, one for each G it needs, the last of which takes the time of the sum; the
gate of an update is a row of waits for its sums. Rows stand behind those of the groups and run by the same rules, so
a sweep knows no sums (docs/plan-contract.md sections 3 and 5). The sums of one piece share a row, and so do the gates
of one stage: update n+1 of a stage is ready later than the gate of its update n, so a row delays nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from planner.costs.prices import PlanPrices
from planner.plan.pieces import Piece, pieces
from planner.plan.plan import Plan
from planner.simulate.arrays import InstructionArrays, Integers

__all__ = ["Numbers", "Program", "make_program"]

Numbers = list[int] | Integers


class Program(NamedTuple):
    """What a sweep runs. Instructions are numbered row by row; the rows of the groups come first.

    ``first``: number of the first instruction of each row, and of all at the end. ``before``: column by column, the
    number that each instruction waits for, else the number of all; ``delay_ns``: how long the message then takes.
    """

    first: Numbers
    duration_ns: Numbers
    before: Numbers
    delay_ns: Numbers

    @property
    def num_instructions(self) -> int:
        return len(self.duration_ns)

    @property
    def num_columns(self) -> int:
        return len(self.before) // max(1, self.num_instructions)

    def as_lists(self) -> "Program":
        """The same in lists, which Python reads faster."""
        return Program(*(np.asarray(numbers).tolist() for numbers in self))

    def as_arrays(self) -> "Program":
        """The same in arrays of 64-bit integers."""
        return Program(*(np.ascontiguousarray(numbers, np.int64) for numbers in self))


def make_program(plan: Plan, arrays: InstructionArrays, prices: PlanPrices) -> Program:
    """The program of a plan, in arrays; ``arrays`` are those of the same plan at the same prices."""
    rows = _SumRows(plan, arrays, prices.sum_ns)
    num_instructions = arrays.first[-1]
    total = num_instructions + len(rows.duration_ns)
    columns = max(1, len(arrays.columns))
    before, delay_ns = np.full((columns, total), total), np.zeros((columns, total), np.int64)
    for number, column in enumerate(arrays.columns):
        before[number, :num_instructions] = np.where(column.before < 0, total, column.before)
        delay_ns[number, :num_instructions] = column.delay_ns
    before[0, num_instructions:] = rows.before
    for update, gate in rows.gate_of_update.items():
        before[0, update] = gate
    (misplaced,) = np.nonzero(arrays.misplaced)
    before[0, misplaced] = misplaced  # its own stage blocks it: it can never start
    return Program(
        first=np.array([*arrays.first[:-1], *rows.first, total]),
        duration_ns=np.concatenate([arrays.duration_ns, np.array(rows.duration_ns, np.int64)]),
        before=before.ravel(),
        delay_ns=delay_ns.ravel(),
    )


class _Update(NamedTuple):
    """G or U number ``number`` of a stage."""

    stage: int
    number: int


class _SumRows:
    """The rows behind those of the groups: one a piece with its sums, then one a set of gates."""

    def __init__(self, plan: Plan, arrays: InstructionArrays, sum_ns: Sequence[int]) -> None:
        self._next = arrays.first[-1]
        self.first: list[int] = []
        self.before: list[int] = []
        self.duration_ns: list[int] = []
        self.gate_of_update: dict[int, int] = {}  # number of a U -> number of its gate
        ready, updates = _numbers(arrays, "G"), _numbers(arrays, "U")
        if not updates:
            return
        all_pieces = pieces(plan)
        sums = [self._sum_row(piece, ready, time_ns) for piece, time_ns in zip(all_pieces, sum_ns, strict=True)]
        if max(update.number for update in updates) == 0:
            gate = self._row((found[0], 0) for found in sums)
            self.gate_of_update = dict.fromkeys(updates.values(), gate)
        else:
            self._gate_rows(all_pieces, sums, updates)

    def _row(self, waits: Iterable[tuple[int, int]]) -> int:
        """Begin a row with (what is waited for, time after it); the number of its last instruction."""
        self.first.append(self._next)
        return self._extend(waits)

    def _extend(self, waits: Iterable[tuple[int, int]]) -> int:
        for before, duration_ns in waits:
            self.before.append(before)
            self.duration_ns.append(duration_ns)
            self._next += 1
        return self._next - 1

    def _sum_row(self, piece: Piece, ready: dict[_Update, int], sum_ns: int) -> list[int]:
        """By update, the number of the end of the piece's sum."""
        self._row(())
        ends: list[int] = []
        while (piece.stages[0], len(ends)) in ready:
            waits = [ready[_Update(stage, len(ends))] for stage in piece.stages]
            ends.append(self._extend((before, 0 if place else sum_ns) for place, before in _countdown(waits)))
        return ends

    def _gate_rows(self, found: Sequence[Piece], sums: Sequence[list[int]], updates: dict[_Update, int]) -> None:
        """Several updates a step: each waits for the sums of its own stage's pieces."""
        sums_of_stage: dict[int, list[list[int]]] = defaultdict(list)
        for piece, ends in zip(found, sums, strict=True):
            for stage in piece.stages:
                sums_of_stage[stage].append(ends)
        for stage, ends_of_pieces in sorted(sums_of_stage.items()):
            self._row(())
            for number in range(len(ends_of_pieces[0])):
                gate = self._extend((ends[number], 0) for ends in ends_of_pieces)
                self.gate_of_update[updates[_Update(stage, number)]] = gate


def _countdown(values: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Each value with how many follow it."""
    return zip(range(len(values) - 1, -1, -1), values, strict=True)


def _numbers(arrays: InstructionArrays, letter: str) -> dict[_Update, int]:
    """Where each G, or each U, stands: those of a stage count up in the order of its stream."""
    found: dict[_Update, int] = {}
    seen: dict[int, int] = defaultdict(int)
    for number in np.nonzero(arrays.is_operation(letter))[0].tolist():
        stage = int(arrays.stage[number])
        found[_Update(stage, seen[stage])] = number
        seen[stage] += 1
    return found
