"""The worked numbers of every family: bubble time and span in U (F = I = W = U, B = 2 U), memory in A.

U = time of F on 1/p of the model, A = what a micro-batch keeps of 1/p of the model. Bubble time = step - 3 m U; span =
longest time that a group idles between its first and its last instruction. Closed forms are the papers'; other numbers
were replayed by an independent simulator from streams of the same rules, quoted at each table.
"""

from collections.abc import Sequence

import pytest

from planner.schedules.families import FAMILIES, family_lists, family_plan
from planner.schedules.family import FamilyShape
from planner.schedules.placements import one_route, v
from planner.schedules.v_templates import Steps, Turns, expanded, uniform_template
from tests.helpers.families import texts, worked, worked_lists

# -- one route ---------------------------------------------------------------------------------------------------------

# name, options by p, bubble at p = 4 and 8, largest memory at p = 4 and 8 (None = m); m = 2p and 4p give the same
ONE_ROUTE = [
    ("gpipe", {}, (9, 21), None),
    ("1f1b", {}, (9, 21), (4, 8)),
    ("interleaved", {"num_stages": 2}, (4.5, 10.5), (5.5, 11.5)),
    ("interleaved", {"num_stages": 4}, (2.25, 5.25), (4.75, 9.75)),
    ("breadth-first", {"num_stages": 2}, (4.5, 10.5), None),
    ("breadth-first", {"num_stages": 4}, (2.25, 5.25), None),
    ("zb-h1", {}, (3, 7), (4, 8)),
    ("zb-h2", {}, (3, 7), (7, 15)),
    ("zb-v", {}, (1.5, 3.5), (4, 8)),
    ("dualpipe-v", {}, (1.5, 3.5), (4.5, 8.5)),
    ("v-min", {}, (5.5, 13.5), (2, 4)),
    ("seq1f1b", {"num_slices": 2}, (4.5, 10.5), (2.5, 4.5)),
    ("seq1f1b", {"num_slices": 4}, (2.25, 5.25), (1.75, 2.75)),
    ("terapipe", {"num_slices": 2}, (4.5, 10.5), None),
    ("terapipe", {"num_slices": 4}, (2.25, 5.25), None),
]


@pytest.mark.parametrize("rounds", [2, 4])
@pytest.mark.parametrize(("name", "options", "bubbles", "memory"), ONE_ROUTE)
def test_one_route(
    name: str, options: dict[str, int], bubbles: Sequence[float], memory: Sequence[float] | None, rounds: int
) -> None:
    for place, p in enumerate((4, 8)):
        chosen = {field: value * p if field == "num_stages" else value for field, value in options.items()}
        found = worked(name, p, rounds * p, **chosen)
        assert found.bubble == pytest.approx(bubbles[place], abs=1e-9)
        assert max(found.memory) == (rounds * p if memory is None else memory[place])


@pytest.mark.parametrize("num_groups", [1, 2, 3, 4, 5, 8])
def test_closed_forms_of_line_and_v(num_groups: int) -> None:
    """Any m; the zero-bubble families from 2p-1 micro-batches on."""
    p = num_groups
    for m in (2 * p, 2 * p + 1, 3 * p + 2):
        for name, bubble in (
            ("gpipe", 3 * (p - 1)),
            ("1f1b", 3 * (p - 1)),
            ("zb-h1", p - 1),
            ("zb-h2", p - 1),
            ("zb-v", (p - 1) / 2),
            ("dualpipe-v", (p - 1) / 2),
        ):
            assert worked(name, p, m).bubble == pytest.approx(bubble, abs=1e-9), (name, p, m)


@pytest.mark.parametrize("num_groups", [2, 4, 8])
def test_zero_bubble_families_have_span_0(num_groups: int) -> None:
    """From 2p-1 micro-batches on no group idles between its first and its last instruction."""
    for m in (2 * num_groups - 1, 2 * num_groups, 4 * num_groups):
        assert worked("zb-h2", num_groups, m).span == 0
        assert worked("zb-v", num_groups, m).span == 0
    assert worked("zb-h1", num_groups, 4 * num_groups).span > 0


