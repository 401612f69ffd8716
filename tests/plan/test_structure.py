"""Section 9 of the contract, rule by rule: each row breaks one thing of the example or of a small plan."""

import json
import time

import pytest

from planner.plan.plan import Plan
from planner.problem.reading import read_document
from tests.helpers.edits import edited, refusal, without
from tests.helpers.plan_json import EXAMPLE, chain_json, plan_json, read_plan

Json = dict[str, object]
CHAIN = chain_json(2, 2)  # 0F0 0F1 0B0 0B1 0G0 0U0 | 1F0 1F1 1B0 1B1 1G0 1U0
LONG = edited(CHAIN, "/micro_batches/1/cuts", [0, 8, 8])


def _mesh(stage: int = 1, **mesh: object) -> Json:
    """The example with another mesh on a stage; stage 1 has two ranks, stage 2 one."""
    return edited(EXAMPLE, f"/stages/{stage}/mesh", mesh)


def _streams(*streams: str, value: Json = CHAIN) -> Json:
    return edited(value, "/streams", list(streams))


ONE = ("0F0 0F1 0B0 0B1 0G0 0U0", "1F0 1F1 1B0 1B1 1G0 1U0")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        # 1: ranks, nodes, groups, streams
        (edited(EXAMPLE, "/groups", [[0, 1], [2, 3], [3]]), "ranks"),
        (edited(EXAMPLE, "/groups", [[0, 1], [2, 3], [5]]), "ranks"),
        (edited(EXAMPLE, "/groups", [[0, 1], [2, 3], []]), "ranks"),
        (edited(EXAMPLE, "/groups", []), "ranks"),
        (edited(EXAMPLE, "/groups/-", []), "ranks"),
        (edited(EXAMPLE, "/nodes/1/num_ranks", 2), "ranks"),
        (edited(EXAMPLE, "/nodes/1/num_ranks", 2**53 - 1), "ranks"),
        (edited(EXAMPLE, "/groups", [[0, 1], [2, 4], [3]]), "group_kinds"),
        (edited(EXAMPLE, "/streams", EXAMPLE["streams"][:2]), "streams"),  # type: ignore[index]
        (edited(EXAMPLE, "/streams/-", "0F0"), "streams"),
        # 2: meshes
        (edited(EXAMPLE, "/stages/2/group", 3), "mesh"),
        (_mesh(data=1), "mesh"),
        (_mesh(data=2, tensor=2), "mesh"),
        (_mesh(data=2, experts=4), "mesh"),
        (_mesh(tensor=2, experts=2), "mesh"),  # experts are dealt over data x context = 1
        (_mesh(data=2, shards=4, sharded="optimizer"), "mesh"),
        (_mesh(data=2, shards=2), "mesh"),
        (_mesh(data=2, sharded="optimizer"), "mesh"),
        (_mesh(context=2), "mesh"),
        (_mesh(data=2, exchange="ring"), "mesh"),
        (_mesh(data=2, border="sharded"), "mesh"),
        (_mesh(2, data=1, context=1, tensor=1, border="sharded"), "mesh"),
        (edited(EXAMPLE, "/stages/2/recompute", {"full": [6]}), "recompute"),
        (edited(EXAMPLE, "/stages/1/recompute", {"full": [2]}), "recompute"),
        (edited(EXAMPLE, "/stages/2/recompute", {"full": [1, 1]}), "recompute"),
        (edited(EXAMPLE, "/stages/2/recompute", {"full": [1], "selective": [1]}), "recompute"),
        (edited(EXAMPLE, "/stages/2/recompute", {"full": [2, 1]}), "recompute"),
        (edited(EXAMPLE, "/stages/2/recompute", {"full": []}), "recompute"),
        (edited(EXAMPLE, "/stages/2/recompute", {"half": [1]}), "choice"),
        # 3: the graph
        (edited(EXAMPLE, "/graph/reads", [{"layer": 2, "sources": [2]}]), "cycle"),
        (edited(EXAMPLE, "/graph/reads", [{"layer": 2, "sources": [4]}]), "cycle"),
        (edited(EXAMPLE, "/graph/reads", [{"layer": 6, "sources": [0]}]), "dangling_edge"),
        (edited(EXAMPLE, "/graph/reads", [{"layer": 2, "sources": [1, 1]}]), "graph_order"),
        (edited(EXAMPLE, "/graph/reads", [{"layer": 2, "sources": [1], "detached": [1]}]), "graph_order"),
        (edited(EXAMPLE, "/graph/reads", [{"layer": 2, "sources": [1]}]), "graph_default"),
        (edited(EXAMPLE, "/graph/reads", [{"layer": 0}]), "graph_default"),
        (edited(EXAMPLE, "/graph/tied", [[0, 5], [5, 4]]), "graph_tied"),
        (edited(EXAMPLE, "/graph/tied", [[0, 5], [4, 5]]), "graph_tied"),
        (edited(EXAMPLE, "/graph/tied", [[0]]), "graph_tied"),
        (edited(EXAMPLE, "/graph/tied", [[0, 6]]), "dangling_edge"),
        # 4: routes
        (edited(EXAMPLE, "/stages/1/end_layer", 5), "layer_cover"),
        (edited(EXAMPLE, "/stages/1/first_layer", 2), "layer_cover"),
        (edited(EXAMPLE, "/stages/1/first_layer", 4), "layer_cover"),
        (edited(EXAMPLE, "/stages/1/end_layer", 7), "layer_cover"),
        (edited(CHAIN, "/stages/1/end_layer", 1), "layer_cover"),
        (edited(EXAMPLE, "/routes/0", [1, 0]), "layer_cover"),
        (edited(EXAMPLE, "/routes/0", [0, 0, 1]), "layer_cover"),
        (edited(EXAMPLE, "/routes/1", []), "layer_cover"),
        (edited(EXAMPLE, "/routes/1", [3]), "routes"),
        (edited(EXAMPLE, "/graph/num_layers", 7), "layer_cover"),
        (edited(EXAMPLE, "/stages/-", {"group": 2, "first_layer": 0, "end_layer": 6}), "idle"),
        (edited(EXAMPLE, "/routes", [[0, 1]]), "idle"),
        (edited(EXAMPLE, "/routes/-", [2]), "idle"),
        (edited(EXAMPLE, "/micro_batches/3/route", 2), "idle"),
        (edited(EXAMPLE, "/micro_batches", []), "idle"),
        (
            edited(edited(EXAMPLE, "/routes/-", [0, 1]), "/micro_batches/2/route", 2),
            "duplicate",
        ),
        (
            edited(
                edited(
                    edited(EXAMPLE, "/stages/-", EXAMPLE["stages"][2]),  # type: ignore[index]
                    "/routes/-",
                    [3],
                ),
                "/micro_batches/2/route",
                2,
            ),
            "duplicate",
        ),
        # 5: micro-batches
        (edited(EXAMPLE, "/micro_batches/0/samples", 0), "range"),
        (edited(EXAMPLE, "/micro_batches/0/samples", 1), "micro_batch"),  # stage 1 spreads them over 2
        (edited(EXAMPLE, "/micro_batches/0/cuts", [0, 1]), "micro_batch"),  # stage 0: two tensor ranks
        (edited(EXAMPLE, "/micro_batches/0/cuts", [1, 2048]), "micro_batch"),
        (edited(EXAMPLE, "/micro_batches/0/cuts", [0]), "too_short"),
        (edited(EXAMPLE, "/micro_batches/3/cuts", [0, 1024, 1024]), "micro_batch"),
        (edited(EXAMPLE, "/micro_batches/3/cuts", [0, 1024, 1000]), "micro_batch"),
        (LONG, "micro_batch"),
        # 7: text and place of instructions
        (_streams("0F0 0F1 0B0 0B1 0G0 0U0 ", ONE[1]), "stream_text"),
        (_streams("0F0  0F1 0B0 0B1 0G0 0U0", ONE[1]), "stream_text"),
        (_streams("0F0\t0F1 0B0 0B1 0G0 0U0", ONE[1]), "stream_text"),
        (_streams("0F0 0F01 0B0 0B1 0G0 0U0", ONE[1]), "stream_text"),
        (_streams("0F0.0 0F1 0B0 0B1 0G0 0U0", ONE[1]), "stream_text"),
        (_streams("0F0 0F1 0B0 0B1 0G0.0 0U0", ONE[1]), "stream_text"),
        (_streams("0F0 0F1 0B0 0B1 0X0 0U0", ONE[1]), "stream_text"),
        (_streams("", ONE[1]), "stream_text"),
        (edited(EXAMPLE, "/streams/2", "2F3 2F3.1 2R3.1 2B3.1 2R3.0 2B3.0 2G0 2U0"), "stream_text"),
        (_streams("0F0 0F1 0B0 0B1 0G0 0U0 0F1", ONE[1]), "stream_twice"),
        (_streams("0F0 0F1 0B0 0B1 0G0 0G0 0U0", ONE[1]), "stream_twice"),
        (_streams("0F0 0F1 0B0 0B1 0G0 0U0 2F0", ONE[1]), "stream_stage"),
        (_streams(ONE[1], ONE[0]), "stream_group"),
        (_streams("0F0 0F1 0F2 0B0 0B1 0G0 0U0", ONE[1]), "stream_visit"),
        (edited(EXAMPLE, "/streams/0", "0F0 0F1 0B0 0F2 0B1 0B2 0F3 0G0 0U0"), "stream_visit"),  # another route's
        (edited(EXAMPLE, "/streams/2", "2F3.0 2F3.1 2F3.2 2B3.1 2B3.0 2G0 2U0"), "stream_visit"),
        # 8: visits
        (_streams("0F0 0F1 0B0 0G0 0U0", ONE[1].replace("1B1 ", "")), "visits_agree"),
        (_streams("0F0 0B0 0B1 0G0 0U0", ONE[1]), "visit"),
        (_streams("0F0 0F1 0B0 0I0 0B1 0G0 0U0", ONE[1]), "visit"),
        (_streams("0F0 0F1 0B0 0W0 0B1 0G0 0U0", ONE[1]), "visit"),
        (_streams("0F0 0F1 0R0 0B0 0B1 0G0 0U0", ONE[1]), "visit"),  # nothing to bring back
        (
            edited(_streams("0F0 0F1 0R0", "1F0 1F1"), "/stages/0/recompute", {"full": [0]}),
            "visit",
        ),  # R without a backward
        # 9: visits of a stage, and holders of a weight, agree
        (_streams("0F0 0F1 0B0 0G0 0U0", ONE[1]), "visits_agree"),
        (_streams("0F0 0F1 0B0 0I1 0G0 0U0", ONE[1]), "visits_agree"),
        (edited(_streams("0F0 0F1 0I0 0I1", ONE[1]), "/graph/tied", [[0, 1]]), "visits_agree"),
        # 10: no gradient is lost
        (_streams(ONE[0], "1F0 1F1 1W0 1W1 1G0 1U0"), "gradient_lost"),
        (_streams(ONE[0], "1F0 1F1"), "gradient_lost"),
        (_streams(ONE[0], "1F0 1F1 1B0 1W1 1G0 1U0"), "gradient_lost"),
        (_streams(ONE[0], "1F0 1F1 1W0 1B1 1G0 1U0"), "gradient_lost"),  # the first visit counts as the last
        # 11: updates
        (_streams(ONE[0], "1F0 1F1 1B0 1B1"), "updates"),
        (_streams("0F0 0F1 0I0 0I1 0G0 0U0", ONE[1]), "updates"),
        (_streams("0F0 0F1 0B0 0B1 0U0", ONE[1]), "updates"),
        (_streams("0F0 0F1 0B0 0B1 0G0", ONE[1]), "updates"),
        (_streams("0F0 0F1 0B0 0B1 0U0 0G0", ONE[1]), "updates"),
        (_streams("0F0 0F1 0B0 0B1 0G1 0U1", ONE[1]), "updates"),
        (_streams("0F0 0F1 0B0 0G0 0B1 0U0", ONE[1]), "updates"),
        (_streams("0F0 0F1 0B0 0G0 0U0 0B1", ONE[1]), "updates"),
        (_streams("0F0 0F1 0B0 0G0 0G1 0B1 0U0 0U1", ONE[1]), "updates"),
        (
            edited(_streams("0F0 0F1 0B0 0G0 0U0 0B1 0G1 0U1", ONE[1]), "/graph/tied", [[0, 1]]),
            "updates",
        ),
        # 12: the prediction
        (edited(EXAMPLE, "/prediction/bound_ns", 32900001), "prediction"),
        (edited(EXAMPLE, "/prediction/peak_bytes", [1, 1]), "prediction"),
        (edited(EXAMPLE, "/prediction/memory_limit_bytes", [1, 1, 1, 1]), "prediction"),
        (edited(EXAMPLE, "/prediction/bubble", 1), "range"),
        (edited(EXAMPLE, "/prediction/bubble", -0.1), "range"),
        (edited(EXAMPLE, "/prediction/costs", "guessed"), "pattern"),
        # sizes, before anything is expanded
        (edited(EXAMPLE, "/graph/num_layers", 4097), "limit"),
        (edited(EXAMPLE, "/graph/num_layers", 2**53 - 1), "limit"),
        (edited(EXAMPLE, "/nodes", [{}] * 16_385), "limit"),
        (edited(EXAMPLE, "/micro_batches", [{}] * (2**17 + 1)), "limit"),
    ],
)
def test_a_plan_that_breaks_a_rule(value: Json, code: str) -> None:
    error = refusal(value, Plan)
    assert error.code == code, error.message


