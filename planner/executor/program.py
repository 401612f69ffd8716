"""One rank's lowered list as a list of functions without arguments: the step only calls them in turn.

Everything that can be worked out beforehand (peers, tags, shapes, row ranges, hand-overs, who frees what) is bound
into the functions. Rules: docs/plan-contract.md sections 3 to 6.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from planner.executor.layout import StageLayout, local_samples
from planner.executor.measure import Recorder
from planner.executor.messages import Arrival, Parcel, PostOffice, parcels
from planner.executor.shapes import LayerShapes
from planner.executor.stage import StageRunner, VisitState
from planner.executor.sums import GradientSums
from planner.executor.update import Batch, Update
from planner.plan.borders import is_handover
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Instruction, Visit
from planner.plan.mesh import Range
from planner.plan.plan import Plan
from planner.schedules.deadlock import instruction_text
from planner.schedules.lower import Compute, Entry, LoweredPlan, Message, Receive, Send, Sum

__all__ = ["Program", "Tools", "make_program"]

Action = Callable[[], None]


@dataclass(frozen=True)
class Tools:
    """What the functions of a list work with. ``runners``: by (route, stage)."""

    rank: int
    device: torch.device
    runners: dict[tuple[int, int], StageRunner]
    shapes: LayerShapes
    width: int  # most tensors of a message anywhere in the plan
    office: PostOffice
    sums: GradientSums
    update: Update
    recorder: Recorder
    batch: Batch
    loss: Callable[[Tensor, Tensor], Tensor]


class Program(NamedTuple):
    """``actions`` of one rank and, of each, the text that names it in reports."""

    actions: tuple[Action, ...]
    texts: tuple[str, ...]


@dataclass
class _Visit:
    """One visit of this rank. ``rows``: its samples, counted from the micro-batch's first; ``first_row``: that one's
    place in the global batch."""

    visit: Visit
    state: VisitState
    layout: StageLayout
    rows: Range
    first_row: int
    arrivals: list[Arrival] = field(default_factory=list)
    returns: list[Arrival] = field(default_factory=list)

    @property
    def batch_rows(self) -> slice:
        return slice(self.first_row + self.rows.first, self.first_row + self.rows.end)

    def local(self, samples: Range) -> slice | None:
        """Part of this rank's rows; None for all of them."""
        if samples == self.rows:
            return None
        return slice(samples.first - self.rows.first, samples.end - self.rows.first)


