"""The work of one measuring process, in this process."""

from pathlib import Path

import pytest
import torch

from planner.errors import ModelError
from planner.problem.workload import Optimizer, Precision
from profiles.protocol import Grid, Job
from profiles.source import ModelSource
from profiles.tasks import Tasks
from profiles.work import LayerTask, SplitTask, UpdateTask, clock_of

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
    shapes = [tuple(tasks.shape_of(n).value.shape) for n in range(4, 8)]
    assert shapes == [(1, 4, 32), (2, 4, 32), (1, 8, 32), (2, 8, 32)]
    assert [tasks.layer_of(n).kind for n in (0, 4, 8)] == ["embedding", "block", "head"]


def test_every_task_runs_and_takes_time() -> None:
    tasks = Tasks(job("tests.helpers.models:gpt2"), CPU)
    for number in range(tasks.num_layer_tasks):
        timing = tasks.task(number).run(clock_of(CPU))
        assert timing.forward_ns > 0
        assert timing.backward_ns > 0
        assert timing.weight_ns == 0
    for number in range(tasks.num_layer_tasks, tasks.num_layer_tasks + 3):
        assert tasks.task(number).run(clock_of(CPU)).forward_ns > 0


def test_layers_with_trained_weights_are_measured_with_a_split_backward_too() -> None:
    tasks = Tasks(job("measured_models.py:half_frozen"), CPU)
    assert tasks.measured == [0, 1, 2, 3]  # frozen embedding, activation, linear, head
    assert tasks.split == [*range(8, 16)]
    first = tasks.num_layer_tasks + 3
    assert tasks.shape_of(first + 2) is tasks.shape_of(10)
    for number in range(first, first + 8):
        split = tasks.task(number)
        assert isinstance(split, SplitTask)
        timing = split.run(clock_of(CPU))
        assert min(timing.forward_ns, timing.backward_ns, timing.weight_ns) > 0


def test_a_split_task_gives_the_gradients_of_the_whole_one() -> None:
    tasks = Tasks(job("tests.helpers.models:gpt2"), CPU)
    whole, split = tasks.task(7), tasks.task(tasks.num_layer_tasks + 3 + 7)
    parameters = list(tasks.layer_of(7).module.parameters())
    found = []
    for task in (whole, split):
        torch.manual_seed(5)  # of the gradient that comes in
        for parameter in parameters:
            parameter.grad = None
        task.run(clock_of(CPU))
        found.append([parameter.grad for parameter in parameters])
    for one, other in zip(*found, strict=True):
        assert one is not None
        torch.testing.assert_close(one, other)


def test_a_model_is_measured_in_its_own_precision() -> None:
    tasks = Tasks(job("tests.helpers.models:llama_bf16", precision="bf16"), CPU)
    assert {parameter.dtype for parameter in tasks.model.parameters()} == {torch.bfloat16}
    for number in (0, 4, 8):
        assert tasks.task(number).run(clock_of(CPU)).backward_ns > 0
    assert tasks.memory(4).output_bytes == 1 * 4 * 32 * 2  # two bytes a value


@pytest.mark.parametrize(
    ("factory", "precision", "found"),
    [("llama", "bf16", "float32"), ("llama", "fp16", "float32"), ("llama_bf16", "fp32", "bfloat16")],
)
def test_a_model_of_another_precision_is_refused(factory: str, precision: Precision, found: str) -> None:
    with pytest.raises(ModelError, match=f"'model.embed_tokens.weight' in {found}, expected") as caught:
        Tasks(job(f"tests.helpers.models:{factory}", precision=precision), CPU)
    assert (caught.value.code, caught.value.pointer) == ("precision_mismatch", "model.embed_tokens")


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