@pytest.mark.parametrize(
    "value",
    [
        _streams(*ONE),
        _streams("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"),  # gradients are kept for a later plan
        _streams("0F0 0F1", "1F0 1F1"),  # forward only
        _streams("0F0 0F1 0W0 0W1 0G0 0U0", ONE[1]),  # the first layers give nothing back
        _streams("0F0 0F1 0W0 0B1 0G0 0U0", ONE[1]),  # and nobody asks them to
        _streams("0F0 0F1", "1F0 1F1 1W0 1W1 1G0 1U0"),  # a frozen front
        _streams("0F0 0F1", "1F0 1F1 1B0 1W1 1G0 1U0"),
        _streams("0F0 0F1 0I0 0I1", ONE[1]),  # no weights
        _streams("0F0 0F1 0B0 0I1 0W1 0G0 0U0", "1F0 1F1 1I0 1W0 1B1 1G0 1U0"),  # B beside I W
        _streams("0F0 0F1 0B0 0G0 0U0 0B1 0G1 0U1", ONE[1]),  # no weight is shared
        _streams("0F0 0G0 0U0 0F1 0B0 0B1 0G1 0U1", ONE[1]),
        edited(_streams("0F0 0F1 0R1 0B0 0B1 0G0 0U0", ONE[1]), "/stages/0/recompute", {"full": [0]}),
        edited(CHAIN, "/stages/0/recompute", {"selective": [0]}),
        edited(EXAMPLE, "/stages/2/recompute", {"full": [1, 3], "selective": [0, 2]}),
        edited(EXAMPLE, "/graph/reads", [{"layer": 2, "sources": [0, 1]}, {"layer": 4, "detached": [3]}]),
        edited(edited(EXAMPLE, "/groups", [[1, 0], [3, 2], [4]]), "/prediction/bubble", 0),
        _mesh(tensor=2),
        _mesh(context=2, exchange="zigzag"),
        _mesh(context=2, exchange="ring", experts=2),
        _mesh(context=2, exchange="all_to_all", shards=2, sharded="parameters"),
        without(without(EXAMPLE, "/prediction"), "/provenance"),
        edited(EXAMPLE, "/micro_batches/0/cuts", [0, 2]),
        edited(EXAMPLE, "/micro_batches/0/samples", 2),
    ],
)
def test_a_plan_at_the_edge_of_the_rules(value: Json) -> None:
    assert read_plan(value).digest