def make_program(plan: Plan, lowered: LoweredPlan, tools: Tools) -> Program:
    """The functions of ``tools.rank``, in the order of its list."""
    maker = _Maker(plan, lowered, tools)
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
        self._visits: dict[Visit, _Visit] = {}
        self._updated = False
        self._width = tools.width
        sends = (entry.message for entry in lowered.lists[tools.rank] if isinstance(entry, Send))
        self._sends_left = Counter((message.kind, _sending_visit(message)) for message in sends)

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Compute):
            self._append(self._compute(entry.instruction), instruction_text(self._plan, entry.instruction))
        elif isinstance(entry, Sum):
            start, piece = self._tools.sums.start, entry.piece
            self._append(lambda: start(piece), f"the sum of piece {piece}")
        elif isinstance(entry, Send):
            writer = instruction_text(self._plan, self._lowered.writers[entry.message.tag])
            self._append(self._send(entry.message), f"{writer}, sending to rank {entry.message.receiver}")
        else:
            writer = instruction_text(self._plan, self._lowered.writers[entry.message.tag])
            self._append(self._receive(entry), f"the receive of {writer} from rank {entry.message.sender}")

    def add_end(self) -> None:
        """What ends the list of a rank: the common decision where no U made it, and all sends gone."""
        if not self._updated:
            update = self._tools.update
            trains = self._dependencies.num_updates > 0
            self._append(update.agree if trains else update.agree_on_loss, "the end of the step")
        self._append(self._tools.office.finish, "the end of the step")

    def _append(self, action: Action, text: str) -> None:
        self.actions.append(action)
        self.texts.append(text)

    def _visit(self, visit: Visit) -> _Visit:
        if visit not in self._visits:
            plan, route = self._plan, self._plan.micro_batches[visit.micro_batch].route
            self._visits[visit] = _Visit(
                visit=visit,
                state=VisitState(),
                layout=self._tools.runners[route, visit.stage].layout,
                rows=local_samples(plan, visit.stage, self._tools.rank, micro_batch=visit.micro_batch),
                first_row=plan.first_sample(visit.micro_batch),
            )
        return self._visits[visit]

    def _compute(self, instruction: Instruction) -> Action:
        if instruction.operation == "F":
            return self._forward(instruction)
        if instruction.operation == "R":
            return self._restore(instruction)
        if instruction.operation == "G":
            return self._ready()
        return self._update() if instruction.operation == "U" else self._backward(instruction)

    def _forward(self, instruction: Instruction) -> Action:
        tools, found = self._tools, self._visit(instruction.visit)
        state, arrivals, rows = found.state, found.arrivals, found.batch_rows
        runner = tools.runners[self._plan.micro_batches[instruction.number].route, instruction.stage]
        with_gradient = tuple(sorted(found.layout.gradient_inputs))
        reads_batch, has_loss = found.layout.reads_batch, found.layout.has_loss
        hand_over = self._hand_over(found)
        batch, loss, now = tools.batch, tools.loss, time.perf_counter_ns
        starts_ns, ends_ns = tools.recorder.starts_ns, tools.recorder.ends_ns

        def forward() -> None:
            for arrival in arrivals:
                arrival.wait()
            arrivals.clear()
            starts_ns.append(now())
            for layer in with_gradient:
                state.taken[layer].requires_grad_()
            output = runner.forward(state, batch.inputs[rows] if reads_batch else None)  # type: ignore[index]
            if has_loss:
                part = loss(output, batch.labels[rows]) / batch.num_counted  # type: ignore[index, arg-type]
                state.loss = part
                batch.losses.append(part.detach())
            hand_over()
            ends_ns.append(now())

        if self._dependencies.first_backward(instruction.visit) is not None:
            return forward
        return self._without_backward(forward, found)

    def _without_backward(self, forward: Action, found: _Visit) -> Action:
        """Nothing is kept after F but what still has to be sent."""
        state = found.state
        sends = self._sends_left["activation", found.visit]

        def forward_only() -> None:
            with torch.no_grad():
                forward()
            state.taken.clear()
            state.loss = None
            if not sends:
                state.given.clear()

        return forward_only

    def _hand_over(self, found: _Visit) -> Action:
        """Outputs for other stages of this group: same memory, fresh leaves."""
        pairs: list[tuple[VisitState, int]] = []
        for border in found.layout.given:
            if is_handover(self._plan, border.sender, border.receiver):
                reader = self._visit(found.visit._replace(stage=border.receiver))
                pairs += [(reader.state, layer) for layer in border.layers]
        given = found.state.given

        def hand_over() -> None:
            for state, layer in pairs:
                state.taken[layer] = given[layer].detach()

        return hand_over

    def _restore(self, instruction: Instruction) -> Action:
        state, now = self._visit(instruction.visit).state, time.perf_counter_ns
        starts_ns, ends_ns = self._tools.recorder.starts_ns, self._tools.recorder.ends_ns

        def restore() -> None:
            starts_ns.append(now())
            for cell in state.cells:
                cell.restore()
            ends_ns.append(now())

        return restore

    def _backward(self, instruction: Instruction) -> Action:
        found = self._visit(instruction.visit)
        state, returns, now = found.state, found.returns, time.perf_counter_ns
        with_gradient = tuple(sorted(found.layout.gradient_inputs))
        hand_back = self._hand_back(found)
        sends = self._sends_left["gradient", found.visit]
        starts_ns, ends_ns = self._tools.recorder.starts_ns, self._tools.recorder.ends_ns

        def backward() -> None:
            for arrival in returns:
                arrival.wait()
            returns.clear()
            starts_ns.append(now())
            roots, gradients = _roots(state)
            if roots:
                torch.autograd.backward(roots, gradients)
            back = {layer: _gradient(state.taken[layer]) for layer in with_gradient}
            state.clear()
            hand_back(back)
            if sends:
                state.back.update(back)
            ends_ns.append(now())

        return backward

    def _hand_back(self, found: _Visit) -> Callable[[dict[int, Tensor]], None]:
        """Gradients for other stages of this group."""
        targets: list[tuple[VisitState, int, int]] = []
        for border in found.layout.taken:
            if is_handover(self._plan, border.sender, border.receiver):
                source = self._visit(found.visit._replace(stage=border.sender))
                targets += [(source.state, border.receiver, layer) for layer in border.gradient_layers]

        def hand_back(back: dict[int, Tensor]) -> None:
            for state, reader, layer in targets:
                state.returned[reader, layer] = back[layer]

        return hand_back

    def _ready(self) -> Action:
        starts_ns, ends_ns = self._tools.recorder.starts_ns, self._tools.recorder.ends_ns

        def ready() -> None:
            at_ns = time.perf_counter_ns()
            starts_ns.append(at_ns)
            ends_ns.append(at_ns)

        return ready

    def _update(self) -> Action:
        """The rank's first U updates all its weights: U waits for every G of the plan anyway."""
        if self._updated:
            return self._ready()
        self._updated = True
        update, now = self._tools.update, time.perf_counter_ns
        starts_ns, ends_ns = self._tools.recorder.starts_ns, self._tools.recorder.ends_ns

        def apply() -> None:
            update.agree()
            starts_ns.append(now())
            update.apply()
            ends_ns.append(now())

        return apply

    def _parcels(self, message: Message) -> tuple[Parcel, ...]:
        """The tensors of a message; a gradient crosses the border of its activation the other way."""
        route = self._plan.micro_batches[message.micro_batch].route
        ends = (message.sender_stage, message.receiver_stage)
        own = ends[0] if message.sender == self._tools.rank else ends[1]
        wanted = ends if message.kind == "activation" else ends[::-1]
        layout = self._tools.runners[route, own].layout
        border = next(b for b in (*layout.given, *layout.taken) if (b.sender, b.receiver) == wanted)
        return parcels(message, border, shape_of=self._tools.shapes.of, width=self._width)

    def _send(self, message: Message) -> Action:
        found = self._visit(_sending_visit(message))
        office, part = self._tools.office, found.local(message.samples)
        source = found.state.given if message.kind == "activation" else found.state.back
        self._sends_left[message.kind, found.visit] -= 1
        is_last = self._sends_left[message.kind, found.visit] == 0
        keeps = message.kind == "activation" and self._dependencies.first_backward(found.visit) is not None
        frees = is_last and not keeps
        sent = self._parcels(message)

        def send() -> None:
            for parcel in sent:
                tensor = source[parcel.layer]
                office.send(parcel, tensor if part is None else tensor[part])
            if frees:
                source.clear()

        return send

    def _receive(self, entry: Receive) -> Action:
        message, office = entry.message, self._tools.office
        found = self._visit(Visit(message.receiver_stage, message.micro_batch, message.slice))
        part = found.local(message.samples)
        arrivals = found.arrivals if message.kind == "activation" else found.returns
        posts = [(parcel, self._place(found, parcel)) for parcel in self._parcels(message)]

        def post() -> None:
            for parcel, place in posts:
                tensor = place()
                arrivals.append(office.post(parcel, tensor if part is None else tensor[part]))

        return post

    def _place(self, found: _Visit, parcel: Parcel) -> Callable[[], Tensor]:
        """The fresh tensor that a receive fills, or fills a part of: made by the first of several senders."""
        shape, dtype = self._tools.shapes.of(parcel.layer, found.rows.size)
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


def _roots(state: VisitState) -> tuple[list[Tensor], list[Tensor | None]]:
    """Where the backward begins: the loss, and outputs with the sum of the gradients that came back."""
    roots: list[Tensor] = []
    gradients: list[Tensor | None] = []
    if state.loss is not None and state.loss.requires_grad:
        roots.append(state.loss)
        gradients.append(None)
    for layer, output in state.given.items():
        returned = [gradient for (_, given), gradient in sorted(state.returned.items(), key=_reader) if given == layer]
        if returned and output.requires_grad:
            roots.append(output)
            gradients.append(returned[0] if len(returned) == 1 else torch.stack(returned).sum(0))
    return roots, gradients


def _reader(item: tuple[tuple[int, int], Tensor]) -> tuple[int, int]:
    return item[0]


def _gradient(leaf: Tensor) -> Tensor:
    """Of a tensor that came in; zero where nothing that goes backward read it."""
    return leaf.grad if leaf.grad is not None else torch.zeros_like(leaf)
