"""Optimizer states go on bit for bit, whatever torch's optimizer keeps; what has no place in a checkpoint is named."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed import checkpoint as dcp

from planner.errors import CheckpointError
from planner.executor.checkpoints.folder import newest, open_manifest
from planner.executor.checkpoints.storage import ManifestReader
from tests.helpers.checkpoint_cases import batch, line_executor, state_hashes
from tests.helpers.executor_cases import make_line

Factory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

KEPT: dict[str, Factory] = {
    "SGD": partial(torch.optim.SGD, lr=0.1),
    "SGD momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "Adam amsgrad": partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    "AdamW": partial(torch.optim.AdamW, lr=0.01),
    "NAdam": partial(torch.optim.NAdam, lr=0.01),
    "RAdam": partial(torch.optim.RAdam, lr=0.01),
    "Adamax": partial(torch.optim.Adamax, lr=0.01),
    "Adagrad": partial(torch.optim.Adagrad, lr=0.01),
    "Adadelta": partial(torch.optim.Adadelta, lr=0.5),
    "RMSprop": partial(torch.optim.RMSprop, lr=0.01, momentum=0.5, centered=True),
    "Rprop": partial(torch.optim.Rprop, lr=0.01),
    "ASGD": partial(torch.optim.ASGD, lr=0.01),
}


@pytest.mark.parametrize("name", KEPT)
def test_an_optimizer_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    first = line_executor(optimizer=KEPT[name])
    for step in range(3):
        first.step(batch(step))
    first.save(tmp_path)
    second = line_executor(optimizer=KEPT[name])
    second.step(batch(9))  # a state that must go
    second.load(tmp_path)
    assert state_hashes(second) == state_hashes(first)
    for step in range(3, 6):
        assert second.step(batch(step)).loss == first.step(batch(step)).loss
    assert state_hashes(second) == state_hashes(first)


@pytest.mark.parametrize(
    ("factory", "named"),
    [
        (partial(torch.optim.Adafactor, lr=0.01), "row_var of 0.weight in torch.optim.Adafactor"),
        (partial(torch.optim.AdamW, lr=torch.tensor(0.01)), "the optimizer's setting lr"),
    ],
)
def test_what_has_no_place_is_named_and_nothing_is_written(factory: Factory, named: str, tmp_path: Path) -> None:
    executor = line_executor(optimizer=factory)
    executor.step(batch(0))
    with pytest.raises(CheckpointError, match=named.replace(".", r"\.")) as caught:
        executor.save(tmp_path)
    assert caught.value.code in ("optimizer_state", "optimizer_option")
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_settings_of_groups_come_back(tmp_path: Path) -> None:
    """Two groups, a scheduler that has changed the learning rate."""

    def by_kind(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        found = list(parameters)
        biases = [parameter for parameter in found if parameter.ndim == 1]
        others = [parameter for parameter in found if parameter.ndim > 1]
        return torch.optim.AdamW([{"params": others}, {"params": biases, "weight_decay": 0.0}], lr=0.1)

    first = line_executor(optimizer=by_kind)
    scheduler = torch.optim.lr_scheduler.StepLR(first.optimizer, step_size=1, gamma=0.5)
    first.step(batch(0))
    scheduler.step()
    first.save(tmp_path)
    second = line_executor(optimizer=by_kind)
    second.load(tmp_path)
    settings = [{k: v for k, v in group.items() if k != "params"} for group in second.optimizer.param_groups]
    assert settings == [{k: v for k, v in group.items() if k != "params"} for group in first.optimizer.param_groups]
    assert settings[0]["lr"] == 0.05


def test_dropout_goes_on_with_the_same_masks(tmp_path: Path) -> None:
    def dropping() -> nn.Sequential:
        return nn.Sequential(make_line(1)[0], nn.Dropout(0.5), make_line(1)[0])

    torch.manual_seed(3)
    first = line_executor(dropping())
    first.step(batch(0))
    first.save(tmp_path)
    expected = [first.step(batch(step)).loss for step in range(1, 4)]
    torch.manual_seed(99)
    second = line_executor(dropping())
    second.load(tmp_path)
    assert [second.step(batch(step)).loss for step in range(1, 4)] == expected


def test_torch_reads_a_checkpoint_by_itself(tmp_path: Path) -> None:
    """``torch.distributed.checkpoint.load`` with this reader, into the unsplit model's own names."""
    executor = line_executor()
    executor.step(batch(0))
    path = executor.save(tmp_path)
    wanted = {f"model.{name}": torch.zeros_like(p) for name, p in executor.parameters().items()}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(wanted, storage_reader=ManifestReader(path), no_dist=True)
    assert all(torch.equal(wanted[f"model.{name}"], p) for name, p in executor.parameters().items())
    assert open_manifest(newest(tmp_path)).steps == 1
