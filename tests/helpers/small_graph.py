"""A small fp64 model for any layer graph: layers with attention that may be sliced, ties, frozen layers, local losses.

``run_plans`` compares each plan's gradients on ranks with the whole graph in one process.
"""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from planner.cutting.layer import CutLayer, CutModel
from planner.cutting.slicing import SliceOutput
from planner.executor import facts as facts_module
from planner.executor.executor import Executor
from planner.plan.mesh import Mesh
from planner.plan.plan import MicroBatch, Plan
from planner.problem.profile import TiedWeights
from planner.problem.reading import read_document
from planner.schedules.families import abstract_plan, family_lists
from planner.schedules.family import FamilyShape
from tests.helpers.documents import digest_of
from tests.helpers.executor_cases import changed
from tests.helpers.random_plans import random_plan

__all__ = ["executor_plan", "family_plan_of", "run_plans"]

WIDTH = 4
MESHES = (Mesh(), Mesh(), Mesh(data=2), Mesh(data=3))
LEAST_RANKS, MOST_RANKS = 2, 4


def executor_plan(source: random.Random) -> Plan:
    """A random plan of 2 to 4 ranks that the executor runs; micro-batches of unequal size, length and cuts."""
    while True:
        plan = random_plan(source, MESHES)
        if LEAST_RANKS <= plan.num_ranks <= MOST_RANKS:
            break
    least = max(stage.mesh.data for stage in plan.stages)
    batches = tuple(
        MicroBatch(route=batch.route, samples=source.randint(least, least + 2), cuts=_cuts(source, batch.num_slices))
        for batch in plan.micro_batches
    )
    return changed(plan, micro_batches=batches)


def family_plan_of(name: str, num_groups: int) -> Plan:
    """A named family on one rank a group, with micro-batches of unequal size, length and cuts."""
    source = random.Random(num_groups)
    plan = abstract_plan(family_lists(name, FamilyShape(num_groups, 2 * num_groups)))
    batches = (
        MicroBatch(route=batch.route, samples=source.randint(1, 2), cuts=_cuts(source, batch.num_slices))
        for batch in plan.micro_batches
    )
    return changed(plan, micro_batches=tuple(batches))


def _cuts(source: random.Random, num_slices: int) -> tuple[int, ...]:
    tokens = source.choice((6, 7, 7))
    return (0, *sorted(source.sample(range(1, tokens), num_slices - 1)), tokens)


class GraphLayer(nn.Module):
    """The sum of what it reads, causal attention over it, a residual."""

    num_carried = 2

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.forward_slice(inputs, before=(), first_token=0).output

    def forward_slice(
        self, inputs: Sequence[Tensor], *, before: Sequence[tuple[Tensor, ...]], first_token: int
    ) -> SliceOutput:
        hidden = torch.stack([torch.tanh(one) * (number + 1) for number, one in enumerate(inputs)]).sum(0)
        query, key, value = self.attend(self.norm(hidden)).chunk(3, dim=-1)
        keys = torch.cat([*(earlier[0] for earlier in before), key], dim=1)
        values = torch.cat([*(earlier[1] for earlier in before), value], dim=1)
        scores = query @ keys.transpose(1, 2)
        places = torch.arange(keys.shape[1], device=hidden.device)
        late = places[None, :] > places[first_token:, None]
        output = hidden + scores.masked_fill(late, float("-inf")).softmax(-1) @ values
        return SliceOutput(output, (key, value))


def graph_model(plan: Plan) -> nn.ModuleList:
    """A layer of the plan's graph each; tied layers share a weight, layers that no stage trains are frozen."""
    torch.manual_seed(3)
    layers = nn.ModuleList([GraphLayer() for _ in range(plan.graph.num_layers)]).double()
    trains = {visit.stage for visit, text in plan.visit_operations.items() if "B" in text or "W" in text}
    trained = {layer for stage in trains for layer in plan.stages[stage].layers}
    for layer, weight in enumerate(plan.graph.weight_of):
        layers[layer].attend.weight = layers[weight].attend.weight
        if layer not in trained:
            layers[layer].requires_grad_(False)
    return layers


