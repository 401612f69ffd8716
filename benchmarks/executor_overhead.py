"""CPU of the executor's own work: what W of a transformer layer costs, and a compute instruction beside torch's.

python -m benchmarks.executor_overhead        (figures: benchmarks/executor_overhead.md)

Layers: one block of hidden size 32 with 24 tokens, so that the work is all overhead. Instructions: a line of linear
layers of width 4 on two gloo ranks, 32 micro-batches, an SGD step; ours and torch's public pipelining classes take
turns in the same processes. Main-thread CPU, least of many steps.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from planner.cutting.cut import cut_model
from planner.executor.deferral import Deferral
from planner.executor.deferred_functions import Work, do_works
from planner.executor.executor import Executor
from tests.helpers.executor_cases import make_line, make_model, make_plan, squares
from tests.helpers.ranks import Ranks

NUM_MICRO_BATCHES = 32
ROUNDS = 40
LAYER_ROUNDS = 300


class Rival(NamedTuple):
    """The same placement by both, and the order too but where torch moves W; ``torch_class`` None: torch has none."""

    groups: list[int]  # of each stage
    torch_class: Any


RIVALS = {
    "1f1b": Rival([0, 1], Schedule1F1B),
    "interleaved": Rival([0, 1, 0, 1], ScheduleInterleaved1F1B),
    "zb-h1": Rival([0, 1], None),
    "zb-v": Rival([0, 1, 1, 0], ScheduleZBVZeroBubble),
    "interleaved, split": Rival([0, 1, 0, 1], ScheduleInterleavedZeroBubble),
}


def main() -> None:
    torch.set_num_threads(1)
    print("a transformer layer, us CPU a micro-batch")
    for model in ("llama", "gpt2"):
        print(f"  {model:6} {layer_text(model)}")
    print("a compute instruction with its messages, us main-thread CPU, the slower rank")
    ranks = Ranks(2)
    try:
        for name in RIVALS:
            print(f"  {name:20} {rival_text(ranks.results('benchmarks.executor_overhead:compare', 2, name=name))}")
    finally:
        ranks.close()


def layer_text(model: str) -> str:
    layer = cut_model(make_model(model)).layers[2].module
    taken = torch.randn(2, 12, 32, requires_grad=True)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    deferral, works = Deferral([layer]), list[Work]()
    gradient = torch.ones_like(taken)

    def whole() -> list[float]:
        times = [time.thread_time()]
        output = layer(taken)
        times.append(time.thread_time())
        output.backward(gradient)
        return [*times, time.thread_time()]

    def split() -> list[float]:
        times = [time.thread_time()]
        with deferral.into(works):
            output = layer(taken)
        times.append(time.thread_time())
        with deferral.into(works):
            output.backward(gradient)
        times.append(time.thread_time())
        do_works(works)
        return [*times, time.thread_time()]

    forward, backward = least(whole)
    split_forward, inputs, weights = least(split)
    extra = split_forward + inputs + weights - forward - backward
    return (
        f"whole: F {forward:.0f}, B {backward:.0f}; split: F {split_forward:.0f}, I {inputs:.0f}, W {weights:.0f}; "
        f"split adds {extra:.0f}"
    )


def least(times_of: Callable[[], list[float]]) -> list[float]:
    """Least microseconds of each part."""
    rows = [times_of() for _ in range(LAYER_ROUNDS)]
    spans = [[later - earlier for earlier, later in pairwise(row)] for row in rows]
    return [min(column) * 1e6 for column in zip(*spans, strict=True)]


def rival_text(found: list[dict[str, float]]) -> str:
    ours = max(rank["ours"] for rank in found)
    if "torch" not in found[0]:
        return f"ours {ours:4.0f}"
    theirs = max(rank["torch"] for rank in found)
    return f"ours {ours:4.0f}   torch {theirs:4.0f}   ratio {ours / theirs:.2f}"


def compare(group: Any, *, name: str) -> dict[str, float]:
    """On each rank: least CPU of a step over its compute instructions, both in turns."""
    rival, rank = RIVALS[name], torch.distributed.get_rank(group)
    inputs = torch.ones(NUM_MICRO_BATCHES * 2, 3, 4)
    labels = torch.zeros_like(inputs)
    executor, num_instructions = make_ours(group, name, rank)
    steps: dict[str, Callable[[], object]] = {"ours": lambda: executor.step((inputs, labels))}
    if rival.torch_class is not None:
        steps["torch"] = make_torchs(group, rival, rank=rank, batch=(inputs, labels))
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(ROUNDS):
        for side, step in steps.items():
            torch.distributed.barrier(group)
            before = time.thread_time()
            step()
            best[side] = min(best[side], time.thread_time() - before)
    executor.close()
    return {side: seconds * 1e6 / num_instructions for side, seconds in best.items()}


def make_ours(group: Any, name: str, rank: int) -> tuple[Executor, int]:
    family, _, split = name.partition(", ")
    groups = RIVALS[name].groups
    model = make_line(len(groups))
    plan = make_plan(
        model,
        family=family,
        groups=[[0], [1]],
        stages=[(owner, layer, layer + 1, 1) for layer, owner in enumerate(groups)],
        routes=[list(range(len(groups)))],
        batches=[(0, 2)] * NUM_MICRO_BATCHES,
        tokens=3,
        split=bool(split),
    )
    executor = Executor(plan, model, squares, Tensor.numel, make_sgd, process_group=group, emulate=True)
    return executor, sum(instruction.operation in "FBIW" for instruction in plan.instructions[rank])


def make_sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3)


def make_torchs(group: Any, rival: Rival, *, rank: int, batch: tuple[Tensor, Tensor]) -> Callable[[], object]:
    model, num_stages = make_line(len(rival.groups)), len(rival.groups)
    own = [stage for stage, owner in enumerate(rival.groups) if owner == rank]
    stages = [PipelineStage(model[stage], stage, num_stages, torch.device("cpu"), group=group) for stage in own]
    schedule = rival.torch_class(stages[0] if num_stages == 2 else stages, NUM_MICRO_BATCHES, loss_fn=squares)
    optimizer = make_sgd([parameter for stage in own for parameter in model[stage].parameters()])
    rows, labels = (part.flatten(0, 1) for part in batch)  # torch's split backward fails on three dimensions here
    inputs = (rows,) if 0 in own else ()
    target = {"target": labels} if num_stages - 1 in own else {}

    def step() -> None:
        optimizer.zero_grad()
        schedule.step(*inputs, **target)
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
