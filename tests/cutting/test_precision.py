"""The types of a model's weights against a precision."""

import pytest
import torch
from torch import nn

from planner.cutting.cut import cut_model
from planner.cutting.precision import precision_fault, require_precision
from planner.errors import HandshakeError, ModelError
from planner.executor.weights import check_model
from tests.helpers.executor_cases import CASES, make_model, make_plan


def test_the_first_layer_of_another_type_is_named() -> None:
    model = nn.Sequential(nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 4)).double()
    with pytest.raises(
        ModelError, match=r"layer '1': found '1.weight' in float64, expected float32 \(fp32\)"
    ) as caught:
        require_precision(cut_model(model), "fp32")
    assert (caught.value.code, caught.value.pointer) == ("precision_mismatch", "1")
    assert "or ask for" not in caught.value.message  # no precision has these bits


def test_a_model_of_the_precision_is_accepted() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        assert precision_fault(cut_model(model.to(dtype)), precision) is None  # type: ignore[arg-type]
    assert "or ask for the precision fp16" in precision_fault(cut_model(model), "fp32").message  # type: ignore[union-attr]


def test_the_executor_names_the_type_where_a_model_is_another() -> None:
    plan = make_plan(make_model("llama"), **CASES["2 ranks GPipe"])
    with pytest.raises(HandshakeError, match=r"; layer 'model.embed_tokens': found .* in float64, expected float32"):
        check_model(plan, cut_model(make_model("llama").double()))
