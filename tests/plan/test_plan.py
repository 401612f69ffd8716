"""The example of the contract, field by field, and what a plan answers about itself."""

import json

import pytest

from planner.plan.borders import Transfer, is_handover, transfers
from planner.plan.instruction import Instruction, Visit, stream_text
from planner.plan.mesh import Range
from planner.plan.pieces import Piece, pieces, staleness, weight_stages
from planner.plan.plan import Plan, VisitShape
from planner.problem.canonical import document_bytes
from planner.problem.reading import read_document
from tests.helpers.edits import edited, json_of, without
from tests.helpers.plan_json import EXAMPLE, EXAMPLE_DIGEST, read_plan, runs_to_the_end

PLAN = read_plan(EXAMPLE)


def test_digest_of_the_example() -> None:
    assert PLAN.digest == EXAMPLE_DIGEST


def test_prediction_and_provenance_are_not_in_the_digest() -> None:
    for name in ("prediction", "provenance"):
        assert read_plan(without(EXAMPLE, f"/{name}")).digest == EXAMPLE_DIGEST
    assert read_plan(edited(EXAMPLE, "/provenance/seed", 7)).digest == EXAMPLE_DIGEST


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/problem", "70" + "0" * 62),
        ("/precision", "fp16"),
        ("/graph/model", "9d" + "0" * 62),
        ("/nodes/0/node_group", "bigger"),
        ("/stages/2/recompute", {"full": [1, 2, 3]}),
        ("/micro_batches/0/samples", 5),
        ("/streams/0", "0F0 0F1 0F2 0B0 0B1 0B2 0G0 0U0"),
    ],
)
def test_all_that_an_executor_obeys_is_in_the_digest(pointer: str, value: object) -> None:
    assert read_plan(edited(EXAMPLE, pointer, value)).digest != EXAMPLE_DIGEST


def test_defaults_written_out_are_the_same_plan() -> None:
    again = read_document(document_bytes(PLAN), Plan)
    assert again == PLAN
    assert again.digest == EXAMPLE_DIGEST
    assert json_of(PLAN)["stages"][1]["mesh"]["exchange"] == "none"  # type: ignore[index]


def test_cached_answers_do_not_change_equality() -> None:
    fresh = read_plan(EXAMPLE)
    assert PLAN.instructions
    assert fresh == PLAN


def test_example_pieces() -> None:
    """Layers 0 and 5 over stages 0, 1, 2; layers 1-2 over 0, 2; layers 3-4 over 1, 2."""
    assert pieces(PLAN) == (
        Piece((0, 1, 2), (0,), (0, 1, 2, 3, 4)),
        Piece((0, 2), (1, 2), (0, 1, 4)),
        Piece((1, 2), (3, 4), (2, 3, 4)),
    )
    assert weight_stages(PLAN) == {0: (0, 1, 2), 1: (0, 2), 2: (0, 2), 3: (1, 2), 4: (1, 2)}


def test_example_border() -> None:
    """0->2, 0->3 tokens [0,1024), 1->2, 1->3 [1024,2048), samples [0,2) to rank 2, [2,4) to rank 3."""
    assert transfers(PLAN, 0, 1, Visit(0, 0, 0)) == (
        Transfer(0, 2, Range(0, 2), (Range(0, 1024),)),
        Transfer(1, 2, Range(0, 2), (Range(1024, 2048),)),
        Transfer(0, 3, Range(2, 4), (Range(0, 1024),)),
        Transfer(1, 3, Range(2, 4), (Range(1024, 2048),)),
    )


def test_example_gradient_border() -> None:
    """The way back: each rank of stage 0 needs all samples of its half of the tokens, from both data ranks."""
    assert transfers(PLAN, 1, 0, Visit(1, 0, 0)) == (
        Transfer(2, 0, Range(0, 2), (Range(0, 1024),)),
        Transfer(3, 0, Range(2, 4), (Range(0, 1024),)),
        Transfer(2, 1, Range(0, 2), (Range(1024, 2048),)),
        Transfer(3, 1, Range(2, 4), (Range(1024, 2048),)),
    )
    assert not is_handover(PLAN, 0, 1)


def test_example_text_comes_back() -> None:
    slices = [batch.num_slices for batch in PLAN.micro_batches]
    assert tuple(stream_text(stream, slices) for stream in PLAN.instructions) == PLAN.streams
    assert PLAN.instructions[2][2] == Instruction("R", 2, 3, 1)
    assert PLAN.visit_operations[Visit(2, 3, 1)] == "FRB"
    assert PLAN.visit_operations[Visit(1, 0, 0)] == "FIW"


def test_example_runs_and_is_not_stale() -> None:
    assert runs_to_the_end(PLAN)
    assert staleness(PLAN) == (0, 0, 0)


def test_ranks_nodes_groups_and_samples() -> None:
    assert PLAN.num_ranks == 5
    assert PLAN.rank_nodes == (0, 0, 0, 0, 1)
    assert PLAN.group_of_rank == (0, 0, 1, 1, 2)
    assert [PLAN.group_kind(group) for group in range(3)] == ["A100-SXM-80GB", "A100-SXM-80GB", "L4"]
    assert PLAN.stages_of_group(2) == (2,)
    assert [PLAN.first_sample(number) for number in range(4)] == [0, 4, 8, 12]
    assert PLAN.visit_shape(3, 1) == VisitShape(1, 1024, 2048)


def test_gap_of_the_prediction() -> None:
    plan = read_plan(edited(EXAMPLE, "/prediction/bound_ns", 23_500_000))
    assert plan.prediction is not None
    assert plan.prediction.gap == pytest.approx(0.4)  # (32.9 - 23.5) / 23.5


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        PLAN.precision = "fp32"  # type: ignore[misc]


def test_schema_is_named_when_it_is_another() -> None:
    with pytest.raises(ValueError, match="plan/1"):
        Plan.model_validate_json(json.dumps(edited(EXAMPLE, "/schema", "plan/2")))