def test_memory_by_group() -> None:
    assert worked("1f1b", 4, 16).memory == [4, 3, 2, 1]
    assert worked("interleaved", 4, 16).memory == [5.5, 4.5, 3.5, 2.5]
    assert worked("interleaved", 4, 4).memory == [4, 4, 3.5, 2.5]
    assert worked("zb-h1", 4, 16).memory == [4] * 4
    assert worked("zb-h2", 8, 32).memory == [15] * 8
    assert worked("v-min", 8, 32).memory == [3, 4, 4, 3, 4, 4, 3, 4]
    assert worked("seq1f1b", 4, 8, num_slices=2).memory == [2.5, 2, 1.5, 1]


@pytest.mark.parametrize(("num_groups", "bubble"), [(4, 1.5), (8, 3.5), (16, 7.5)])
def test_zb_v_at_the_memory_of_1f1b(num_groups: int, bubble: float) -> None:
    found = worked("zb-v", num_groups, 4 * num_groups)
    assert found.bubble == bubble
    assert max(found.memory) == num_groups


# m = p: the warm-up of the zero-bubble families does not fit
@pytest.mark.parametrize(
    ("name", "num_groups", "bubble"), [("zb-v", 4, 3), ("zb-v", 8, 7), ("zb-h2", 4, 4), ("zb-h2", 8, 10)]
)
def test_as_many_micro_batches_as_groups(name: str, num_groups: int, bubble: float) -> None:
    assert worked(name, num_groups, num_groups).bubble == bubble


def test_shares_of_the_step() -> None:
    """GPipe (p-1)/(m+p-1), interleaved (p-1)/(vm+p-1), Chimera m=p (p-2)/(3m/2+p-2), BitPipe m=p (p-2)/(3m+p-2)."""
    for p in (4, 8):
        for name, m, share in (
            ("gpipe", 2 * p, (p - 1) / (2 * p + p - 1)),
            ("interleaved", 2 * p, (p - 1) / (4 * p + p - 1)),
            ("chimera", p, (p - 2) / (1.5 * p + p - 2)),
            ("bitpipe", p, (p - 2) / (3 * p + p - 2)),
        ):
            bubble = worked(name, p, m).bubble
            assert bubble / (bubble + 3 * m) == pytest.approx(share)


def test_relative_to_1f1b() -> None:
    """The zero-bubble authors' table: bubble (span) 1, 1/3, 0, 0; V-Half 1/2 and V-Min 2/3 of 1F1B's, or less."""
    p = 8
    base = worked("1f1b", p, 4 * p).bubble
    assert worked("zb-h1", p, 4 * p).bubble == base / 3
    assert worked("v-half", p, 4 * p).bubble <= base / 2
    assert worked("v-min", p, 4 * p).bubble <= base * 2 / 3


# -- V at less memory --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_groups", "steps", "turns", "bubble", "memory"),
    [
        (4, (1, 1, 1, 1), (1, 1, 1), 5.5, 2.0),
        (8, (1, 1, 1, 1), (1, 1, 1), 13.5, 4.0),
        (4, (1, 3, 1, 3), (1, 1, 1), 4.5, 3.0),
        (8, (1, 2, 1, 2), (4, 1, 5), 12, 5.0),
        (4, (3, 3, 3, 3), (1, 1, 1), 2.5, 4.0),
        (8, (3, 3, 3, 3), (1, 1, 1), 6.5, 8.0),
    ],
)
def test_uniform_templates(
    num_groups: int, steps: tuple[int, int, int, int], turns: tuple[int, int, int], bubble: float, memory: float
) -> None:
    """Plain expansion, m = 4p: V-Min, V-Half and ZB-V as templates."""
    template = uniform_template(num_groups, Steps(*steps), Turns(*turns))
    assert template is not None
    shape = FamilyShape(num_groups, 4 * num_groups)
    found = worked_lists(one_route(shape, v(num_groups), expanded(template, shape.num_micro_batches)))
    assert (found.bubble, max(found.memory)) == (bubble, memory)


