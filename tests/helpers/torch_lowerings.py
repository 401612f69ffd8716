"""Torch's own lowered schedules as plans and lists: its actions rank by rank, one for one, nothing put in or moved.

A schedule is built on one process over stages that are no more than numbers; it works out the lists of all ranks.
Read from torch 2.13: ``pipeline_order_with_comms`` is no public name, so another version is refused, not guessed.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch.distributed.pipelining.schedules import get_schedule_class

from planner.plan.graph import LayerGraph, Node
from planner.plan.instruction import BACKWARDS, Instruction, Operation
from planner.plan.mesh import Range
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.schedules.lower import Compute, Entry, LoweredPlan, Message, MessageKind, Receive, Send

__all__ = ["ReceivePlace", "TorchLowering", "torch_lowering"]

ReceivePlace = Literal["default", "deferred"]  # deferred: by torch's ``defer_pp_recv``, towards the use
_TOKENS = 1  # of a micro-batch: the order of messages does not depend on their size
_OPERATIONS: dict[str, Operation] = {"F": "F", "B": "B", "I": "I", "W": "W"}
_EXCHANGES: dict[str, MessageKind] = {
    "SEND_F": "activation",
    "RECV_F": "activation",
    "SEND_B": "gradient",
    "RECV_B": "gradient",
}
_NO_DATA = {"UNSHARD", "RESHARD", "REDUCE_GRAD"}  # of sharded weights and data parallelism: nothing crosses a border
_PAIR = "OVERLAP_F_B"  # a forward and a backward run one after the other: torch overlaps them by a custom function only


@dataclass(frozen=True)
class TorchLowering:
    """The plan that the computing actions write, and torch's lists for it."""

    plan: Plan
    lowered: LoweredPlan


def torch_lowering(name: str, num_ranks: int, num_micro_batches: int, *, receives: ReceivePlace) -> TorchLowering:
    """Two stages a rank. Raises ``RuntimeError`` for a torch whose private lists have not been looked at."""
    lists = [_flat(actions) for actions in _torch_lists(name, num_ranks, num_micro_batches, receives)]
    plan = _plan(lists, num_micro_batches)
    return TorchLowering(plan, _Lists(plan).lowered(lists))


def _torch_lists(name: str, num_ranks: int, num_micro_batches: int, receives: ReceivePlace) -> list[list[Any]]:
    if not torch.__version__.startswith("2.13."):
        raise RuntimeError(f"found torch {torch.__version__}, expected 2.13: its private lists may mean something else")
    first, second = 0, 2 * num_ranks - 1 if name in {"ZBVZeroBubble", "DualPipeV"} else num_ranks
    stages = [
        SimpleNamespace(
            stage_index=index,
            num_stages=2 * num_ranks,
            group_size=num_ranks,
            group_rank=0,
            submod=torch.nn.Identity(),
        )
        for index in (first, second)
    ]
    made = get_schedule_class(name)(stages, num_micro_batches, defer_pp_recv=receives == "deferred")
    return [list(made.pipeline_order_with_comms[rank]) for rank in range(num_ranks)]


def _flat(actions: list[Any]) -> list[Any]:
    """Pairs taken apart; what moves no data between stages left out."""
    found = []
    for action in actions:
        if action.computation_type.name == _PAIR:
            found += list(action.sub_actions)
        elif action.computation_type.name not in _NO_DATA:
            found.append(action)
    return found


def _instruction(action: Any) -> Instruction | None:
    operation = _OPERATIONS.get(action.computation_type.value)
    return None if operation is None else Instruction(operation, action.stage_index, action.microbatch_index)


def _plan(lists: list[list[Any]], num_micro_batches: int) -> Plan:
    """One rank a group, one layer a stage; streams as torch orders its computing actions, without sums and updates."""
    streams = [[i for action in actions if (i := _instruction(action)) is not None] for actions in lists]
    group_of = {instruction.stage: group for group, stream in enumerate(streams) for instruction in stream}
    return Plan(
        schema_version="plan/1",
        problem="6f" + "0" * 62,
        precision="fp32",
        graph=LayerGraph(model="9c" + "0" * 62, num_layers=len(group_of)),
        nodes=(Node(node_group="nodes", device_kind="cpu", num_ranks=len(lists)),),
        groups=tuple((rank,) for rank in range(len(lists))),
        stages=tuple(Stage(group=group_of[n], first_layer=n, end_layer=n + 1) for n in range(len(group_of))),
        routes=(tuple(range(len(group_of))),),
        micro_batches=(MicroBatch(route=0, samples=1, cuts=(0, _TOKENS)),) * num_micro_batches,
        streams=tuple(" ".join(map(str, stream)) for stream in streams),
    )


class _Lists:
    """Messages by (kind, sender stage, micro-batch), numbered as they turn up."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._computed = {i for stream in plan.instructions for i in stream}
        self._messages: dict[tuple[MessageKind, int, int], Message] = {}
        self._writers: list[Instruction] = []
        self._readers: list[Instruction] = []

    def lowered(self, lists: list[list[Any]]) -> LoweredPlan:
        entries = tuple(tuple(self._entry(action) for action in actions) for actions in lists)
        return LoweredPlan(entries, (), tuple(self._writers), tuple(self._readers))

    def _entry(self, action: Any) -> Entry:
        instruction = _instruction(action)
        if instruction is not None:
            return Compute(instruction)
        name, stage = action.computation_type.name, action.stage_index
        kind = _EXCHANGES[name]
        forward = 1 if kind == "activation" else -1
        if name.startswith("SEND"):
            return Send(self._message(kind, stage, stage + forward, action.microbatch_index))
        return Receive(self._message(kind, stage - forward, stage, action.microbatch_index))

    def _message(self, kind: MessageKind, sender_stage: int, receiver_stage: int, micro_batch: int) -> Message:
        key = (kind, sender_stage, micro_batch)
        if key not in self._messages:
            self._messages[key] = Message(
                tag=len(self._writers),
                kind=kind,
                sender_stage=sender_stage,
                receiver_stage=receiver_stage,
                micro_batch=micro_batch,
                slice=0,
                sender=self._plan.stages[sender_stage].group,
                receiver=self._plan.stages[receiver_stage].group,
                samples=Range(0, 1),
                tokens=(Range(0, _TOKENS),),
            )
            self._writers.append(self._maker(kind, sender_stage, micro_batch))
            self._readers.append(self._maker(kind, receiver_stage, micro_batch))
        return self._messages[key]

    def _maker(self, kind: MessageKind, stage: int, micro_batch: int) -> Instruction:
        """The forward, or the first backward of the visit: what makes a message, and what takes it."""
        names: tuple[Operation, ...] = ("F",) if kind == "activation" else BACKWARDS
        found = (Instruction(name, stage, micro_batch) for name in names)
        return next(instruction for instruction in found if instruction in self._computed)
