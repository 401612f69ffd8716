"""Everything that is done once before step 0: agree with all ranks, hold the layers, make the lists.

What can be refused is refused before a weight is moved or a message sent. After the handshake come groups, clocks,
weights, optimizer and lists, in one order on all ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.cutting.layer import CutLayer
from planner.errors import PlannerError
from planner.executor.compute import Tools
from planner.executor.facts import Facts, Wish, comparable, gather_facts
from planner.executor.handshake import Handshake
from planner.executor.materialise import hold_layers, share_first_values
from planner.executor.measure import Recorder, clock_offset_ns
from planner.executor.messages import PostOffice
from planner.executor.program import Program, make_program
from planner.executor.saving import SavedTensor
from planner.executor.shapes import BatchShape
from planner.executor.stage import StageRunner
from planner.executor.sums import GradientSums
from planner.executor.team import Team
from planner.executor.update import Batch, Update
from planner.plan.instruction import Instruction, stream_text
from planner.plan.plan import Plan
from planner.schedules.lower import Send, lower

__all__ = ["Ready", "agree", "prepare"]


@dataclass(frozen=True)
class Ready:
    """What a step needs. ``tensors``: this rank's parameters and buffers by global name."""

    tensors: Mapping[str, Tensor]
    modules: tuple[nn.Module, ...]
    optimizer: Optimizer
    tools: Tools
    step: Program
    evaluation: Program
    saved: tuple[SavedTensor, ...]
    batch: BatchShape
    writers: tuple[Instruction, ...]  # of each message of a step, by tag


def agree(wish: Wish, team: Team, *, name: str) -> Facts:
    """The facts of this rank, equal on all ranks; otherwise every rank raises ``HandshakeError`` or its own refusal."""
    handshake = Handshake(team, name)
    try:
        facts = gather_facts(wish, team)
    except PlannerError as error:
        handshake.refuse(error)
        raise
    handshake.agree(comparable(wish, facts))
    return facts


def prepare(wish: Wish, facts: Facts, team: Team, *, name: str) -> Ready:
    """Every rank calls it after ``agree``. ``name``: the same on all ranks, used once."""
    plan, table = wish.plan, facts.table
    circles = team.circles((weight.holders for weight in table.weights.values()), name=name)
    recorder = Recorder(plan, team, clock_offset_ns(team))
    own = frozenset(layer for s in plan.stages if team.rank in plan.groups[s.group] for layer in s.layers)
    held = hold_layers(wish.model, facts.cut, held=own, device=team.device, seed=wish.seed)
    tensors: dict[str, Tensor] = {**held.parameters, **held.buffers}
    share_first_values(table, tensors, team, circles=circles)
    _freeze_untrained(facts, held.parameters)
    sums = GradientSums(facts.buckets, held.parameters, circles=circles)
    optimizer = wish.optimizer_factory(_trained(facts, held.parameters, team))
    counted = [held.parameters[weight.name] for weight in table.trained_by(team.rank) if weight.owner == team.rank]
    batch = Batch()
    tools = Tools(
        rank=team.rank,
        device=team.device,
        runners=_runners(plan, facts, held.layers, rank=team.rank),
        shapes=facts.shapes,
        width=max((len(b.layers) for layout in facts.layouts.values() for b in layout.given), default=1),
        office=PostOffice(team, _channels(facts, team)),
        sums=sums,
        update=Update(team, batch, sums=sums, optimizer=optimizer, counted=counted),
        recorder=recorder,
        batch=batch,
        loss=wish.loss,
    )
    return _ready(wish, facts, tools, tensors=tensors, optimizer=optimizer)


def _ready(wish: Wish, facts: Facts, tools: Tools, *, tensors: Mapping[str, Tensor], optimizer: Optimizer) -> Ready:
    forward_plan = only_forward(wish.plan)
    return Ready(
        tensors=tensors,
        modules=tuple(module for runner in tools.runners.values() for module in runner.modules),
        optimizer=optimizer,
        tools=tools,
        step=make_program(wish.plan, facts.lowered, tools),
        evaluation=make_program(forward_plan, lower(forward_plan), tools),
        saved=_saved(wish.model, facts),
        batch=facts.batch,
        writers=facts.lowered.writers,
    )


def _trained(facts: Facts, parameters: Mapping[str, nn.Parameter], team: Team) -> list[nn.Parameter]:
    """A rank that trains nothing gets an empty weight, so that its optimizer and schedulers exist as everywhere."""
    found = [parameters[weight.name] for weight in facts.table.trained_by(team.rank)]
    return found or [nn.Parameter(torch.zeros(0, device=team.device))]


def _runners(
    plan: Plan, facts: Facts, layers: tuple[CutLayer, ...], *, rank: int
) -> dict[tuple[int, int], StageRunner]:
    """Of the stages of this rank, by (route, stage)."""
    return {
        (route, stage): StageRunner(plan.stages[stage], layout, layers=layers, graph=plan.graph)
        for (route, stage), layout in facts.layouts.items()
        if rank in plan.groups[plan.stages[stage].group]
    }


def only_forward(plan: Plan) -> Plan:
    """The same plan without its backward: what is legal in order stays so with parts left out."""
    slices = [batch.num_slices for batch in plan.micro_batches]
    streams = tuple(stream_text((i for i in stream if i.operation == "F"), slices) for stream in plan.instructions)
    fields = {name: getattr(plan, name) for name in Plan.model_fields}
    return Plan(**{**fields, "streams": streams, "prediction": None, "provenance": None})


def _freeze_untrained(facts: Facts, parameters: Mapping[str, nn.Parameter]) -> None:
    """A stage that the plan visits without weight gradients is frozen, whatever the model says."""
    for name, parameter in parameters.items():
        if not facts.table.weights[name].trained:
            parameter.requires_grad_(False)


def _channels(facts: Facts, team: Team) -> dict[tuple[int, int, str], dist.ProcessGroup]:
    """NCCL has no tags: a communicator for each (sender, receiver, kind), made by all ranks in one order."""
    if team.device.type != "cuda" or team.group is None:
        return {}
    sends = {
        (entry.message.sender, entry.message.receiver, entry.message.kind)
        for entries in facts.lowered.lists
        for entry in entries
        if isinstance(entry, Send)
    }
    found: dict[tuple[int, int, str], dist.ProcessGroup] = {}
    for key in sorted(sends):
        made = dist.new_group([team.global_ranks[rank] for rank in sorted(key[:2])])
        if team.rank in key[:2]:
            found[key] = made
    return found


def _saved(model: nn.Module, facts: Facts) -> tuple[SavedTensor, ...]:
    """The names of the unsplit model's state, in its order, each with the weight that it stands for."""
    weights = facts.table.weights
    names = model.state_dict(keep_vars=True)
    return tuple(SavedTensor(name, weights[facts.cut.aliases.get(name, name)]) for name in names)
