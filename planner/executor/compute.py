"""Each instruction of a plan as a function: wait for what it reads, note the time, compute, note the time."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from planner.executor.backward import first_gradient, go_backward
from planner.executor.deferred_functions import do_works
from planner.executor.measure import Recorder
from planner.executor.messages import PostOffice
from planner.executor.rolling import Rolling
from planner.executor.shapes import LayerShapes
from planner.executor.stage import Portion, StageRunner, VisitState
from planner.executor.sums import GradientSums
from planner.executor.update import Batch, Update
from planner.executor.visits import LocalVisit, Visits

__all__ = [
    "Action",
    "Tools",
    "backward_action",
    "forward_action",
    "forward_only_action",
    "put_off_action",
    "ready_action",
    "restore_action",
    "timed_action",
    "update_action",
    "weight_action",
]

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
    rolling: Rolling | None  # where the step updates a weight several times


def forward_action(found: LocalVisit, visits: Visits, tools: Tools) -> Action:
    """F: the layers with their graph, and the visit's part of the loss where its stage has one."""
    state, arrivals, part = found.state, found.arrivals, found.batch_part
    with_gradient = tuple(sorted(found.layout.gradient_inputs))
    first_row = found.first_row + found.rows.first
    reads_batch, reads_labels = found.layout.reads_batch, found.runner.reads_labels
    run, hand_over = _run(found), visits.hand_over(found)
    losses = _losses(found, tools)
    batch, now = tools.batch, time.perf_counter_ns
    starts_ns, ends_ns = tools.recorder.starts_ns, tools.recorder.ends_ns

    def forward() -> None:
        for arrival in arrivals:
            arrival.wait()
        arrivals.clear()
        starts_ns.append(now())
        for layer in with_gradient:
            state.taken[layer].requires_grad_()
        state.first_sample = batch.num_seen + first_row
        inputs = batch.inputs[part] if reads_batch else None  # type: ignore[index]
        labels = batch.labels[part] if reads_labels else None  # type: ignore[index]
        outputs = run(state, Portion(inputs, labels))
        if outputs:
            losses(outputs, labels)
        hand_over()
        ends_ns.append(now())

    return forward


def _run(found: LocalVisit) -> Callable[[VisitState, Portion], list[Tensor]]:
    """The layers of the visit, whole or as a slice."""
    runner, place = found.runner, found.place
    if place is None:
        return runner.forward
    return lambda state, portion: runner.forward_slice(state, portion, place)


def _losses(found: LocalVisit, tools: Tools) -> Callable[[list[Tensor], Tensor | None], None]:
    """The visit's part of the loss: the sums over its tokens, divided by what its update counts."""
    state, batch, loss, update = found.state, tools.batch, tools.loss, found.update

    def losses(outputs: list[Tensor], labels: Tensor | None) -> None:
        sums = [loss(output, labels) for output in outputs]  # type: ignore[arg-type]
        total = sums[0] if len(sums) == 1 else torch.stack(sums).sum()
        state.loss = total / batch.counted[update]
        whole = len(batch.counted) == 1
        batch.losses.append(state.loss.detach() if whole else total.detach() / batch.num_counted)

    return losses


def forward_only_action(forward: Action, found: LocalVisit, *, num_sends: int) -> Action:
    """F of a visit without a backward: nothing is kept after it but what later slices read or has to be sent."""
    state, place = found.state, found.place
    done = place.carried if place is not None and place.is_last else None

    def forward_only() -> None:
        with torch.no_grad():
            forward()
        state.taken.clear()
        state.loss = None
        if done is not None:
            done.clear()
        if not num_sends:
            state.given.clear()

    return forward_only


def restore_action(state: VisitState, recorder: Recorder) -> Action:
    """R: everything that recompute dropped is back."""
    starts_ns, ends_ns, now = recorder.starts_ns, recorder.ends_ns, time.perf_counter_ns

    def restore() -> None:
        starts_ns.append(now())
        for cell in state.cells:
            cell.restore()
        ends_ns.append(now())

    return restore


