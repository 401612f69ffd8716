"""Instructions and their text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plan.instruction import Instruction, parse_instruction, stream_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2F3.1", Instruction("F", 2, 3, 1)),
        ("0B0", Instruction("B", 0, 0)),
        ("12U34", Instruction("U", 12, 34)),
        ("0W10.10", Instruction("W", 0, 10, 10)),
    ],
)
def test_legal_text(text: str, expected: Instruction) -> None:
    assert parse_instruction(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "F", "0F", "F0", "0X0", "0f0", "00F0", "0F00", "0F0.", "0F0.01", "0F0.0.0", " 0F0", "0F0 ", "0F0\n",
        "-1F0", "0F-1", "+0F0", "0F1e3", "٣F٣", "0F0,", "1234567890F0", "0F0 0B0", "0Ｆ0", "0F0\x00",
    ],
)  # fmt: skip
def test_text_that_is_no_instruction(text: str) -> None:
    assert parse_instruction(text) is None


numbers = st.integers(0, 999_999_999)


@given(st.builds(Instruction, st.sampled_from("FRBIW"), numbers, numbers, st.integers(0, 20)))
def test_text_comes_back(instruction: Instruction) -> None:
    several = instruction.text(num_slices=instruction.slice + 2)
    assert parse_instruction(several) == instruction
    assert parse_instruction(str(instruction)) == instruction


def test_the_slice_is_written_exactly_when_there_are_several() -> None:
    instructions = [
        Instruction("F", 0, 0), Instruction("F", 0, 1, 0), Instruction("B", 0, 1, 1), Instruction("G", 0, 1),
    ]  # fmt: skip
    assert stream_text(instructions, [1, 2]) == "0F0 0F1.0 0B1.1 0G1"


def test_only_instructions_of_visits_have_a_visit() -> None:
    with pytest.raises(AssertionError):
        _ = Instruction("G", 0, 0).visit
