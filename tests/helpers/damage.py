"""Random damage to a JSON document, for hypothesis."""

import copy

from hypothesis import strategies as st

__all__ = ["damaged"]

Json = dict[str, object]

odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["", "nan", "workload/1", "a" * 64, "<digest>", "\ud800", "\x00"]),
    st.builds(list),
    st.builds(dict),
    st.lists(st.integers(-1, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def _places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        return found + [place for key, child in value.items() for place in _places(child, (*path, key))]
    if isinstance(value, list):
        return found + [place for number, child in enumerate(value) for place in _places(child, (*path, number))]
    return found


def damaged(data: st.DataObject, good: Json) -> Json:
    """One to three random edits: replaced, deleted, added, doubled."""
    value = copy.deepcopy(good)
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(_places(value)))
        place: object = value
        for part in path:
            place = place[part]  # type: ignore[index]
        new = data.draw(odd_values)
        if isinstance(place, dict):
            change = data.draw(st.sampled_from(["replace", "delete", "add"]))
            if change == "delete" and len(value) > 1:
                del place[last]
            else:
                place[last if change == "replace" else data.draw(st.text(max_size=5))] = new
        elif isinstance(place, list):
            assert isinstance(last, int)
            change = data.draw(st.sampled_from(["replace", "delete", "double"]))
            place[last : last + 1] = {"replace": [new], "delete": [], "double": [place[last]] * 2}[change]
    return value