def _copies(first: Json, second: Json) -> Json:
    """Two stages with the same layers on one group of four ranks, one route each."""
    return plan_json(
        groups=[[0, 1, 2, 3]],
        stages=[
            {"group": 0, "first_layer": 0, "end_layer": 2, "mesh": first},
            {"group": 0, "first_layer": 0, "end_layer": 2, "mesh": second},
        ],
        routes=[[0], [1]],
        micro_batches=[{"route": 0, "samples": 4, "cuts": [0, 64]}, {"route": 1, "samples": 4, "cuts": [0, 64]}],
    )


@pytest.mark.parametrize(
    ("first", "second", "legal"),
    [
        ({"data": 4}, {"context": 4, "exchange": "ring"}, True),
        ({"data": 2, "context": 2, "exchange": "ring"}, {"context": 4, "exchange": "zigzag"}, True),
        ({"data": 4}, {"data": 2, "tensor": 2}, False),
        ({"data": 4}, {"data": 4, "experts": 2}, False),
        ({"data": 4}, {"data": 4, "shards": 2, "sharded": "optimizer"}, False),
        ({"data": 4, "shards": 2, "sharded": "gradients"}, {"data": 4, "shards": 2, "sharded": "optimizer"}, False),
        ({"data": 2, "tensor": 2}, {"data": 2, "tensor": 2, "border": "sharded"}, False),
    ],
)
def test_copies_on_one_group_keep_one_state(first: Json, second: Json, legal: bool) -> None:
    """Rule 6."""
    value = _copies(first, second)
    if legal:
        assert read_plan(value).digest
    else:
        assert refusal(value, Plan).code == "copies"


