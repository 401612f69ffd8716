"""Page tokens: they come back as they went out, and nobody can make one up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.paging import page_position, page_token
from api.store.store import Position
from planner.errors import RequestError

KEY = bytes(32)
positions = st.builds(
    Position, created_ns=st.integers(0, 2**62), id=st.text("0123456789abcdef", min_size=32, max_size=64)
)


@given(positions)
def test_a_token_names_its_position(position: Position) -> None:
    assert page_position(page_token(position, collection="plan", key=KEY), collection="plan", key=KEY) == position


def test_no_token_is_the_first_page() -> None:
    assert page_position("", collection="plan", key=KEY) is None


@given(positions, st.integers(0, 200), st.integers(1, 63))
def test_a_changed_token_is_refused(position: Position, place: int, change: int) -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    token = page_token(position, collection="plan", key=KEY)
    place %= len(token) - 1  # the last character may hold unused bits
    other = alphabet[(alphabet.index(token[place]) + change) % 64]
    with pytest.raises(RequestError):
        page_position(token[:place] + other + token[place + 1 :], collection="plan", key=KEY)


@given(positions)
def test_a_token_of_another_list_or_store_is_refused(position: Position) -> None:
    token = page_token(position, collection="plan", key=KEY)
    for collection, key in (("profile", KEY), ("plan", b"x" * 32)):
        with pytest.raises(RequestError):
            page_position(token, collection=collection, key=key)


@given(st.text(min_size=1, max_size=300))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        page_position(text, collection="plan", key=KEY)
    assert caught.value.code == "page_token"
