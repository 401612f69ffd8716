"""Several updates in a step, and updates that take the gradients of several steps."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from planner.errors import ExecutorError, UnsupportedPlanError
from planner.executor.executor import Executor
from planner.plan.instruction import Instruction, stream_text
from planner.plan.mesh import Mesh
from planner.plan.pieces import staleness
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.schedules.build import build_plan
from planner.schedules.families import family_lists
from planner.schedules.family import FamilyShape
from planner.schedules.split import split_in_place
from tests.helpers.exact import (
    NUM_STEPS,
    OPTIMIZERS,
    exact_model,
    global_batch,
    micro_batch_parts,
    model_plan,
    plan_parts,
    require_close,
    run_on,
)
from tests.helpers.executor_cases import adamw, changed, make_plan, squares, token_count, token_loss, with_recompute
from tests.helpers.phases import KEEPS, phase_batch, phase_model
from tests.helpers.ranks import Ranks

NUM_BATCHES = 6


def asynchronous_plan(model: str, cuts: tuple[int, ...], *, recompute: tuple[int, ...] = ()) -> Plan:
    """An update after every micro-batch, stage s on rank s; micro-batches of unequal size."""
    stages = [
        Stage(
            group=place,
            first_layer=first,
            end_layer=end,
            recompute={"full": layers} if (layers := tuple(x for x in recompute if first <= x < end)) else {},
        )
        for place, (first, end) in enumerate(pairwise(cuts))
    ]
    batches = [MicroBatch(route=0, samples=1 + number % 2, cuts=(0, 12)) for number in range(NUM_BATCHES)]
    lists = family_lists("1f1b-asynchronous", FamilyShape(len(stages), NUM_BATCHES))
    streams = tuple(stream_text(stream, lists.num_slices) for stream in lists.streams)
    return changed(model_plan(model, "1f1b", stages, batches), streams=streams)


def replicas_plan(model: str) -> Plan:
    """Two routes with copies of both stages; update n gathers micro-batches 2n and 2n + 1. Backward split in place."""
    lists = family_lists("1f1b-asynchronous", FamilyShape(2, NUM_BATCHES))
    stages = [Stage(group=n, first_layer=3 * (n % 2), end_layer=3 if n % 2 == 0 else 8) for n in range(4)]
    batches = [MicroBatch(route=n % 2, samples=1 + n % 3, cuts=(0, 12)) for n in range(2 * NUM_BATCHES)]
    parts = plan_parts(model, stages, routes=[[0, 1], [2, 3]], micro_batches=batches)
    streams = []
    for route in range(2):
        for stream in lists.streams:
            words = [
                Instruction(i.operation, i.stage + 2 * route, i.number if i.operation in "GU" else 2 * i.number + route)
                for i in stream
            ]
            streams.append(stream_text(split_in_place(words), [1] * len(batches)))
    return changed(build_plan(parts, "1f1b"), streams=tuple(streams))


def data_plan(model: str) -> Plan:
    """Two stages on two ranks each, which share the samples."""
    found = asynchronous_plan(model, (0, 3, 8))
    stages = tuple(stage.model_copy(update={"mesh": Mesh(data=2)}) for stage in found.stages)
    batches = tuple(batch.model_copy(update={"samples": batch.samples + 1}) for batch in found.micro_batches)
    nodes = (found.nodes[0].model_copy(update={"num_ranks": 4}),)
    return changed(found, stages=stages, groups=((0, 1), (2, 3)), nodes=nodes, micro_batches=batches)


def delayed_steps(model: str, plan: Plan, optimizer: str) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and weights of one process that applies the same delayed updates.

    The forward of a micro-batch on a stage sees what that stage had seen of updates when its stream ran it.
    """
    module = exact_model(model)
    masters = {name: nn.Parameter(p.detach().clone()) for name, p in module.named_parameters()}
    updates = OPTIMIZERS[optimizer](masters.values())
    losses = []
    for step in range(NUM_STEPS):
        inputs, labels = global_batch(plan, step)
        parts = list(micro_batch_parts(plan))
        history = [{name: p.detach().clone() for name, p in masters.items()}]
        total = 0.0
        for update in range(NUM_BATCHES):
            gathered = [n for n in range(len(parts)) if n // len(plan.routes) == update]
            counted = sum(token_count(labels[parts[n]]) for n in gathered)
            updates.zero_grad()
            for number in gathered:
                leaves = {name: tensor.clone().requires_grad_() for name, tensor in seen(plan, number, history).items()}
                loss = token_loss(
                    functional_call(module, leaves, (inputs[parts[number]],)).logits, labels[parts[number]]
                )
                (loss / counted).backward()
                total += float(loss.detach())
                for name, leaf in leaves.items():
                    masters[name].grad = leaf.grad + (0 if masters[name].grad is None else masters[name].grad)
            updates.step()
            history.append({name: p.detach().clone() for name, p in masters.items()})
        losses.append(total / token_count(labels))
    return losses, {name: value.detach() for name, value in masters.items()}


def seen(plan: Plan, micro_batch: int, history: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The weights of a micro-batch's forward, each as old as its stage has it."""
    found = {}
    for stage in plan.routes[plan.micro_batches[micro_batch].route]:
        version = history[updates_before_forward(plan, stage, micro_batch)]
        found |= {name: version[name] for name in version if layer_of(name) in plan.stages[stage].layers}
    return found


def layer_of(name: str) -> int:
    """Of a weight of Llama with six blocks."""
    words = name.split(".")
    return 0 if "embed_tokens" in words else int(words[2]) + 1 if words[1] == "layers" else 7


def updates_before_forward(plan: Plan, stage: int, micro_batch: int) -> int:
    found = 0
    for instruction in plan.instructions[plan.stages[stage].group]:
        if (instruction.operation, instruction.stage) == ("U", stage):
            found += 1
        if (instruction.operation, instruction.stage, instruction.number) == ("F", stage, micro_batch):
            return found
    raise AssertionError((stage, micro_batch))


DELAYED = {
    "2 ranks": lambda: asynchronous_plan("llama/float64", (0, 3, 8)),
    "4 ranks": lambda: asynchronous_plan("llama/float64", (0, 1, 4, 6, 8)),
    "4 ranks, replicas, split backward": lambda: replicas_plan("llama/float64"),
    "4 ranks, data 2": lambda: data_plan("llama/float64"),
    "2 ranks, recompute without R": lambda: asynchronous_plan("llama/float64", (0, 3, 8), recompute=(0, 1, 4, 7)),
    "2 ranks, recompute with R": lambda: with_recompute(
        asynchronous_plan("llama/float64", (0, 3, 8), recompute=(0, 1, 4, 7))
    ),
}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("name", list(DELAYED))
def test_stale_updates_are_those_of_one_process(name: str, optimizer: str, ranks: Ranks, tmp_path: Path) -> None:
    plan = DELAYED[name]()
    stale = max(staleness(plan))
    assert stale == len(plan.routes[0]) - 1
    losses, weights = delayed_steps("llama/float64", plan, optimizer)
    for found in run_on(ranks, plan, tmp_path, model="llama/float64", optimizer=optimizer, most_stale=stale):
        assert found == pytest.approx(losses, rel=1e-9)
    require_close(tmp_path, "weights", plan.num_ranks, expected=weights, tolerance=1e-10)


def one_rank_plan(*streams: str) -> Plan:
    """All layers on one rank, two samples of three tokens a micro-batch."""
    plan = make_plan(
        phase_model(),
        family="gpipe",
        groups=[[0]],
        stages=[(0, 0, 3, 1)],
        routes=[[0]],
        batches=[(0, 2)] * 2,
        tokens=3,
    )
    return changed(plan, streams=streams)


def test_a_backward_between_g_and_u_belongs_to_the_next_update() -> None:
    """Both gradients are those of the first weights; update 0 takes that of micro-batch 0 alone."""
    inputs, labels = phase_batch(0)
    expected = phase_model()
    gradients = []
    for rows in (slice(0, 2), slice(2, 4)):
        loss = squares(expected(inputs[rows]), labels[rows]) / labels[rows].numel()
        gradients.append(torch.autograd.grad(loss, list(expected.parameters())))
    optimizer = OPTIMIZERS["sgd"](expected.parameters())
    for found in gradients:
        for parameter, gradient in zip(expected.parameters(), found, strict=True):
            parameter.grad = gradient
        optimizer.step()

    model = phase_model()
    plan = one_rank_plan("0F0 0F1 0B0 0G0 0B1 0U0 0G1 0U1")
    assert staleness(plan) == (0,)
    executor = Executor(plan, model, squares, Tensor.numel, OPTIMIZERS["sgd"], emulate=True)
    executor.step((inputs, labels))
    for parameter, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(parameter, other)


STALE = "0F0 0F1 0B0 0G0 0U0 0B1 0G1 0U1"


def test_stale_updates_need_the_callers_consent() -> None:
    with pytest.raises(UnsupportedPlanError, match="give the Executor most_stale=1") as caught:
        Executor(one_rank_plan(STALE), phase_model(), squares, Tensor.numel, adamw, emulate=True)
    assert caught.value.code == "stale_plan"
    executor = Executor(one_rank_plan(STALE), phase_model(), squares, Tensor.numel, adamw, emulate=True, most_stale=1)
    assert executor.step(phase_batch(0)).gradient_norm is None


def test_the_model_holds_its_own_weights_after_a_step() -> None:
    model = phase_model()
    before = [id(parameter) for parameter in model.parameters()]
    executor = Executor(one_rank_plan(STALE), model, squares, Tensor.numel, adamw, emulate=True, most_stale=1)
    executor.step(phase_batch(0))
    assert [id(parameter) for parameter in model.parameters()] == before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert executor.evaluate(phase_batch(0)) == pytest.approx(
        float(squares(model(phase_batch(0)[0]), phase_batch(0)[1]).detach()) / 48
    )


def test_a_loss_that_is_not_finite_ends_a_run_whose_updates_do_not_wait() -> None:
    executor = Executor(one_rank_plan(STALE), phase_model(), squares, Tensor.numel, adamw, emulate=True, most_stale=1)
    inputs, labels = phase_batch(0)
    inputs[3] = float("inf")
    with pytest.raises(ExecutorError, match="updates do not wait") as caught:
        executor.step((inputs, labels))
    assert caught.value.code == "not_finite"


def test_a_micro_batch_in_two_updates_is_refused() -> None:
    plan = make_plan(
        phase_model(),
        family="interleaved",
        groups=[[0]],
        stages=[(0, 0, 1, 1), (0, 1, 3, 1)],
        routes=[[0, 1]],
        batches=[(0, 2)] * 2,
        tokens=3,
    )
    stream = "0F0 1F0 1B0 1G0 1U0 0B0 0F1 1F1 1B1 1G1 1U1 0B1 0G0 0U0"
    with pytest.raises(UnsupportedPlanError, match="gather them in different updates"):
        Executor(
            changed(plan, streams=(stream,)), phase_model(), squares, Tensor.numel, adamw, emulate=True, most_stale=1
        )


TAKES = f"{KEEPS} 0G0 0U0"


def test_plans_in_turn_update_as_one_large_batch() -> None:
    """Twice without an update, then with one; and again: 12 samples an update."""
    expected, model = phase_model(), phase_model()
    optimizer = adamw(expected.parameters())
    keeps = Executor(one_rank_plan(KEEPS), model, squares, Tensor.numel, adamw, emulate=True)
    takes = keeps.following(one_rank_plan(TAKES))
    for step in (0, 3):
        batches = [phase_batch(step + part) for part in range(3)]
        optimizer.zero_grad()
        loss = sum(squares(expected(inputs), labels) for inputs, labels in batches) / (3 * 48)
        loss.backward()
        found = [keeps.step(batch, counted=3 * 48) for batch in batches[:2]]
        found.append(takes.step(batches[2], counted=3 * 48))
        assert sum(result.loss for result in found) == pytest.approx(float(loss.detach()))
        for parameter, other in zip(model.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, other.grad)
        optimizer.step()
        for parameter, other in zip(model.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(parameter, other)


def test_a_count_is_asked_for_where_gradients_wait(tmp_path: Path) -> None:
    keeps = Executor(one_rank_plan(KEEPS), phase_model(), squares, Tensor.numel, adamw, emulate=True)
    takes = keeps.following(one_rank_plan(TAKES))
    with pytest.raises(ExecutorError, match="found counted=None, expected what all steps"):
        keeps.step(phase_batch(0))
    takes.step(phase_batch(0))  # nothing waits: as ever
    keeps.step(phase_batch(0), counted=96)
    assert (keeps.progress.steps, keeps.progress.samples) == (1, 8)
    with pytest.raises(ExecutorError, match="save and load after the update"):
        keeps.save(tmp_path)
    with pytest.raises(ExecutorError, match="found counted=48, expected 96") as caught:
        takes.step(phase_batch(0), counted=48)
    assert caught.value.code == "count"
    takes.step(phase_batch(0), counted=96)
    assert (takes.progress.steps, takes.progress.samples) == (2, 12)


def test_ranks_that_share_weights_sum_them_once_for_plans_in_turn(ranks: Ranks) -> None:
    """Data 2 without an update, then two routes with one; the weights' copies stay equal to one process."""
    found = ranks.results("tests.helpers.phases:shared_phases", 2)
    model = phase_model()
    optimizer = adamw(model.parameters())
    batches = [phase_batch(step) for step in range(2)]
    (sum(squares(model(inputs), labels) for inputs, labels in batches) / 96).backward()
    optimizer.step()
    for weights in found:
        for values, parameter in zip(weights, model.parameters(), strict=True):
            torch.testing.assert_close(torch.tensor(values), parameter.detach())


def test_another_placement_is_refused(ranks: Ranks) -> None:
    answers = ranks.run("tests.helpers.phases:other_placement", 2)
    assert [answer.code for answer in answers] == ["placement"] * 2