@pytest.mark.parametrize(("tied", "legal"), [([], True), ([[0, 1]], False)])
def test_tied_weights_on_one_group_keep_one_state(tied: list[list[int]], legal: bool) -> None:
    """Rule 6 for tied layers: one rank cannot hold a weight whole and cut."""
    value = plan_json(
        groups=[[0, 1]],
        stages=[
            {"group": 0, "first_layer": 0, "end_layer": 1, "mesh": {"tensor": 2}},
            {"group": 0, "first_layer": 1, "end_layer": 2, "mesh": {"data": 2}},
        ],
        routes=[[0, 1]],
        micro_batches=[{"route": 0, "samples": 2, "cuts": [0, 8]}],
        graph={"tied": tied},
    )
    if legal:
        assert read_plan(value).digest
    else:
        assert refusal(value, Plan).code == "copies"


def test_equal_stages_with_recompute_written_in_another_order() -> None:
    both = [{"full": [0], "selective": [1]}, {"selective": [1], "full": [0]}]
    value = plan_json(
        groups=[[0]],
        stages=[{"group": 0, "first_layer": 0, "end_layer": 2, "recompute": recompute} for recompute in both],
        routes=[[0], [1]],
        micro_batches=[{"route": 0, "samples": 1, "cuts": [0, 8]}, {"route": 1, "samples": 1, "cuts": [0, 8]}],
    )
    assert refusal(value, Plan).message == "stages 0 and 1 are equal"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (edited(EXAMPLE, "/stages/1/end_layer", 5), "route 0 covers layers [0, 5), expected [0, 6)"),
        (edited(EXAMPLE, "/routes/-", [2]), "route 2 is idle: no micro-batch uses it"),
        (edited(EXAMPLE, "/micro_batches/3/route", 2), "a micro-batch names route 2, expected 0..1"),
        (
            edited(EXAMPLE, "/micro_batches/0/samples", 1),
            "micro-batch 0 has 1 sample, stage 1 spreads them over 2",
        ),
        (_streams("0F0 0B0 0B1 0G0 0U0", ONE[1]), "visit of micro-batch 1 slice 0 on stage 0 is B, expected F"),
        (_streams(ONE[0], "1F0 1F1"), "stage 1 gives no gradient back to stage 0, which goes backward on route 0"),
        (_streams(ONE[0], "1F0 1F1 1B0 1B1"), "stage 1 has weight gradients but no G and U, other stages update"),
        (
            _streams("0F0 0F1 0B0 0G0 0B1 0U0", ONE[1]),
            "stage 0: its last G stands before 0B1, its last weight gradient",
        ),
        (_streams(ONE[1], ONE[0]), "group 0: 1F0 belongs to group 1"),
        (_streams("0F0.0 0F1 0B0 0B1 0G0 0U0", ONE[1]), "group 0: 0F0.0 should be 0F0"),
    ],
)
def test_messages_name_the_first_bad_place(value: Json, message: str) -> None:
    assert refusal(value, Plan).message.startswith(message)


