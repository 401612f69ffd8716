"""One rank's lowered list as a list of functions without arguments: the step only calls them in turn.

Everything that can be worked out beforehand (peers, tags, shapes, row ranges, hand-overs, who frees what) is bound
into the functions. Rules: docs/plan-contract.md sections 3 to 6.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from planner.executor.compute import (
    Action,
    Tools,
    backward_action,
    forward_action,
    forward_only_action,
    put_off_action,
    ready_action,
    restore_action,
    timed_action,
    update_action,
    weight_action,
)
from planner.executor.messages import Parcel, parcels
from planner.executor.visits import LocalVisit, Visits
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Instruction, Operation, Visit
from planner.plan.plan import Plan
from planner.schedules.deadlock import instruction_text
from planner.schedules.lower import Compute, Entry, LoweredPlan, Message, Receive, Send, Sum

__all__ = ["Program", "make_program"]


class Program(NamedTuple):
    """``actions`` of one rank and, of each, the text that names it in reports."""

    actions: tuple[Action, ...]
    texts: tuple[str, ...]


def make_program(plan: Plan, lowered: LoweredPlan, tools: Tools) -> Program:
    """The functions of ``tools.rank``, in the order of its list."""
    maker = _Maker(plan, lowered, tools)
    maker.add_begin()
    for entry in lowered.lists[tools.rank]:
        maker.add(entry)
    maker.add_end()
    return Program(tuple(maker.actions), tuple(maker.texts))


class _Maker:
    def __init__(self, plan: Plan, lowered: LoweredPlan, tools: Tools) -> None:
        self.actions: list[Action] = []
        self.texts: list[str] = []
        self._plan, self._lowered, self._tools = plan, lowered, tools
        self._dependencies = Dependencies(plan)
        self._rolling = tools.rolling if self._dependencies.num_updates > 1 else None
        self._visits = Visits(plan, tools.runners, tools.rank)
        self._updated = False
        sends = (entry.message for entry in lowered.lists[tools.rank] if isinstance(entry, Send))
        self._sends_left = Counter((message.kind, _sending_visit(message)) for message in sends)

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Compute):
            self._append(self._compute(entry.instruction), instruction_text(self._plan, entry.instruction))
        elif isinstance(entry, Sum):
            self._append(self._sum(entry), f"the sum of piece {entry.piece}")
        elif isinstance(entry, Send):
            writer = instruction_text(self._plan, self._lowered.writers[entry.message.tag])
            self._append(self._send(entry.message), f"{writer}, sending to rank {entry.message.receiver}")
        else:
            writer = instruction_text(self._plan, self._lowered.writers[entry.message.tag])
            self._append(self._receive(entry), f"the receive of {writer} from rank {entry.message.sender}")

    def add_begin(self) -> None:
        """What a step with several updates needs first."""
        if self._rolling is not None:
            self._append(self._rolling.begin, "the begin of the step")

    def add_end(self) -> None:
        """What ends the list of a rank: the common decision where no U made it, and all sends gone."""
        update, end = self._tools.update, "the end of the step"
        if self._rolling is not None:
            self._append(self._rolling.end, end)
        if self._dependencies.num_updates != 1:
            self._append(update.agree_on_loss, end)
            if self._rolling is not None:
                self._append(update.require_finite, end)
        elif not self._updated:
            self._append(update.agree, end)
        self._append(self._tools.office.finish, end)

    def _append(self, action: Action, text: str) -> None:
        self.actions.append(action)
        self.texts.append(text)

    def _compute(self, instruction: Instruction) -> Action:
        recorder, operation = self._tools.recorder, instruction.operation
        if operation == "G":
            return ready_action(recorder)
        if operation == "U":
            return self._update(instruction)
        action = self._computing(operation, self._visits.of(instruction.visit))
        if self._rolling is None:
            return action
        if operation == "F":
            return self._rolling.forward(instruction.visit, action)
        return self._rolling.backward(instruction, action)

    def _computing(self, operation: Operation, found: LocalVisit) -> Action:
        if not {"I", "W"} <= set(self._plan.visit_operations[found.visit]):
            return self._of_visit(operation, found)
        if operation == "W":
            return weight_action(found.state, self._tools.recorder)
        return put_off_action(self._of_visit(operation, found), found)

    def _of_visit(self, operation: Operation, found: LocalVisit) -> Action:
        if operation == "F":
            return self._forward(found)
        if operation == "R":
            return restore_action(found.state, self._tools.recorder)
        num_sends = self._sends_left["gradient", found.visit]
        return backward_action(found, self._visits, self._tools.recorder, num_sends=num_sends)

    def _forward(self, found: LocalVisit) -> Action:
        forward = forward_action(found, self._visits, self._tools)
        if self._dependencies.first_backward(found.visit) is not None:
            return forward
        return forward_only_action(forward, found, num_sends=self._sends_left["activation", found.visit])

    def _sum(self, entry: Sum) -> Action:
        start, piece = self._tools.sums.start, entry.piece
        if self._rolling is not None:
            return self._rolling.start(piece, entry.update)
        return lambda: start(piece)

    def _update(self, instruction: Instruction) -> Action:
        if self._rolling is not None:
            return timed_action(self._rolling.update(instruction), self._tools.recorder)
        if self._updated:
            return ready_action(self._tools.recorder)
        self._updated = True
        return update_action(self._tools.update, self._tools.recorder)

    def _parcels(self, message: Message) -> tuple[Parcel, ...]:
        """The tensors of a message; a gradient crosses the border of its activation the other way."""
        route = self._plan.micro_batches[message.micro_batch].route
        ends = (message.sender_stage, message.receiver_stage)
        own = ends[0] if message.sender == self._tools.rank else ends[1]
        wanted = ends if message.kind == "activation" else ends[::-1]
        layout = self._tools.runners[route, own].layout
        border = next(b for b in (*layout.given, *layout.taken) if (b.sender, b.receiver) == wanted)
        return parcels(message, border, shape_of=self._tools.shapes.of, width=self._tools.width)

    def _send(self, message: Message) -> Action:
        found = self._visits.of(_sending_visit(message))
        office, part = self._tools.office, found.local(message.samples)
        source = found.state.given if message.kind == "activation" else found.state.back
        self._sends_left[message.kind, found.visit] -= 1
        is_last = self._sends_left[message.kind, found.visit] == 0
        keeps = message.kind == "activation" and self._dependencies.first_backward(found.visit) is not None
        frees = is_last and not keeps
        senders = [(parcel.layer, office.sender(parcel)) for parcel in self._parcels(message)]

        def send() -> None:
            for layer, send_one in senders:
                tensor = source[layer]
                send_one(tensor if part is None else tensor[part])
            if frees:
                source.clear()

        return send

    def _receive(self, entry: Receive) -> Action:
        message, office = entry.message, self._tools.office
        found = self._visits.of(Visit(message.receiver_stage, message.micro_batch, message.slice))
        part = found.local(message.samples)
        arrivals = found.arrivals if message.kind == "activation" else found.returns
        posts = [(office.receiver(parcel), self._place(found, parcel)) for parcel in self._parcels(message)]

        def post() -> None:
            for post_one, place in posts:
                tensor = place()
                arrivals.append(post_one(tensor if part is None else tensor[part]))

        return post

    def _place(self, found: LocalVisit, parcel: Parcel) -> Callable[[], Tensor]:
        """The fresh tensor that a receive fills, or fills a part of: made by the first of several senders."""
        shape, dtype = self._tools.shapes.of(parcel.layer, found.extent)
        device, layer = self._tools.device, parcel.layer
        taken, returned = found.state.taken, found.state.returned
        reader = parcel.message.sender_stage

        def activation() -> Tensor:
            if layer not in taken:
                taken[layer] = torch.empty(shape, dtype=dtype, device=device)
            return taken[layer]

        def gradient() -> Tensor:
            if (reader, layer) not in returned:
                returned[reader, layer] = torch.empty(shape, dtype=dtype, device=device)
            return returned[reader, layer]

        return activation if parcel.message.kind == "activation" else gradient


def _sending_visit(message: Message) -> Visit:
    return Visit(message.sender_stage, message.micro_batch, message.slice)
