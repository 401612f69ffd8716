"""Section 8 of the contract: every scheme is five lists. Each row is accepted, runs to its end, and comes back."""

from collections.abc import Callable

import pytest

from planner.plan.dependencies import Dependencies, Neighbours
from planner.plan.pieces import pieces, staleness
from planner.plan.plan import Plan
from planner.problem.canonical import document_bytes
from planner.problem.reading import read_document
from tests.helpers.edits import edited
from tests.helpers.plan_json import EXAMPLE, chain_json, plan_json, read_plan, runs_to_the_end

Json = dict[str, object]


def _stage(group: int, first: int, end: int, **more: object) -> Json:
    return {"group": group, "first_layer": first, "end_layer": end, **more}


def _batch(route: int = 0, samples: int = 4, cuts: tuple[int, ...] = (0, 64)) -> Json:
    return {"route": route, "samples": samples, "cuts": list(cuts)}


def _ranks(num_groups: int) -> list[list[int]]:
    return [[rank] for rank in range(num_groups)]


def v_placement() -> Json:
    """Stages 0 1 2 3 on groups 0 1 1 0; group 1 hands over to itself."""
    stages = [_stage(group, layer, layer + 1) for layer, group in enumerate([0, 1, 1, 0])]
    return plan_json(groups=_ranks(2), stages=stages, routes=[[0, 1, 2, 3]], micro_batches=[_batch()] * 3)


def mixed_visits() -> Json:
    """DualPipeV: a stage mixes B visits with I W visits."""
    streams = ["0F0 0F1 0B0 0I1 0W1 0G0 0U0", "1F0 1F1 1I0 1W0 1B1 1G0 1U0"]
    return edited(chain_json(2, 2), "/streams", streams)


def chimera() -> Json:
    """Two routes over mirrored stages, p = 4: the copies of a layer meet in G."""
    down = [_stage(n, n, n + 1) for n in range(4)]
    up = [_stage(3 - n, n, n + 1) for n in range(4)]
    batches = [_batch(0), _batch(1)] * 2
    return plan_json(groups=_ranks(4), stages=down + up, routes=[[0, 1, 2, 3], [4, 5, 6, 7]], micro_batches=batches)


def helix() -> Json:
    """HelixPipe, p = 2, two blocks of pre, attention, post: two routes share the parameter stages.

    post reads pre and attention: the residual skips the attention group. Recompute on pre and post only.
    """
    parameter = [
        _stage(0, 0, 1, recompute={"full": [0]}),  # pre
        _stage(1, 2, 4, recompute={"full": [2, 3]}),  # post, pre
        _stage(0, 5, 6, recompute={"full": [5]}),  # post
    ]
    attention = [_stage(group, layer, layer + 1) for group in (0, 1) for layer in (1, 4)]  # stages 3 4 | 5 6
    return plan_json(
        groups=_ranks(2),
        stages=parameter + attention,
        routes=[[0, 3, 1, 4, 2], [0, 5, 1, 6, 2]],
        micro_batches=[_batch(0), _batch(1)],
        backwards=dict.fromkeys((3, 4, 5, 6), "I"),
        graph={"reads": [{"layer": 2, "sources": [0, 1]}, {"layer": 5, "sources": [3, 4]}]},
    )


def slices() -> Json:
    """TeraPipe, Seq1F1B: unequal slices, other ones in each micro-batch."""
    stages = [_stage(0, 0, 1), _stage(1, 1, 2)]
    batches = [_batch(cuts=(0, 32, 48, 64)), _batch(cuts=(0, 40, 64)), _batch(cuts=(0, 24))]
    return plan_json(groups=_ranks(2), stages=stages, routes=[[0, 1]], micro_batches=batches)


def unequal_replicas() -> Json:
    """Two stages on groups 0 and 1, one stage on group 2; micro-batches 3:1."""
    stages = [_stage(0, 0, 3), _stage(1, 3, 4), _stage(2, 0, 4)]
    return plan_json(groups=_ranks(3), stages=stages, routes=[[0, 1], [2]], micro_batches=[_batch(0)] * 3 + [_batch(1)])


def rerouting() -> Json:
    """After a loss: route 1 borrows the last stage of route 0."""
    stages = [_stage(0, 0, 2), _stage(1, 2, 4), _stage(2, 0, 2)]
    return plan_json(
        groups=_ranks(3), stages=stages, routes=[[0, 1], [2, 1]], micro_batches=[_batch(0), _batch(1), _batch(0)]
    )


def meshes() -> Json:
    """Neighbours of different degrees: data and state cut, tensor, context, experts."""
    return plan_json(
        groups=[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12]],
        stages=[
            _stage(0, 0, 1, mesh={"data": 4, "shards": 2, "sharded": "parameters"}),
            _stage(1, 1, 2, mesh={"data": 2, "tensor": 2, "border": "sharded"}),
            _stage(2, 2, 3, mesh={"data": 2, "context": 2, "exchange": "zigzag", "experts": 4}),
            _stage(3, 3, 4),
        ],
        routes=[[0, 1, 2, 3]],
        micro_batches=[_batch()] * 2,
    )