def test_hostile_text_in_a_stream_is_cut_and_escaped() -> None:
    error = refusal(_streams("\x1b[31m\u202e" + "x" * 10_000, ONE[1]), Plan)
    assert error.code == "stream_text"
    assert error.message.isprintable()
    assert error.message.isascii()
    assert len(error.message) < 120


def test_many_routes_over_many_layers_are_bounded() -> None:
    """2^20 layers on routes is the most; the rules after it walk each once."""
    num_routes = 257
    value = plan_json(
        groups=[[rank] for rank in range(num_routes)],
        stages=[{"group": n, "first_layer": 0, "end_layer": 4096} for n in range(num_routes)],
        routes=[[n] for n in range(num_routes)],
        micro_batches=[{"route": n, "samples": 1, "cuts": [0, 8]} for n in range(num_routes)],
        backwards=dict.fromkeys(range(num_routes), ""),
    )
    assert refusal(value, Plan).code == "limit"


def test_24576_instructions_are_checked_quickly() -> None:
    """64 groups x 192 micro-batches: usually 0.1 s of CPU; the plan of a large job is checked at each border."""
    data = json.dumps(chain_json(64, 192)).encode()
    start = time.process_time()
    plan = read_document(data, Plan)
    assert time.process_time() - start < 2
    assert sum(map(len, plan.instructions)) == 64 * 192 * 2 + 2 * 64
