"""Pieces and staleness: what is summed with what, and how old the weights of a backward are."""

import pytest

from planner.plan.pieces import Piece, pieces, staleness
from tests.helpers.edits import edited
from tests.helpers.plan_json import chain_json, plan_json, read_plan

Json = dict[str, object]


def _asynchronous(num_stages: int, num_micro_batches: int) -> Json:
    """1F1B without a flush: stage s runs p-s forwards ahead and updates after each backward."""
    value = chain_json(num_stages, num_micro_batches)
    for stage in range(num_stages):
        ahead = min(num_stages - stage - 1, num_micro_batches)
        stream = [f"{stage}F{n}" for n in range(ahead)]
        for n in range(num_micro_batches):
            stream += [f"{stage}F{n + ahead}"] if n + ahead < num_micro_batches else []
            stream += [f"{stage}B{n}", f"{stage}G{n}", f"{stage}U{n}"]
        value = edited(value, f"/streams/{stage}", " ".join(stream))
    return value


def test_asynchronous_1f1b_is_stale_by_3_2_1_0() -> None:
    """Stage s of 4 has 3-s micro-batches under way: as many updates come between a forward and its backward."""
    assert staleness(read_plan(_asynchronous(4, 8))) == (3, 2, 1, 0)


def test_a_step_with_one_update_is_never_stale() -> None:
    assert staleness(read_plan(chain_json(4, 8))) == (0, 0, 0, 0)
    assert staleness(read_plan(chain_json(2, 2, backward="IW"))) == (0, 0)


def test_forward_only_is_never_stale() -> None:
    assert staleness(read_plan(chain_json(2, 2, backward=""))) == (0, 0)


def test_the_update_of_a_copy_on_the_same_group_counts() -> None:
    """Stages 0 and 1 hold the same layers on one group: 0U0 updates the weights between 1F1 and 1B1."""
    value = plan_json(
        groups=[[0]],
        stages=[
            {"group": 0, "first_layer": 0, "end_layer": 2},
            {"group": 0, "first_layer": 0, "end_layer": 2, "recompute": {"full": [0, 1]}},
        ],
        routes=[[0], [1]],
        micro_batches=[{"route": 0, "samples": 1, "cuts": [0, 8]}, {"route": 1, "samples": 1, "cuts": [0, 8]}],
    )
    late = "0F0 1F1 0B0 0G0 1G0 0U0 1B1 1U0 0G1 1G1 0U1 1U1"
    assert staleness(read_plan(edited(value, "/streams", [late]))) == (0, 1)
    early = "0F0 1F1 0B0 1B1 0G0 1G0 0U0 1U0"
    assert staleness(read_plan(edited(value, "/streams", [early]))) == (0, 0)


def _two_routes(graph: Json | None = None, backwards: dict[int, str] | None = None) -> Json:
    """Mirrored: layers 0-1 on groups 0 and 1 (stages 0, 3), layers 2-3 on groups 1 and 0 (stages 1, 2)."""
    return plan_json(
        groups=[[0], [1]],
        stages=[
            {"group": 0, "first_layer": 0, "end_layer": 2},
            {"group": 1, "first_layer": 2, "end_layer": 4},
            {"group": 1, "first_layer": 0, "end_layer": 2},
            {"group": 0, "first_layer": 2, "end_layer": 4},
        ],
        routes=[[0, 1], [2, 3]],
        micro_batches=[{"route": 0, "samples": 1, "cuts": [0, 8]}, {"route": 1, "samples": 1, "cuts": [0, 8]}],
        graph=graph,
        backwards=backwards,
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (chain_json(2, 1), (Piece((0,), (0,), (0,)), Piece((1,), (1,), (1,)))),
        (edited(chain_json(2, 1), "/graph/tied", [[0, 1]]), (Piece((0, 1), (0,), (0, 1)),)),
        (chain_json(2, 1, backward=""), ()),
        (_two_routes(), (Piece((0, 2), (0, 1), (0, 1)), Piece((1, 3), (2, 3), (0, 1)))),
        (
            _two_routes({"tied": [[0, 3]]}),
            (Piece((0, 1, 2, 3), (0,), (0, 1)), Piece((0, 2), (1,), (0, 1)), Piece((1, 3), (2,), (0, 1))),
        ),
        (_two_routes(backwards={0: "", 2: ""}), (Piece((1, 3), (2, 3), (0, 1)),)),  # a frozen front
    ],
)
def test_pieces(value: Json, expected: tuple[Piece, ...]) -> None:
    assert pieces(read_plan(value)) == expected


def test_kept_gradients_have_no_pieces() -> None:
    assert pieces(read_plan(edited(chain_json(1, 1), "/streams", ["0F0 0B0"]))) == ()