def long_and_short() -> Json:
    """Two stages with the same layers and group: long sequences with context ranks, short ones with data ranks."""
    return plan_json(
        groups=[[0, 1]],
        stages=[_stage(0, 0, 2, mesh={"context": 2, "exchange": "ring"}), _stage(0, 0, 2, mesh={"data": 2})],
        routes=[[0], [1]],
        micro_batches=[_batch(0, 1, (0, 4096)), _batch(1, 8, (0, 512))],
    )


def recompute_by_micro_batch() -> Json:
    """Two stages with the same layers on one group, one route each."""
    stages = [_stage(0, 0, 2), _stage(0, 0, 2, recompute={"selective": [0], "full": [1]})]
    return plan_json(groups=_ranks(1), stages=stages, routes=[[0], [1]], micro_batches=[_batch(0), _batch(1)])


def recompute_ahead() -> Json:
    """R brings everything back before the gradient arrives."""
    value = edited(chain_json(2, 2), "/stages/0/recompute", {"full": [0]})
    return edited(value, "/streams/0", "0F0 0F1 0R0 0B0 0R1 0B1 0G0 0U0")


def tied_embeddings() -> Json:
    return edited(chain_json(4, 2), "/graph/tied", [[0, 3]])


def encoder_decoder() -> Json:
    """Layers: encoder 0 1, decoder embedding 2 (reads nothing), decoder 3 4 read the one before and the encoder."""
    reads = [{"layer": 2}, {"layer": 3, "sources": [1, 2]}, {"layer": 4, "sources": [1, 3]}]
    return edited(chain_json(5, 2), "/graph/reads", reads)


def u_net() -> Json:
    """Long skips 0 -> 5 and 1 -> 4 in a V placement: they stay inside their groups."""
    stages = [_stage(group, layer, layer + 1) for layer, group in enumerate([0, 1, 2, 2, 1, 0])]
    return plan_json(
        groups=_ranks(3),
        stages=stages,
        routes=[range(6)],
        micro_batches=[_batch()] * 2,
        graph={"reads": [{"layer": 4, "sources": [1, 3]}, {"layer": 5, "sources": [0, 4]}]},
    )


def towers() -> Json:
    """Layers 0 1 and 2 3 read the batch each on its own; layer 4 joins them."""
    return edited(chain_json(5, 2), "/graph/reads", [{"layer": 2}, {"layer": 4, "sources": [1, 3]}])


def vocabulary_head(detached: str = "sources", parts: str = "B", combine: str = "B") -> Json:
    """Block 0, head parts 1 and 2 on both groups, combine 3: barriers at combine and at the block."""
    combine_reads = {"layer": 3, "sources": [1, 2]} if detached == "sources" else {"layer": 3, "sources": [0]}
    reads = [{"layer": 1, "detached": [0]}] if detached == "detached" else []
    reads += [
        {"layer": 2, detached: [0]},
        combine_reads | ({"detached": [1, 2]} if detached == "detached" else {}),
    ]
    return plan_json(
        groups=_ranks(2),
        stages=[_stage(0, 0, 1), _stage(0, 1, 2), _stage(1, 2, 3), _stage(1, 3, 4)],
        routes=[[0, 1, 2, 3]],
        micro_batches=[_batch()] * 2,
        backwards={1: parts, 2: parts, 3: combine},
        graph={"reads": reads},
    )


def one_barrier() -> Json:
    """Parts read the block detached and are visited F W; combine gives the block its gradient (F I)."""
    return vocabulary_head("detached", "W", "I")


def sharded_embedding() -> Json:
    """Two embedding parts without sources, read by the first block; tied with the parts of the head."""
    graph: Json = {
        "reads": [
            {"layer": 1},
            {"layer": 2, "sources": [0, 1]},
            {"layer": 4, "sources": [2]},
            {"layer": 5, "sources": [3, 4]},
        ],
        "tied": [[0, 3], [1, 4]],
    }
    stages = [
        _stage(0, 0, 1), _stage(1, 1, 2), _stage(0, 2, 3), _stage(0, 3, 4), _stage(1, 4, 5), _stage(1, 5, 6),
    ]  # fmt: skip
    return plan_json(
        groups=_ranks(2),
        stages=stages,
        routes=[range(6)],
        micro_batches=[_batch()],
        graph=graph,
        backwards={5: "I"},
    )


def heads_of_attention() -> Json:
    """Parallel layers between pre and post, unequal groups."""
    return edited(
        chain_json(5, 2),
        "/graph/reads",
        [{"layer": 2, "sources": [0]}, {"layer": 3, "sources": [0]}, {"layer": 4, "sources": [1, 2, 3]}],
    )


def encoder_on_every_group() -> Json:
    """A copy of the encoder stage a group, one route each, all sharing the other stages."""
    stages = [_stage(0, 0, 1), _stage(1, 0, 1), _stage(0, 1, 2), _stage(1, 2, 3)]
    return plan_json(
        groups=_ranks(2), stages=stages, routes=[[0, 2, 3], [1, 2, 3]], micro_batches=[_batch(0), _batch(1)]
    )