def put_off_action(action: Action, found: LocalVisit) -> Action:
    """F, R or I of a visit that has a W too: weight gradients are left for it."""
    deferral, works = found.runner.deferral, found.state.weight_works

    def putting_off() -> None:
        with deferral.into(works):
            action()

    return putting_off


def weight_action(state: VisitState, recorder: Recorder) -> Action:
    """W of a visit that has an I too; each layer's memory is free when its work is done."""
    works, starts_ns, ends_ns, now = state.weight_works, recorder.starts_ns, recorder.ends_ns, time.perf_counter_ns

    def weight() -> None:
        starts_ns.append(now())
        do_works(works)
        ends_ns.append(now())

    return weight


def backward_action(found: LocalVisit, visits: Visits, recorder: Recorder, *, num_sends: int) -> Action:
    """B, I, or a W that stands alone: which gradients there are follows from what requires one."""
    state, returns, now = found.state, found.returns, time.perf_counter_ns
    with_gradient = tuple(sorted(found.layout.gradient_inputs))
    hand_back = visits.hand_back(found)
    starts_ns, ends_ns = recorder.starts_ns, recorder.ends_ns
    carried = found.place.carried if found.place is not None and not found.place.is_last else None

    def backward() -> None:
        for arrival in returns:
            arrival.wait()
        returns.clear()
        starts_ns.append(now())
        roots, gradients = _roots(state)
        if roots:
            go_backward(roots, gradients)
        back = {layer: _gradient(state.taken[layer]) for layer in with_gradient}
        state.clear()
        if carried is not None:
            carried.drop_last()
        hand_back(back)
        if num_sends:
            state.back.update(back)
        ends_ns.append(now())

    return backward


def ready_action(recorder: Recorder) -> Action:
    """G, and every U after the first: a moment."""
    starts_ns, ends_ns = recorder.starts_ns, recorder.ends_ns

    def ready() -> None:
        at_ns = time.perf_counter_ns()
        starts_ns.append(at_ns)
        ends_ns.append(at_ns)

    return ready


def timed_action(action: Action, recorder: Recorder) -> Action:
    """U of a stage by itself: ``action`` and when it ran."""
    starts_ns, ends_ns, now = recorder.starts_ns, recorder.ends_ns, time.perf_counter_ns

    def timed() -> None:
        starts_ns.append(now())
        action()
        ends_ns.append(now())

    return timed


def update_action(update: Update, recorder: Recorder) -> Action:
    """The rank's first U, which updates all its weights: U waits for every G of the plan anyway."""
    starts_ns, ends_ns, now = recorder.starts_ns, recorder.ends_ns, time.perf_counter_ns

    def apply() -> None:
        update.agree()
        starts_ns.append(now())
        update.apply()
        ends_ns.append(now())

    return apply


def _roots(state: VisitState) -> tuple[list[Tensor], list[Tensor]]:
    """Where the backward begins: the loss, and what others read, with the sum of the gradients that came back."""
    roots: list[Tensor] = []
    gradients: list[Tensor] = []
    if state.loss is not None and state.loss.requires_grad:
        roots.append(state.loss)
        gradients.append(first_gradient(state.loss))
    for layer, output in state.given.items():
        returned = [gradient for (_, given), gradient in sorted(state.returned.items(), key=_reader) if given == layer]
        if returned and output.requires_grad:
            roots.append(output)
            gradients.append(returned[0] if len(returned) == 1 else torch.stack(returned).sum(0))
    for tensor, leaf in state.handed:
        if leaf.grad is not None:
            roots.append(tensor)
            gradients.append(leaf.grad)
    return roots, gradients


def _reader(item: tuple[tuple[int, int], Tensor]) -> tuple[int, int]:
    return item[0]


def _gradient(leaf: Tensor) -> Tensor:
    """Of a tensor that came in; zero where nothing that goes backward read it."""
    return leaf.grad if leaf.grad is not None else torch.zeros_like(leaf)
