"""Plans that the executor cannot carry out are refused by the feature's name, before any process group is used."""

from typing import Any

import pytest
import torch
from torch import nn

from planner.errors import ExecutorError, UnsupportedPlanError
from planner.executor.executor import Executor
from planner.plan.graph import LayerGraph
from planner.plan.mesh import Mesh
from planner.plan.plan import MicroBatch, Plan
from planner.problem.profile import Reads
from tests.helpers.executor_cases import adamw, changed, make_plan, token_count, token_loss

MODEL = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))


def base() -> Plan:
    """Two ranks in one group that share the samples: data 2."""
    return make_plan(
        MODEL,
        family="gpipe",
        groups=[[0, 1]],
        stages=[(0, 0, 3, 2)],
        routes=[[0]],
        batches=[(0, 4), (0, 4)],
        recompute=[0],
        tokens=8,
    )


def on_mesh(plan: Plan, **mesh: Any) -> Plan:
    stage = plan.stages[0].model_copy(update={"mesh": Mesh(**mesh)})
    return changed(plan, stages=(stage,))


def with_cuts(plan: Plan, *cuts: int) -> Plan:
    streams = ("0F0 0F1.0 0F1.1 0B0 0B1.1 0B1.0 0G0 0U0",) if len(cuts) > 2 else plan.streams
    return changed(
        plan, micro_batches=(plan.micro_batches[0], MicroBatch(route=0, samples=4, cuts=cuts)), streams=streams
    )


UNSUPPORTED = {
    "tensor > 1": lambda plan: on_mesh(plan, tensor=2),
    "context > 1": lambda plan: on_mesh(plan, context=2, exchange="ring"),
    "experts > 1": lambda plan: on_mesh(plan, data=2, experts=2),
    "shards > 1": lambda plan: on_mesh(plan, data=2, shards=2, sharded="optimizer"),
    "selective recompute": lambda plan: changed(
        plan, stages=(plan.stages[0].model_copy(update={"recompute": {"selective": (1,)}}),)
    ),
    "slices": lambda plan: with_cuts(plan, 0, 4, 8),
    "different lengths": lambda plan: with_cuts(plan, 0, 6),
    "reduced precision": lambda plan: changed(plan, precision="bf16"),
    "several updates": lambda plan: changed(plan, streams=("0F0 0B0 0G0 0U0 0F1 0B1 0G1 0U1",)),
    "later plan": lambda plan: changed(plan, streams=("0F0 0F1 0B0 0B1",)),
    "a loss beside": lambda plan: changed(
        plan,
        graph=LayerGraph(model=plan.graph.model, num_layers=3, reads=(Reads(layer=2, detached=(1,)),)),
    ),
}


@pytest.mark.parametrize("feature", list(UNSUPPORTED))
def test_what_is_not_supported_is_refused_by_name(feature: str) -> None:
    plan = UNSUPPORTED[feature](base())
    assert not torch.distributed.is_initialized()
    with pytest.raises(UnsupportedPlanError, match=feature) as caught:
        Executor(plan, MODEL, token_loss, token_count, adamw, emulate=True)
    assert caught.value.code == "unsupported_plan"


def test_a_supported_plan_of_two_ranks_asks_for_a_process_group() -> None:
    with pytest.raises(ExecutorError, match="one of 2 ranks") as caught:
        Executor(base(), MODEL, token_loss, token_count, adamw, emulate=True)
    assert caught.value.code == "no_process_group"