def cut_graph_model(plan: Plan, model: nn.ModuleList) -> CutModel:
    """What a cutter that knows graphs would give."""
    first_names = {id(p): name for name, p in reversed(list(model.named_parameters(remove_duplicate=False)))}
    layers = []
    for number, module in enumerate(model):
        local = {name: first_names[id(parameter)] for name, parameter in module.named_parameters()}
        layers.append(
            CutLayer(
                id=str(number),
                kind="other",
                module=module,
                parameters={local[name]: parameter for name, parameter in module.named_parameters()},
                buffers={},
                local_names={full: (name,) for name, full in local.items()},
                fingerprint=digest_of(f"layer {number}"),
                causal=True,
            )
        )
    tied = tuple(TiedWeights(layers=tied, parameter_names=(f"{tied[0]}.attend.weight",)) for tied in plan.graph.tied)
    ids = tuple(layer.id for layer in layers)
    every = model.named_parameters(remove_duplicate=False)
    aliases = {name: first_names[id(p)] for name, p in every if name != first_names[id(p)]}
    return CutModel(tuple(layers), plan.graph.reads, tied, aliases, plan.graph.model, ids)


def squares(output: Tensor, labels: Tensor) -> Tensor:
    return ((output - labels) ** 2).sum()


def graph_batch(plan: Plan) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(6)
    samples = sum(batch.samples for batch in plan.micro_batches)
    shape = (samples, max(batch.cuts[-1] for batch in plan.micro_batches), WIDTH)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))  # type: ignore[return-value]


def whole_graph(plan: Plan, model: nn.ModuleList) -> float:
    """The loss of all micro-batches, whole samples through the whole graph; gradients are in the model."""
    inputs, labels = graph_batch(plan)
    counted = sum(batch.samples * batch.cuts[-1] * WIDTH for batch in plan.micro_batches)
    total, first = 0.0, 0
    for batch in plan.micro_batches:
        part = (slice(first, first + batch.samples), slice(0, batch.cuts[-1]))
        outputs: list[Tensor] = []
        for module, reads in zip(model, plan.graph.layer_reads, strict=True):
            read = [outputs[source] for source in reads.sources]
            read += [outputs[source].detach() for source in reads.detached]
            outputs.append(module(*(read or [inputs[part]])))
        loss = sum(squares(outputs[layer], labels[part]) for layer in _loss_layers(plan, batch.route)) / counted
        if loss.requires_grad:
            loss.backward()
        total, first = total + float(loss.detach()), first + batch.samples
    return total


def _loss_layers(plan: Plan, route: int) -> list[int]:
    """The last layer; layers that nobody reads with gradient where their stage on the route goes backward."""
    read = {source for reads in plan.graph.layer_reads for source in reads.sources}
    back = {visit.stage for visit, text in plan.visit_operations.items() if set("BIW") & set(text)}
    held = {layer for stage in plan.routes[route] if stage in back for layer in plan.stages[stage].layers}
    last = plan.graph.num_layers - 1
    return [layer for layer in range(last + 1) if layer == last or (layer in held and layer not in read)]


def run_plans(group: Any, *, plans: list[str]) -> list[dict[str, Any]]:
    """On a rank, of each plan: the worst error of its gradients, of the loss, and which weights it has compared."""
    return [_run_plan(group, read_document(text.encode(), Plan)) for text in plans]


def _run_plan(group: Any, plan: Plan) -> dict[str, Any]:
    expected, model = graph_model(plan), graph_model(plan)
    loss = whole_graph(plan, expected)
    ours = facts_module.cut_model
    model.example_batch = lambda samples, tokens: torch.randn(samples, tokens, WIDTH, dtype=torch.float64)
    try:
        facts_module.cut_model = lambda model, cut: cut_graph_model(plan, model)
        executor = Executor(plan, model, squares, Tensor.numel, _sgd, process_group=group, emulate=True)
    finally:
        facts_module.cut_model = ours
    trains = any("B" in text or "W" in text for text in plan.visit_operations.values())
    found = executor.step(graph_batch(plan)).loss
    executor.close()
    gradients = {name: p.grad for name, p in expected.named_parameters(remove_duplicate=False) if p.grad is not None}
    errors = {
        name: _error(parameter.grad, gradients[name])
        for name, parameter in executor.parameters().items()
        if name in gradients
    }
    assert trains or not gradients
    return {
        "error": max(errors.values(), default=0.0),
        "loss_error": abs(found - loss) / max(abs(loss), 1e-300),
        "names": sorted(errors),
        "expected": sorted(name for name, _ in expected.named_parameters() if name in gradients),
    }


def _error(found: Tensor | None, expected: Tensor) -> float:
    difference = expected if found is None else found - expected
    return float(difference.norm() / expected.norm().clamp_min(1e-300))


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)
