"""Any plan on ranks against the whole model in one process: gradients of each weight, weights and losses after steps.

A model is named ``llama`` or ``gpt2``, with ``/float64`` behind it for double precision.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from planner.executor.executor import Executor
from planner.plan.graph import LayerGraph, Node
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.problem.reading import read_document
from planner.schedules.build import PlanParts, build_plan
from tests.helpers.documents import digest_of
from tests.helpers.executor_cases import KIND, make_batch, make_graph, make_model, token_count, token_loss
from tests.helpers.ranks import Ranks

__all__ = [
    "NUM_STEPS",
    "OPTIMIZERS",
    "check_exact",
    "exact_model",
    "global_batch",
    "micro_batch_parts",
    "model_plan",
    "plan_parts",
    "require_close",
    "run_on",
    "run_plan",
]

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "adamw": partial(torch.optim.AdamW, lr=1e-3),
}
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-10}  # of each tensor's norm
NUM_STEPS = 3


def exact_model(name: str) -> nn.Module:
    """Always the same weights, on this processor."""
    return make_model(name.partition("/")[0]).to(_dtype(name))


def _dtype(model: str) -> torch.dtype:
    return torch.float64 if model.endswith("/float64") else torch.float32


@cache
def exact_graph(model: str) -> LayerGraph:
    """Of the whole model; cutting it costs more than a step."""
    return make_graph(exact_model(model))


def plan_parts(
    model: str, stages: list[Stage], *, routes: list[list[int]], micro_batches: list[MicroBatch]
) -> PlanParts:
    """Stages on groups of as many ranks as their mesh has, numbered group by group."""
    sizes = {stage.group: stage.mesh.num_ranks for stage in stages}
    firsts = [sum(sizes[other] for other in range(group)) for group in range(len(sizes))]
    return PlanParts(
        problem=digest_of("executor"),
        precision="fp32",
        graph=exact_graph(model),
        nodes=(Node(node_group="tests", device_kind=KIND, num_ranks=sum(sizes.values())),),
        groups=tuple(tuple(range(first, first + sizes[group])) for group, first in enumerate(firsts)),
        stages=tuple(stages),
        routes=tuple(tuple(route) for route in routes),
        micro_batches=tuple(micro_batches),
    )


def model_plan(model: str, family: str, stages: list[Stage], micro_batches: list[MicroBatch]) -> Plan:
    """One route over all stages."""
    parts = plan_parts(model, stages, routes=[list(range(len(stages)))], micro_batches=micro_batches)
    return build_plan(parts, family)


class Trained(NamedTuple):
    """``gradients``: of the first step; ``weights``: at the end."""

    losses: list[float]
    gradients: dict[str, Tensor]
    weights: dict[str, Tensor]


def global_batch(plan: Plan, step: int) -> tuple[Tensor, Tensor]:
    samples = sum(batch.samples for batch in plan.micro_batches)
    return make_batch(step, samples, max(batch.cuts[-1] for batch in plan.micro_batches))


def micro_batch_parts(plan: Plan) -> Iterator[tuple[slice, slice]]:
    """Rows and tokens of each micro-batch in the global batch."""
    for number, batch in enumerate(plan.micro_batches):
        first = plan.first_sample(number)
        yield slice(first, first + batch.samples), slice(0, batch.cuts[-1])


def unsplit_steps(model: str, plan: Plan, optimizer: str) -> Trained:
    """The plan's micro-batches in order on the whole model."""
    module = exact_model(model)
    updates = OPTIMIZERS[optimizer](module.parameters())
    losses, gradients = [], {}
    for step in range(NUM_STEPS):
        inputs, labels = global_batch(plan, step)
        parts = list(micro_batch_parts(plan))
        counted = sum(token_count(labels[part]) for part in parts)
        updates.zero_grad()
        total = 0.0
        for part in parts:
            loss = token_loss(module(inputs[part]).logits, labels[part]) / counted
            loss.backward()
            total += float(loss.detach())
        losses.append(total)
        if step == 0:
            gradients = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
        updates.step()
    return Trained(losses, gradients, {name: p.detach().clone() for name, p in module.named_parameters()})


def run_plan(  # a case's arguments, by name over the wire
    group: Any, *, model: str, plan: str, folder: str, optimizer: str, most_stale: int = 0
) -> list[float]:
    """On a rank: the losses; ``gradients-<rank>`` of the first step and ``weights-<rank>`` are in the folder."""
    module = exact_model(model)
    executor = Executor(
        read_document(plan.encode(), Plan),
        module,
        token_loss,
        token_count,
        OPTIMIZERS[optimizer],
        process_group=group,
        emulate=True,
        most_stale=most_stale,
    )
    losses = []
    for step in range(NUM_STEPS):
        losses.append(executor.step(global_batch(executor.plan, step)).loss)
        if step == 0:
            gradients = {name: p.grad.clone() for name, p in executor.parameters().items() if p.grad is not None}
            save_file(gradients, Path(folder) / f"gradients-{executor.rank}")
    weights = {name: parameter.detach().clone() for name, parameter in executor.parameters().items()}
    save_file(weights, Path(folder) / f"weights-{executor.rank}")
    executor.close()
    return losses


def check_exact(plan: Plan, model: str, ranks: Ranks, folder: Path) -> None:
    """Gradients and weights after steps of SGD with momentum, losses of AdamW, on every rank that holds them."""
    tolerance = TOLERANCES[_dtype(model)]
    for optimizer in OPTIMIZERS:
        expected = unsplit_steps(model, plan, optimizer)
        for found in run_on(ranks, plan, folder, model=model, optimizer=optimizer):
            torch.testing.assert_close(torch.tensor(found), torch.tensor(expected.losses), rtol=1e-6, atol=0)
        require_close(folder, "gradients", plan.num_ranks, expected=expected.gradients, tolerance=tolerance)
        if optimizer == "sgd":
            require_close(folder, "weights", plan.num_ranks, expected=expected.weights, tolerance=tolerance)


def run_on(ranks: Ranks, plan: Plan, folder: Path, **asked: Any) -> list[list[float]]:
    """``run_plan`` on the plan's ranks."""
    text = plan.model_dump_json(by_alias=True)
    return ranks.results("tests.helpers.exact:run_plan", plan.num_ranks, plan=text, folder=str(folder), **asked)


def require_close(folder: Path, what: str, num_ranks: int, *, expected: dict[str, Tensor], tolerance: float) -> None:
    """Every tensor that a rank has left is the expected one, and each was left by somebody."""
    seen = set()
    for rank in range(num_ranks):
        for name, found in load_file(folder / f"{what}-{rank}").items():
            error = float((found - expected[name]).norm() / expected[name].norm())
            assert error <= tolerance, f"{what} of {name} on rank {rank} are off by {error}"
            seen.add(name)
    assert seen == set(expected)
