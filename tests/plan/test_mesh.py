"""Coordinates and cuts: section 4 of the contract."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plan.mesh import Coordinates, Mesh, Range, cut, intersect


@given(st.integers(0, 10**6), st.integers(1, 64))
def test_parts_of_a_cut_tile_it_and_differ_by_at_most_one(size: int, parts: int) -> None:
    ranges = [cut(size, parts, index) for index in range(parts)]
    assert (ranges[0].first, ranges[-1].end) == (0, size)
    assert all(one.end == other.first for one, other in pairwise(ranges))
    assert max(r.size for r in ranges) - min(r.size for r in ranges) <= 1


def test_cut_by_hand() -> None:
    """[0, 10) in 4: 10*i // 4 = 0, 2, 5, 7, 10."""
    assert [cut(10, 4, index) for index in range(4)] == [Range(0, 2), Range(2, 5), Range(5, 7), Range(7, 10)]


@given(st.lists(st.integers(0, 20), min_size=4, max_size=4))
def test_intersection_holds_what_both_hold(bounds: list[int]) -> None:
    one, other = Range(*sorted(bounds[:2])), Range(*sorted(bounds[2:]))
    found = intersect(one, other)
    both = set(range(*one)) & set(range(*other))
    assert set(range(*found)) == both
    assert found.size == len(both)


def test_tensor_runs_fastest_then_context_then_data() -> None:
    mesh = Mesh(data=2, context=3, tensor=2, exchange="ring")
    assert mesh.coordinates(0) == Coordinates(0, 0, 0)
    assert mesh.coordinates(1) == Coordinates(0, 0, 1)
    assert mesh.coordinates(2) == Coordinates(0, 1, 0)
    assert mesh.coordinates(6) == Coordinates(1, 0, 0)
    assert [mesh.position(mesh.coordinates(position)) for position in range(12)] == list(range(12))


def test_samples_by_data_coordinate() -> None:
    """5 samples over 2: [0,2) and [2,5)."""
    mesh = Mesh(data=2, tensor=2)
    assert [mesh.samples(position, 5) for position in range(4)] == [Range(0, 2)] * 2 + [Range(2, 5)] * 2


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        # tokens [100, 116) of a slice
        (Mesh(), [[(100, 116)]]),
        (Mesh(context=2, exchange="ring"), [[(100, 108)], [(108, 116)]]),
        (Mesh(context=2, exchange="zigzag"), [[(100, 104), (112, 116)], [(104, 108), (108, 112)]]),
        (Mesh(tensor=2), [[(100, 116)], [(100, 116)]]),
        (Mesh(tensor=2, border="sharded"), [[(100, 108)], [(108, 116)]]),
        (
            Mesh(context=2, tensor=2, exchange="zigzag", border="sharded"),
            [
                [(100, 102), (112, 114)],
                [(102, 104), (114, 116)],
                [(104, 106), (108, 110)],
                [(106, 108), (110, 112)],
            ],
        ),
    ],
)
def test_tokens_at_a_border(mesh: Mesh, expected: list[list[tuple[int, int]]]) -> None:
    found = [[tuple(r) for r in mesh.border_tokens(position, Range(100, 116))] for position in range(mesh.num_ranks)]
    assert found == expected
    tokens = sorted(token for ranges in found for r in ranges for token in range(*r))
    copies = mesh.tensor if mesh.border == "whole" else 1
    assert tokens == sorted(list(range(100, 116)) * copies)


def test_work_tokens_do_not_know_the_border() -> None:
    mesh = Mesh(tensor=2, border="sharded")
    assert mesh.work_tokens(1, Range(0, 8)) == (Range(0, 8),)