def local_losses() -> Json:
    """Every stage reads the one before detached: nothing goes back over a border."""
    reads = [{"layer": layer, "detached": [layer - 1]} for layer in (1, 2)]
    return edited(chain_json(3, 2, backward="W"), "/graph/reads", reads)


def teacher_and_adapters() -> Json:
    """Visits F (teacher, frozen front), F I (frozen, passes on), F B (adapters before and after)."""
    stages = [_stage(n, n, n + 1) for n in range(4)]
    return plan_json(
        groups=_ranks(4),
        stages=stages,
        routes=[range(4)],
        micro_batches=[_batch()] * 2,
        backwards={0: "", 1: "B", 2: "I", 3: "B"},
    )


def prefill() -> Json:
    """Evaluation, prefill in parts: forward only."""
    stages = [_stage(0, 0, 1), _stage(1, 1, 2)]
    return plan_json(
        groups=_ranks(2),
        stages=stages,
        routes=[[0, 1]],
        micro_batches=[_batch(cuts=(0, 16, 64))],
        backwards={0: "", 1: ""},
    )


def kept_gradients() -> Json:
    """A phase: no G and no U, the next plan goes on."""
    return edited(chain_json(2, 2), "/streams", ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"])


def zero_bubble() -> Json:
    """ZB-H1 like: W fills what would be idle."""
    streams = ["0F0 0F1 0I0 0W0 0I1 0W1 0G0 0U0", "1F0 1I0 1F1 1I1 1W0 1W1 1G0 1U0"]
    return edited(chain_json(2, 2), "/streams", streams)


SCHEMES = [
    v_placement, mixed_visits, chimera, helix, slices, unequal_replicas, rerouting, meshes, long_and_short,
    recompute_by_micro_batch, recompute_ahead, tied_embeddings, encoder_decoder, u_net, towers, vocabulary_head,
    one_barrier, sharded_embedding, heads_of_attention, encoder_on_every_group, local_losses, teacher_and_adapters,
    prefill, kept_gradients, zero_bubble,
]  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.__name__)
def test_a_scheme_is_five_lists(scheme: Callable[[], Json]) -> None:
    plan = read_plan(scheme())
    assert runs_to_the_end(plan)
    assert set(staleness(plan)) == {0}
    again = read_document(document_bytes(plan), Plan)
    assert (again, again.digest) == (plan, plan.digest)


def test_all_schemes_are_different_plans() -> None:
    assert len({read_plan(scheme()).digest for scheme in SCHEMES}) == len(SCHEMES)


def _neighbours(value: Json, route: int = 0) -> dict[int, Neighbours]:
    found = Dependencies(read_plan(value)).neighbours
    return {stage: neighbours for (on_route, stage), neighbours in found.items() if on_route == route}


def test_encoder_memory_goes_straight_to_each_decoder_stage() -> None:
    found = _neighbours(encoder_decoder())
    assert found[1] == Neighbours((0,), (3, 4))
    assert found[2] == Neighbours((), (3,))
    assert found[4] == Neighbours((1, 3), ())


def test_helix_attention_belongs_to_its_route() -> None:
    plan = read_plan(helix())
    found = Dependencies(plan).neighbours
    assert found[0, 0].readers == (1, 3)  # post reads pre directly
    assert found[1, 0].readers == (1, 5)
    assert [piece.stages for piece in pieces(plan)] == [(0,), (1,), (2,)]  # attention has no weights


def test_one_barrier_gives_the_block_its_gradient_through_combine_alone() -> None:
    found = _neighbours(one_barrier())
    assert found[0].readers == (3,)
    assert found[1] == Neighbours((0,), ())
    assert found[3] == Neighbours((0, 1, 2), ())


def test_two_barriers_gather_the_gradients_of_the_parts() -> None:
    found = _neighbours(vocabulary_head())
    assert found[0].readers == (1, 2)
    assert found[1].readers == (3,)


def test_chimera_copies_meet_in_one_piece_a_layer() -> None:
    assert [piece.stages for piece in pieces(read_plan(chimera()))] == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_a_tied_embedding_part_needs_no_message() -> None:
    found = pieces(read_plan(sharded_embedding()))
    assert [(piece.stages, piece.members) for piece in found[:2]] == [((0, 3), (0,)), ((1, 4), (1,))]


def test_local_losses_send_nothing_back() -> None:
    assert all(not found.readers for found in _neighbours(local_losses()).values())


def test_the_example_is_a_scheme_too() -> None:
    assert runs_to_the_end(read_plan(EXAMPLE))


def test_streams_that_wait_in_a_circle_do_not_run() -> None:
    """The replay of this test can say no: B before F on one group."""
    value = edited(chain_json(2, 1), "/streams/0", "0B0 0F0 0G0 0U0")
    assert not runs_to_the_end(read_plan(value))