def test_a_template_with_two_instructions_in_one_slot_is_none() -> None:
    """p = 3, all steps 1: group 1 has F at 1 and 4, I at 7 = 1 modulo 6."""
    assert uniform_template(3, Steps(1, 1, 1, 1), Turns(1, 1, 1)) is None


@pytest.mark.parametrize("num_groups", [*range(4, 17), 32, 64])
def test_v_min_has_a_third_of_the_memory_and_two_thirds_of_the_bubble(num_groups: int) -> None:
    found = worked("v-min", num_groups, (4 if num_groups <= 16 else 2) * num_groups)
    assert max(found.memory) <= -(-num_groups // 3) + 1
    assert found.bubble <= 2 * (num_groups - 1)


# reached: below the published 4.5, 10.5, 22.5, 46.5
@pytest.mark.parametrize(("num_groups", "bubble"), [(4, 3.5), (8, 9.5), (16, 21.5), (32, 45.5)])
def test_v_half_has_half_of_the_memory_and_less_than_half_of_the_bubble(num_groups: int, bubble: float) -> None:
    found = worked("v-half", num_groups, 4 * num_groups)
    assert max(found.memory) <= num_groups / 2 + 1
    assert found.bubble == bubble
    assert bubble <= 1.5 * (num_groups - 1)


@pytest.mark.parametrize("num_groups", [*range(2, 13)])
def test_v_half_for_any_shape(num_groups: int) -> None:
    for m in (2 * num_groups, 3 * num_groups + 1):
        found = worked("v-half", num_groups, m)
        assert max(found.memory) <= num_groups / 2 + 1
        assert found.bubble <= 1.5 * (num_groups - 1)


# -- wave and two routes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_groups", "legs", "bubble"),
    [(4, 2, 6), (4, 4, 3.25), (4, 8, 1.625), (8, 2, 14), (8, 4, 7.5), (8, 8, 3.75)],
)
def test_wave(num_groups: int, legs: int, bubble: float) -> None:
    """m = p, memory up to p."""
    found = worked("wave", num_groups, num_groups, num_stages=legs * num_groups)
    assert found.bubble == bubble
    assert max(found.memory) <= num_groups


@pytest.mark.parametrize(("num_groups", "rounds", "bubble"), [(4, 1, 4), (4, 2, 5), (8, 1, 12), (8, 2, 17)])
def test_chimera(num_groups: int, rounds: int, bubble: float) -> None:
    """2(p-2) at m = p."""
    assert worked("chimera", num_groups, rounds * num_groups).bubble == bubble


def test_chimera_keeps_most_in_the_middle() -> None:
    assert worked("chimera", 4, 4).memory == [3, 4, 4, 3]
    assert max(worked("chimera", 8, 8).memory) == 8
    assert min(worked("chimera", 8, 8).memory) == 5


@pytest.mark.parametrize("num_groups", [2, 4, 6, 8, 10])
def test_bitpipe(num_groups: int) -> None:
    """m = kp: (p-2)(k+1)/2; so p-2 at m = p."""
    for rounds in (1, 2, 4):
        bubble = worked("bitpipe", num_groups, rounds * num_groups).bubble
        assert bubble == pytest.approx((num_groups - 2) * (rounds + 1) / 2, abs=1e-9)


def test_bitpipe_memory() -> None:
    assert worked("bitpipe", 4, 8).memory == [3.5, 4, 4, 3.5]
    assert worked("bitpipe", 8, 8).memory == [6.5, 7, 7.5, 8, 8, 7.5, 7, 6.5]


