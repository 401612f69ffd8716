"""Everything that is done once before step 0: agree with all ranks, hold the layers, make the lists.

What can be refused is refused before a weight is moved or a message sent. After the handshake come groups, clocks,
weights, optimizer and lists, in one order on all ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.cutting.layer import CutLayer
from planner.errors import PlannerError
from planner.executor.compute import Tools
from planner.executor.draws import Draws
from planner.executor.evaluation import only_forward
from planner.executor.facts import Facts, Wish, comparable, gather_facts
from planner.executor.gathering import BatchPart, counted_parts, update_of_visit
from planner.executor.handshake import Handshake
from planner.executor.live import Live, make_live, trained_parameters
from planner.executor.measure import Recorder, clock_offset_ns
from planner.executor.messages import PostOffice
from planner.executor.program import Program, make_program
from planner.executor.rolling import Rolling, Trained
from planner.executor.saving import SavedTensor
from planner.executor.shapes import BatchShape
from planner.executor.stage import StageRunner
from planner.executor.sums import GradientSums
from planner.executor.team import Circle, Team
from planner.executor.update import Batch, Norm, Update
from planner.executor.versions import WeightVersions
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Instruction
from planner.schedules.lower import Send, lower

__all__ = ["Ready", "agree", "prepare"]


@dataclass(frozen=True)
class Ready:
    """What a step needs. ``tensors``: this rank's parameters and buffers by global name."""

    live: Live
    tensors: Mapping[str, Tensor]
    modules: tuple[nn.Module, ...]
    optimizer: Optimizer
    tools: Tools
    step: Program
    evaluation: Program
    saved: tuple[SavedTensor, ...]
    batch: BatchShape
    counted: tuple[tuple[BatchPart, ...], ...]  # parts of the labels, by update
    keeps_gradients: bool  # the plan goes backward and leaves its gradients to a later step
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


def prepare(wish: Wish, facts: Facts, team: Team, *, name: str, live: Live | None = None) -> Ready:
    """Every rank calls it after ``agree``. ``name``: the same on all ranks, used once. ``live``: of a plan before."""
    circles = team.circles((weight.holders for weight in facts.table.weights.values()), name=name)
    recorder = Recorder(wish.plan, team, clock_offset_ns(team))
    if live is None:
        live = make_live(wish, facts, team, circles=circles)
    rolling = _rolling(wish, facts, live, circles=circles, rank=team.rank)
    sums = GradientSums(facts.buckets if rolling is None else (), live.held.parameters, circles=circles)
    batch = Batch()
    tools = Tools(
        rank=team.rank,
        device=team.device,
        runners=_runners(wish, facts, live.held.layers, team=team),
        shapes=facts.shapes,
        width=max((len(b.layers) for layout in facts.layouts.values() for b in layout.given), default=1),
        office=PostOffice(team, _channels(facts, team)),
        sums=sums,
        update=_update(wish, live, team, batch=batch, sums=sums),
        recorder=recorder,
        batch=batch,
        loss=wish.loss,
        rolling=rolling,
    )
    return _ready(wish, facts, tools, live)


def _update(wish: Wish, live: Live, team: Team, *, batch: Batch, sums: GradientSums) -> Update:
    trained = trained_parameters(live.table, live.held, rank=team.rank)
    counted = (weight for name, weight in trained.items() if live.table.weights[name].owner == team.rank)
    norm = Norm(tuple(counted), tuple(trained.values()), wish.max_gradient_norm)
    return Update(team, batch, sums=sums, norm=norm, optimizer=live.optimizer)


def _ready(wish: Wish, facts: Facts, tools: Tools, live: Live) -> Ready:
    forward_plan = only_forward(wish.plan)
    return Ready(
        live=live,
        tensors=live.tensors,
        modules=tuple(module for runner in tools.runners.values() for module in runner.modules),
        optimizer=live.optimizer,
        tools=tools,
        step=make_program(wish.plan, facts.lowered, tools),
        evaluation=make_program(forward_plan, lower(forward_plan), tools),
        saved=_saved(wish.model, facts),
        batch=facts.batch,
        counted=counted_parts(wish.plan),
        keeps_gradients=bool(update_of_visit(wish.plan)) and not Dependencies(wish.plan).num_updates,
        writers=facts.lowered.writers,
    )


def _rolling(
    wish: Wish, facts: Facts, live: Live, *, circles: dict[tuple[int, ...], Circle], rank: int
) -> Rolling | None:
    """Where the step updates a weight several times."""
    if Dependencies(wish.plan).num_updates < 2:
        return None
    parameters = trained_parameters(facts.table, live.held, rank=rank)
    own = {layer for s in wish.plan.stages if rank in wish.plan.groups[s.group] for layer in s.layers}
    versions = WeightVersions([live.held.layers[number] for number in sorted(own)], parameters)
    buckets = tuple(bucket for bucket in facts.buckets if rank in bucket.holders)
    trained = Trained(facts.table, parameters, buckets, circles)
    return Rolling(wish.plan, trained, versions=versions, optimizer=live.optimizer, rank=rank)


def _runners(
    wish: Wish, facts: Facts, layers: tuple[CutLayer, ...], *, team: Team
) -> dict[tuple[int, int], StageRunner]:
    """Of the stages of this rank, by (route, stage)."""
    plan, draws = wish.plan, Draws(wish.seed, team.device)
    return {
        (route, stage): StageRunner(plan.stages[stage], layout, layers=layers, graph=plan.graph, draws=draws)
        for (route, stage), layout in facts.layouts.items()
        if team.rank in plan.groups[plan.stages[stage].group]
    }


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
