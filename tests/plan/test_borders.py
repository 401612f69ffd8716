"""Who sends what to whom: four worked cases, and coverage of random pairs of meshes.

The worked cases: B = 12 samples, S = 16 tokens; recomputed by hand with cut(n, k, i) = [n*i // k, n*(i+1) // k).
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.plan.borders import Transfer, is_handover, mesh_transfers, transfers
from planner.plan.instruction import Visit
from planner.plan.mesh import Mesh, Range
from tests.helpers.edits import edited
from tests.helpers.plan_json import EXAMPLE, read_plan

Sent = tuple[int, int, tuple[int, int], list[tuple[int, int]]]


def _plain(found: tuple[Transfer, ...]) -> list[Sent]:
    return sorted((t.sender, t.receiver, tuple(t.samples), [tuple(r) for r in t.tokens]) for t in found)  # type: ignore[misc]


def _sent(sender: Mesh, receiver: Mesh) -> list[Sent]:
    """Between two groups; ranks are positions, receivers counted from 0 too."""
    there = tuple(range(100, 100 + receiver.num_ranks))
    found = mesh_transfers(
        (sender, tuple(range(sender.num_ranks))), (receiver, there), num_samples=12, tokens=Range(0, 16)
    )
    return _plain(tuple(t._replace(receiver=t.receiver - 100) for t in found))


ALL = [(0, 16)]
LEFT, RIGHT = [(0, 8)], [(8, 16)]


def test_data_3_tensor_2_to_data_2_context_2() -> None:
    assert _sent(Mesh(data=3, tensor=2), Mesh(data=2, context=2, exchange="ring")) == sorted(
        [
            (0, 0, (0, 4), LEFT), (2, 0, (4, 6), LEFT), (1, 1, (0, 4), RIGHT), (3, 1, (4, 6), RIGHT),
            (2, 2, (6, 8), LEFT), (4, 2, (8, 12), LEFT), (3, 3, (6, 8), RIGHT), (5, 3, (8, 12), RIGHT),
        ]
    )  # fmt: skip


def test_data_2_context_2_to_data_4() -> None:
    assert _sent(Mesh(data=2, context=2, exchange="ring"), Mesh(data=4)) == sorted(
        [
            (0, 0, (0, 3), LEFT), (1, 0, (0, 3), RIGHT), (0, 1, (3, 6), LEFT), (1, 1, (3, 6), RIGHT),
            (2, 2, (6, 9), LEFT), (3, 2, (6, 9), RIGHT), (2, 3, (9, 12), LEFT), (3, 3, (9, 12), RIGHT),
        ]
    )  # fmt: skip


def test_tensor_4_to_data_2_tensor_2() -> None:
    """Each sender serves one receiver; 384 x hidden elements, two copies of 192."""
    sender, receiver = Mesh(tensor=4), Mesh(data=2, tensor=2)
    expected = [(0, 0, (0, 6), ALL), (1, 1, (0, 6), ALL), (2, 2, (6, 12), ALL), (3, 3, (6, 12), ALL)]
    assert _sent(sender, receiver) == expected
    found = mesh_transfers((sender, (0, 1, 2, 3)), (receiver, (4, 5, 6, 7)), num_samples=12, tokens=Range(0, 16))
    assert sum(transfer.num_tokens for transfer in found) == 384


def test_zigzag_2_to_context_4() -> None:
    """8 pieces in 4 messages."""
    sender, receiver = Mesh(context=2, exchange="zigzag"), Mesh(context=4, exchange="zigzag")
    both = (0, 12)
    assert _sent(sender, receiver) == [
        (0, 0, both, [(0, 2), (14, 16)]),
        (0, 1, both, [(2, 4), (12, 14)]),
        (1, 2, both, [(4, 6), (10, 12)]),
        (1, 3, both, [(6, 8), (8, 10)]),
    ]


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    data, context, tensor = (draw(st.integers(1, 4)) for _ in range(3))
    exchange = draw(st.sampled_from(["ring", "zigzag", "all_to_all"])) if context > 1 else "none"
    border = draw(st.sampled_from(["whole", "sharded"])) if tensor > 1 else "whole"
    return Mesh(data=data, context=context, tensor=tensor, exchange=exchange, border=border)


def _needed(mesh: Mesh, position: int, num_samples: int, tokens: Range) -> set[tuple[int, int]]:
    """The (sample, token) cells of a rank at a border."""
    samples = range(*mesh.samples(position, num_samples))
    return {(s, t) for s in samples for piece in mesh.border_tokens(position, tokens) for t in range(*piece)}


def _check_coverage(
    sender: tuple[Mesh, tuple[int, ...]], receiver: tuple[Mesh, tuple[int, ...]], num_samples: int, tokens: Range
) -> None:
    (sender_mesh, sender_ranks), (receiver_mesh, receiver_ranks) = sender, receiver
    found = mesh_transfers(sender, receiver, num_samples=num_samples, tokens=tokens)
    assert len({(t.sender, t.receiver) for t in found}) == len(found)  # one message a pair
    held = {rank: _needed(sender_mesh, position, num_samples, tokens) for position, rank in enumerate(sender_ranks)}
    for position, rank in enumerate(receiver_ranks):
        arrived = [
            (transfer.sender, (sample, token))
            for transfer in found
            if transfer.receiver == rank
            for sample in range(*transfer.samples)
            for piece in transfer.tokens
            for token in range(*piece)
        ]
        cells = [cell for _, cell in arrived]
        assert len(cells) == len(set(cells))
        assert set(cells) == _needed(receiver_mesh, position, num_samples, tokens)
        assert all(cell in held[source] for source, cell in arrived)
        if rank in held:  # what it has itself, it takes from itself
            own = {cell for source, cell in arrived if source == rank}
            assert own == held[rank] & set(cells)


@settings(max_examples=250)
@given(meshes(), meshes(), st.integers(4, 9), st.integers(32, 41), st.integers(0, 50))
def test_pieces_tile_what_a_receiver_needs_once(
    one: Mesh, other: Mesh, num_samples: int, length: int, first: int
) -> None:
    """500 random pairs: each of 250 there and back, the gradient planned anew."""
    here = (one, tuple(range(one.num_ranks)))
    there = (other, tuple(range(100, 100 + other.num_ranks)))
    tokens = Range(first, first + length)
    _check_coverage(here, there, num_samples, tokens)
    _check_coverage(there, here, num_samples, tokens)


@settings(max_examples=100)
@given(st.data())
def test_a_rank_that_is_sender_and_receiver_takes_its_own(data: st.DataObject) -> None:
    """Two meshes over the same ranks, in the same order or another."""
    num_ranks = data.draw(st.sampled_from([2, 4, 6, 8]))
    size = st.sampled_from([n for n in range(1, num_ranks + 1) if num_ranks % n == 0])
    chosen = []
    for _ in range(2):
        tensor = data.draw(size)
        border = data.draw(st.sampled_from(["whole", "sharded"])) if tensor > 1 else "whole"
        chosen.append(Mesh(data=num_ranks // tensor, tensor=tensor, border=border))
    order = tuple(data.draw(st.permutations(range(num_ranks))))
    _check_coverage((chosen[0], order), (chosen[1], order), 9, Range(0, 16))


def test_same_group_and_equal_mesh_is_a_handover() -> None:
    stages = [
        {"group": 0, "first_layer": 0, "end_layer": 1, "mesh": {"tensor": 2}},
        {"group": 0, "first_layer": 1, "end_layer": 3, "mesh": {"tensor": 2}},
        {"group": 1, "first_layer": 3, "end_layer": 6, "mesh": {"data": 2, "shards": 2, "sharded": "optimizer"}},
        {"group": 2, "first_layer": 0, "end_layer": 6},
    ]
    value = edited(edited(EXAMPLE, "/stages", stages), "/routes", [[0, 1, 2], [3]])
    value = edited(
        value,
        "/streams",
        [
            "0F0 1F0 0F1 1F1 0F2 1F2 1B0 0B0 1B1 0B1 1B2 0B2 0G0 1G0 0U0 1U0",
            "2F0 2B0 2F1 2B1 2F2 2B2 2G0 2U0",
            "3F3.0 3F3.1 3B3.1 3B3.0 3G0 3U0",
        ],
    )
    plan = read_plan(value)
    assert is_handover(plan, 0, 1)
    assert not is_handover(plan, 1, 2)
    assert {(t.sender, t.receiver) for t in transfers(plan, 0, 1, Visit(0, 0, 0))} == {(0, 0), (1, 1)}


def test_tokens_are_numbered_in_the_whole_sample() -> None:
    """The second slice of micro-batch 3 is [1024, 2048)."""
    plan = read_plan(EXAMPLE)
    (own,) = transfers(plan, 2, 2, Visit(2, 3, 1))
    assert own == Transfer(4, 4, Range(0, 1), (Range(1024, 2048),))


@pytest.mark.parametrize("data", [(1, 7), (7, 1), (3, 5), (4, 6), (16, 12)])
@pytest.mark.parametrize("num_samples", [1, 5, 16, 23])
def test_every_rank_gets_each_of_its_samples_once(data: tuple[int, int], num_samples: int) -> None:
    """Also where some ranks have no sample at all."""
    one, other = Mesh(data=data[0]), Mesh(data=data[1])
    ranks = tuple(range(data[0])), tuple(range(100, 100 + data[1]))
    found = mesh_transfers((one, ranks[0]), (other, ranks[1]), num_samples=num_samples, tokens=Range(0, 8))
    for position, rank in enumerate(ranks[1]):
        got = [sample for one_of in found if one_of.receiver == rank for sample in range(*one_of.samples)]
        assert got == list(range(*other.samples(position, num_samples)))
    for transfer in found:
        held = one.samples(transfer.sender, num_samples)
        assert held.first <= transfer.samples.first < transfer.samples.end <= held.end