@pytest.mark.parametrize(
    ("num_micro_batches", "free", "delayed"), [(8, 30.0, 38.25), (16, 57.0, 72.0), (32, 111.0, 139.5)]
)
def test_bitpipe_under_a_message_delay_of_a_quarter(num_micro_batches: int, free: float, delayed: float) -> None:
    """p = 8; the whole step in U."""
    lists = family_lists("bitpipe", FamilyShape(8, num_micro_batches))
    for message, step in ((0.0, free), (0.25, delayed)):
        assert worked_lists(lists, message=message).bubble + 3 * num_micro_batches == step


# -- printed streams ---------------------------------------------------------------------------------------------------


def test_stream_of_interleaved() -> None:
    assert texts(family_lists("interleaved", FamilyShape(2, 3))) == [
        "0F0 0F1 0F2 2F0 2F1 2F2 2B0 2B1 2B2 0B0 0B1 0B2",
        "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1B0 1B1 1B2",
    ]


def test_stream_of_zb_h1() -> None:
    assert texts(family_lists("zb-h1", FamilyShape(4, 8)))[3] == (
        "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3F6 3I6 3W3 3F7 3I7 3W4 3W5 3W6 3W7"
    )


def test_stream_of_dualpipe_v() -> None:
    assert texts(family_lists("dualpipe-v", FamilyShape(2, 4)))[0] == (
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3"
    )


def test_streams_of_seq_1f1b() -> None:
    plan = family_plan("seq1f1b", FamilyShape(2, 2, num_slices=2))
    assert plan.streams == (
        "0F0.0 0F0.1 0F1.0 0B0.1 0F1.1 0B0.0 0B1.1 0B1.0 0G0 0U0",
        "1F0.0 1F0.1 1B0.1 1F1.0 1B0.0 1F1.1 1B1.1 1B1.0 1G0 1U0",
    )


def on_routes(text: str, *, num_stages: int) -> str:
    """``d0F1`` = route 0 stage 0 index 1 -> this plan's numbers: stages of route 1 from ``num_stages``, 2 i + route."""
    found = []
    for word in text.split():
        route, rest = (0 if word[0] == "d" else 1), word[1:]
        operation = "F" if "F" in rest else "B"
        stage, index = rest.split(operation)
        found.append(f"{int(stage) + route * num_stages}{operation}{2 * int(index) + route}")
    return " ".join(found)


def test_streams_of_chimera() -> None:
    expected = [
        "d0F0 d0F1 u3F0 u3B0 u3F1 u3B1 d0B0 d0B1",
        "d1F0 u2F0 d1F1 u2F1 u2B0 d1B0 u2B1 d1B1",
        "u1F0 d2F0 u1F1 d2F1 d2B0 u1B0 d2B1 u1B1",
        "u0F0 u0F1 d3F0 d3B0 d3F1 d3B1 u0B0 u0B1",
    ]
    found = texts(family_lists("chimera", FamilyShape(4, 4)))
    assert found == [on_routes(text, num_stages=4) for text in expected]


def test_streams_of_bitpipe() -> None:
    expected = [
        "d0F0 d0F1 u3F0 u4F0 u3F1 u4F1 d7F0 d7B0 d7F1 d7B1 u4B0 u3B0 u4B1 u3B1 d0B0 d0B1",
        "d1F0 u2F0 d1F1 u2F1 u5F0 d6F0 u5F1 d6F1 d6B0 u5B0 d6B1 u5B1 u2B0 d1B0 u2B1 d1B1",
    ]
    found = texts(family_lists("bitpipe", FamilyShape(4, 4)))
    assert found[:2] == [on_routes(text, num_stages=8) for text in expected]


def test_registry_names() -> None:
    assert list(FAMILIES) == [
        "gpipe",
        "1f1b",
        "interleaved",
        "breadth-first",
        "zb-h1",
        "zb-h2",
        "zb-v",
        "v-half",
        "v-min",
        "wave",
        "chimera",
        "bitpipe",
        "dualpipe-v",
        "helixpipe",
        "helixpipe-two-fold",
        "terapipe",
        "seq1f1b",
        "vocabulary-one-barrier",
        "vocabulary-two-barriers",
        "1f1b-asynchronous",
    ]
