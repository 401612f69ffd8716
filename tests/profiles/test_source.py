"""Factories and losses by name."""

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from planner.errors import ModelError
from profiles.losses import example_labels, named_loss, squared_error, token_cross_entropy
from profiles.source import ModelSource, load_named


def test_a_function_of_a_file_and_of_an_installed_module(tmp_path: Path) -> None:
    (tmp_path / "own_model_a.py").write_text("class Made:\n    @staticmethod\n    def small():\n        return 5\n")
    assert load_named("own_model_a.py:Made.small", str(tmp_path))() == 5
    assert load_named("own_model_a:Made.small", str(tmp_path))() == 5
    assert load_named("math:sqrt", str(tmp_path))(4.0) == 2.0


@pytest.mark.parametrize("text", ["no_such_module_x:f", "math:nothing", "math:pi", "nothing.py:f"])
def test_what_cannot_be_loaded_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_named(text, str(tmp_path))
    assert caught.value.code == "bad_source"


@pytest.mark.parametrize("text", ["model", ":f", "m:", "m:1f", "m:f()"])
def test_a_source_has_the_form_module_factory(text: str) -> None:
    with pytest.raises(ValidationError):
        ModelSource(factory=text)


def test_token_labels_get_cross_entropy_and_values_a_squared_error() -> None:
    tokens, logits = torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 3, 5)
    labels = example_labels(logits, tokens)
    assert (labels.dtype, labels.shape, int(labels.max()) < 5) == (torch.int64, (2, 3), True)
    assert named_loss(None, ".", labels=labels) is token_cross_entropy
    values = example_labels(torch.zeros(2, 4), torch.zeros(2, 7))
    assert (values.is_floating_point(), values.shape) == (True, (2, 4))
    assert named_loss(None, ".", labels=values) is squared_error


def test_cross_entropy_of_equal_logits_is_log_of_the_vocabulary_a_token() -> None:
    loss = token_cross_entropy(torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.long))
    assert loss.item() == pytest.approx(6 * torch.log(torch.tensor(5.0)).item())


def test_a_loss_that_is_no_sum_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own_loss_a.py").write_text("def loss(output, labels):\n    return output - labels\n")
    loss = named_loss("own_loss_a:loss", str(tmp_path), labels=torch.zeros(2))
    with pytest.raises(ModelError) as caught:
        loss(torch.zeros(2), torch.zeros(2))
    assert caught.value.code == "bad_loss"


def test_the_user_s_loss_is_called(tmp_path: Path) -> None:
    (tmp_path / "own_loss_b.py").write_text("def loss(output, labels):\n    return (output * labels).sum()\n")
    loss = named_loss("own_loss_b.py:loss", str(tmp_path), labels=torch.zeros(2))
    value: Tensor = loss(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    assert value.item() == 11.0
