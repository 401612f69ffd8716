"""State of a parameter, and the bounds of a step."""

import pytest

from planner.problem.workload import Workload
from tests.helpers.documents import make_workload
from tests.helpers.edits import edited, json_of, refusal


@pytest.mark.parametrize(
    ("precision", "optimizer", "expected"),
    [
        # weight + gradient + optimizer state; 16 bit: weight 2, gradient 4, master weight 4
        ("fp32", "adamw", 4 + 4 + 8),
        ("fp32", "adam", 4 + 4 + 8),
        ("fp32", "sgd", 4 + 4),
        ("fp32", "sgd_momentum", 4 + 4 + 4),
        ("bf16", "adamw", 2 + 4 + 4 + 8),
        ("fp16", "adamw", 2 + 4 + 4 + 8),
        ("bf16", "sgd", 2 + 4 + 4),
    ],
)
def test_state_of_a_parameter(precision: str, optimizer: str, expected: int) -> None:
    workload = Workload(
        schema_version="workload/1",
        global_batch_size=1,
        sequence_length=1,
        precision=precision,  # type: ignore[arg-type]
        optimizer=optimizer,  # type: ignore[arg-type]
    )
    assert workload.state_bytes_per_parameter == expected


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/global_batch_size", 0),
        ("/global_batch_size", -1),
        ("/global_batch_size", 2**20 + 1),
        ("/sequence_length", 0),
        ("/sequence_length", 2**24 + 1),
    ],
)
def test_counts_out_of_range(pointer: str, value: int) -> None:
    error = refusal(edited(json_of(make_workload()), pointer, value), Workload)
    assert (error.code, error.pointer) == ("range", pointer)
