from planner.cli.drawing import draw_timeline, group_line
from planner.plan.instruction import Instruction
from planner.simulate.timeline import Event, Timeline


def event(text: str, start_ns: int, end_ns: int) -> Event:
    return Event(Instruction(text[0], 0, int(text[1:])), start_ns, end_ns)  # type: ignore[arg-type]


def test_an_instruction_fills_its_cells_and_idle_time_is_dots() -> None:
    events = [event("F0", 0, 40), event("B0", 60, 100)]
    assert group_line(events, columns=10, step_ns=100) == "F0--..B0--"


def test_a_number_that_does_not_fit_is_left_out() -> None:
    # three columns for F12, two for F13: "F1" would be another instruction
    events = [event("F12", 0, 30), event("F13", 30, 50)]
    assert group_line(events, columns=5, step_ns=50) == "F12F-"


def test_two_equal_operations_side_by_side_stay_apart() -> None:
    events = [event("F0", 0, 30), event("F1", 30, 60)]
    assert group_line(events, columns=6, step_ns=60) == "F0-F1-"


def test_the_second_of_two_stages_has_small_letters() -> None:
    """A V: stages 2 and 5."""
    v = [
        Event(Instruction("F", 2, 1), 0, 10),
        Event(Instruction("F", 5, 1), 10, 20),
        Event(Instruction("I", 5, 1), 20, 30),
    ]
    assert group_line(v, columns=6, step_ns=30) == "F1f1i1"


def test_more_than_two_stages_are_numbered() -> None:
    """A wave: stages 0, 3, 4, 7. The stage fits before the micro-batch does; no two stages look alike."""
    wave = [Event(Instruction("F", stage, 12), 10 * n, 10 * n + 10) for n, stage in enumerate((0, 3, 4, 7))]
    assert group_line(wave, columns=20, step_ns=40) == "0F12-3F12-4F12-7F12-"
    assert group_line(wave, columns=8, step_ns=40) == "0F3F4F7F"
    assert group_line(wave, columns=4, step_ns=40) == "FFFF"


def test_a_slice_is_named_where_it_fits() -> None:
    """Micro-batch 3 has two slices, micro-batch 4 one."""
    events = [
        Event(Instruction("F", 0, 3, 0), 0, 40),
        Event(Instruction("F", 0, 3, 1), 40, 70),
        Event(Instruction("F", 0, 4, 0), 70, 120),
    ]
    assert group_line(events, columns=12, step_ns=120) == "F3.0F3-F4---"


def test_of_several_instructions_in_a_cell_the_longest_is_shown() -> None:
    events = [event("F0", 0, 2), event("B0", 2, 10)]
    assert group_line(events, columns=1, step_ns=10) == "B"


def test_a_cell_that_is_idle_for_more_than_half_is_a_dot() -> None:
    assert group_line([event("F0", 0, 4)], columns=1, step_ns=10) == "."


def test_an_empty_step_is_drawn() -> None:
    assert group_line([], columns=4, step_ns=0) == "...."
    assert group_line([event("G0", 0, 0)], columns=4, step_ns=0) == "...."


def test_every_group_has_a_line_and_the_scale_ends_at_the_step() -> None:
    timeline = Timeline(
        events=((event("F0", 0, 50_000_000),), (event("F0", 50_000_000, 100_000_000),)),
        step_ns=100_000_000,
        num_ranks=(1, 1),
    )
    lines = draw_timeline(timeline, width=28).plain.splitlines()
    assert lines == [
        "group 0 F0--------..........",
        "group 1 ..........F0--------",
        "        0             100 ms",
    ]
