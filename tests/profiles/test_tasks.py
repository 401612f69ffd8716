"""The work of one measuring process, in this process."""

from pathlib import Path

import pytest
import torch

from planner.problem.workload import Optimizer, Precision
from profiles.protocol import Grid, Job
from profiles.source import ModelSource
from profiles.tasks import Tasks
from profiles.work import LayerTask, UpdateTask, clock_of

CPU = torch.device("cpu")


def job(factory: str, *, optimizer: Optimizer = "adamw", precision: Precision = "fp32") -> Job:
    return Job(
        source=ModelSource(factory=factory, folder=str(Path(__file__).parent)),
        grid=Grid(micro_batch_sizes=(1, 2), sequence_lengths=(4, 8)),
        precision=precision,
        optimizer=optimizer,
        rank=0,
        num_ranks=1,
        threads=1,
        device="cpu",
        usable_bytes=None,
        seed=0,
    )


def test_equal_layers_are_measured_once_by_every_shape() -> None:
    tasks = Tasks(job("tests.helpers.models:llama"), CPU)
    assert tasks.measured == [0, 1, 4]  # embedding, one of three blocks, head
    assert tasks.num_layer_tasks == 3 * 4
    assert [tuple(tasks.shapes[n].value.shape) for n in range(4, 8)] == [(1, 4, 32), (2, 4, 32), (1, 8, 32), (2, 8, 32)]
    assert [tasks.layer_of(n).kind for n in (0, 4, 8)] == ["embedding", "block", "head"]


def test_every_task_runs_and_takes_time() -> None:
    tasks = Tasks(job("tests.helpers.models:gpt2"), CPU)
    for number in range(tasks.num_layer_tasks):
        timing = tasks.task(number).run(clock_of(CPU))
        assert timing.forward_ns > 0
        assert timing.backward_ns > 0
    for number in range(tasks.num_layer_tasks, tasks.num_layer_tasks + 3):
        assert tasks.task(number).run(clock_of(CPU)).forward_ns > 0


def test_a_model_is_measured_in_the_precision_asked_for() -> None:
    tasks = Tasks(job("tests.helpers.models:llama", precision="bf16"), CPU)
    assert {parameter.dtype for parameter in tasks.model.parameters()} == {torch.bfloat16}
    for number in (0, 4, 8):
        assert tasks.task(number).run(clock_of(CPU)).backward_ns > 0
    assert tasks.memory(4).output_bytes == 1 * 4 * 32 * 2  # two bytes a value


def test_only_layers_after_the_first_give_an_input_gradient_and_only_the_last_has_the_loss() -> None:
    tasks = Tasks(job("tests.helpers.models:llama"), CPU)
    found = [task for n in (0, 4, 8) if isinstance(task := tasks.task(n), LayerTask)]
    assert [task.wants_input_gradient for task in found] == [False, True, True]
    assert [task.loss is not None for task in found] == [False, False, True]
    assert found[2].labels is not None
    assert int(found[2].labels.max()) < 61


def test_flops_of_a_head_worked_by_hand() -> None:
    # [1, 8, 32] x [32, 61]: 2 x 8 x 32 x 61 operations
    tasks = Tasks(job("tests.helpers.models:llama"), CPU)
    assert tasks.forward_flops(8 + 2) == 2 * 8 * 32 * 61


def test_a_layer_on_meta_is_measured_with_random_weights() -> None:
    real, meta = (Tasks(job(f"tests.helpers.models:{name}"), CPU) for name in ("llama", "llama_on_meta"))
    assert meta.cut.fingerprint == real.cut.fingerprint
    assert meta.task(4).run(clock_of(CPU)).backward_ns > 0
    assert meta.memory(4) == real.memory(4)
    weight = next(meta.layer_of(4).module.parameters())
    assert weight.device.type == "cpu"
    assert float(weight.detach().abs().sum()) > 0


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "sgd_momentum"])
def test_an_update_changes_copies_only(optimizer: Optimizer) -> None:
    tasks = Tasks(job("tests.helpers.models:llama", optimizer=optimizer), CPU)
    before = [parameter.detach().clone() for parameter in tasks.model.parameters()]
    update = tasks.task(tasks.num_layer_tasks)
    assert isinstance(update, UpdateTask)
    update.run(clock_of(CPU))
    assert all(torch.equal(*pair) for pair in zip(before, tasks.model.parameters(), strict=True))
    distinct = sum(p.numel() for n in tasks.measured for p in tasks.cut.layers[n].parameters.values())
    assert tasks.update_params[0] == distinct
    assert 0 < tasks.update_params[1] < distinct
