"""From streams to one list of entries for every rank: sends, receives and sums put in by fixed rules.

Method (docs/plan-contract.md section 6): walk the groups in turn, each as far as its data allow. After each F and each
first backward append the sends here and the receives to the peers' lists at that same moment; after the last G of a
piece append its sum to all members. So every list agrees with one global order of messages and sums, and replay ends
whether messages are buffered or meet their receiver, in one queue a pair of ranks or one queue a rank.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from planner.plan.borders import Transfer, is_handover, transfers
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import BACKWARDS, Instruction, Visit
from planner.plan.mesh import Range
from planner.plan.pieces import Piece, pieces
from planner.plan.plan import Plan, VisitShape
from planner.schedules.deadlock import deadlock_error

__all__ = ["Compute", "Entry", "LoweredPlan", "Message", "MessageKind", "Receive", "Send", "Sum", "lower"]

MessageKind = Literal["activation", "gradient"]


class Message(NamedTuple):
    """What one rank sends to another for one visit over one border; all tensors of the border in one message.

    ``tag`` is a dense number of (kind, border, micro-batch, slice): unique for an ordered pair of ranks in a step.
    ``samples`` count from the micro-batch's first sample, ``tokens`` from a sample's first token.
    """

    tag: int
    kind: MessageKind
    sender_stage: int
    receiver_stage: int
    micro_batch: int
    slice: int
    sender: int
    receiver: int
    samples: Range
    tokens: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Compute:
    """An instruction of the plan; of G and U the place alone counts."""

    instruction: Instruction


@dataclass(frozen=True, slots=True)
class Send:
    """The message leaves, its bytes exist since the instruction before."""

    message: Message


@dataclass(frozen=True, slots=True)
class Receive:
    """Post the receive; the wait is implicit before the reader, ``LoweredPlan.readers[message.tag]``."""

    message: Message


@dataclass(frozen=True, slots=True)
class Sum:
    """Sum ``pieces(plan)[piece]`` over its members for update number ``update``; every member has it once."""

    piece: int
    update: int


Entry = Compute | Send | Receive | Sum


@dataclass(frozen=True)
class LoweredPlan:
    """``lists``: one a rank. ``writers`` and ``readers``: by tag, the instruction that makes and that takes it."""

    lists: tuple[tuple[Entry, ...], ...]
    pieces: tuple[Piece, ...]
    writers: tuple[Instruction, ...]
    readers: tuple[Instruction, ...]

    @cached_property
    def num_messages(self) -> int:
        return sum(isinstance(entry, Send) for entries in self.lists for entry in entries)


def lower(plan: Plan) -> LoweredPlan:
    """The lists of all ranks. Raises ``PlanError`` (deadlock) where the streams cannot be walked to their end."""
    walk = _Walk(plan)
    while walk.pass_over_groups():
        pass
    walk.require_end()
    return LoweredPlan(
        lists=tuple(tuple(entries) for entries in walk.lists),
        pieces=walk.pieces,
        writers=tuple(walk.writers),
        readers=tuple(walk.readers),
    )


class _Walk:
    """Streams walked in turn; the lists grow on the way."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lists: list[list[Entry]] = [[] for _ in range(plan.num_ranks)]
        self.pieces = pieces(plan)
        self.writers: list[Instruction] = []
        self.readers: list[Instruction] = []
        self._dependencies = Dependencies(plan)
        self._takers = _takers(self._dependencies)
        self._places = [0] * len(plan.groups)
        self._done: set[Instruction] = set()
        self._transfers: dict[tuple[int, int, VisitShape], tuple[Transfer, ...]] = {}

    def pass_over_groups(self) -> bool:
        """Walk each group as far as its data allow; whether anything moved."""
        before = len(self._done)
        for group, stream in enumerate(self.plan.instructions):
            while self._places[group] < len(stream) and self._is_ready(stream[self._places[group]]):
                self._append(group, stream[self._places[group]])
                self._places[group] += 1
        return len(self._done) > before

    def require_end(self) -> None:
        streams = self.plan.instructions
        blocked = {group: place for group, place in enumerate(self._places) if place < len(streams[group])}
        if blocked:
            done = self._done.__contains__
            raise deadlock_error(self.plan, blocked, dependencies=self._dependencies, is_done=done)

    def _is_ready(self, instruction: Instruction) -> bool:
        return all(wait.instruction in self._done for wait in self._dependencies.waits(instruction))

    def _append(self, group: int, instruction: Instruction) -> None:
        for rank in self.plan.groups[group]:
            self.lists[rank].append(Compute(instruction))
        self._done.add(instruction)
        if instruction.operation == "F":
            self._append_activations(instruction)
        elif instruction.operation == "G":
            self._append_sums(instruction)
        elif instruction.operation in BACKWARDS and instruction == self._dependencies.first_backward(instruction.visit):
            self._append_gradients(instruction)

    def _append_activations(self, writer: Instruction) -> None:
        route = self.plan.micro_batches[writer.number].route
        for stage in self._takers[route, writer.stage]:
            self._append_messages("activation", writer, Instruction("F", stage, writer.number, writer.slice))

    def _append_gradients(self, writer: Instruction) -> None:
        """To the stages read with gradient, as far as they go backward."""
        of_stage, micro_batch = self._dependencies.of_stage, writer.number
        for stage in of_stage(micro_batch, writer.stage).reads:
            reader = self._dependencies.first_backward(Visit(stage, micro_batch, writer.slice))
            if reader is not None and writer.stage in of_stage(micro_batch, stage).readers:
                self._append_messages("gradient", writer, reader)

    def _append_messages(self, kind: MessageKind, writer: Instruction, reader: Instruction) -> None:
        found = self._transfers_of(writer.stage, reader.stage, writer.visit)
        if not found:
            return
        tag = len(self.writers)
        self.writers.append(writer)
        self.readers.append(reader)
        for transfer in found:
            message = Message(tag, kind, writer.stage, reader.stage, writer.number, writer.slice, *transfer)
            self.lists[message.sender].append(Send(message))
            self.lists[message.receiver].append(Receive(message))

    def _transfers_of(self, sender: int, receiver: int, visit: Visit) -> tuple[Transfer, ...]:
        """Between ranks: nothing for a hand-over or for a rank's own part. Visits of one shape share an entry."""
        key = (sender, receiver, self.plan.visit_shape(visit.micro_batch, visit.slice))
        if key not in self._transfers:
            found = () if is_handover(self.plan, sender, receiver) else transfers(self.plan, sender, receiver, visit)
            self._transfers[key] = tuple(transfer for transfer in found if transfer.sender != transfer.receiver)
        return self._transfers[key]

    def _append_sums(self, ready: Instruction) -> None:
        """Of the pieces whose stages are all ready now."""
        for number, piece in enumerate(self.pieces):
            waits = (Instruction("G", stage, ready.number) for stage in piece.stages)
            if ready.stage in piece.stages and all(wait in self._done for wait in waits):
                for rank in piece.members:
                    self.lists[rank].append(Sum(number, ready.number))


def _takers(dependencies: Dependencies) -> dict[tuple[int, int], tuple[int, ...]]:
    """(route, stage) -> the stages that read its output, detached or not; ascending."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for (route, stage), neighbours in sorted(dependencies.neighbours.items()):
        for source in neighbours.reads:
            found[route, source].append(stage)
    return defaultdict(tuple, {key: tuple(stages) for key, stages in found.items()})
