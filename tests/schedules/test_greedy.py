"""List scheduling: hand-made orders, caps, delays, and the two-route placements at their bounds."""

import pytest

from planner.errors import PlanError
from planner.plan.instruction import Instruction
from planner.schedules.family import FamilyShape
from planner.schedules.greedy import Delay, GreedyTask, chain, list_schedule
from planner.schedules.placements import line, mirrored, two_routes, v
from tests.helpers.families import worked_lists


def make_task(groups: list[int], *, operations: str = "FB", num_micro_batches: int = 2, cap: int = 9) -> GreedyTask:
    return GreedyTask(
        groups=groups,
        operations=[operations] * len(groups),
        batches=[range(num_micro_batches)] * len(groups),
        reads=chain(len(groups)),
        ticks={"F": 1, "B": 2, "I": 1, "W": 1},
        caps=[cap] * (max(groups) + 1),
        kept=[1] * len(groups),
    )


def backward_first(instruction: Instruction) -> tuple[int, ...]:
    return ("IBFW".index(instruction.operation), instruction.number, instruction.stage)


def ordered(task: GreedyTask) -> list[str]:
    return [" ".join(map(str, stream)) for stream in list_schedule(task, backward_first).streams]


def test_two_groups() -> None:
    """Group 1: F0 1-2, at 2 B0 wins against F1, ends 4; F1 4-5, B1 5-7. Group 0: B0 waits until 4, B1 7-9."""
    task = make_task([0, 1])
    assert ordered(task) == ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]
    assert list_schedule(task, backward_first).end == 9


def test_a_cap_of_one_takes_one_micro_batch_after_the_other() -> None:
    task = make_task([0, 1], cap=1)
    assert ordered(task) == ["0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"]
    assert list_schedule(task, backward_first).end == 12


def test_a_forward_leaves_room_for_the_later_stage_of_its_group() -> None:
    """V on one group of two: with cap 2 stage 0 may not take both places, or stage 3 could never go forward."""
    task = make_task([0, 1, 1, 0], cap=2)
    assert ordered(task)[0] == "0F0 3F0 3B0 0B0 0F1 3F1 3B1 0B1"


def test_caps_that_let_nothing_start_are_refused() -> None:
    with pytest.raises(PlanError, match="found 12 instructions that the caps never let start") as error:
        list_schedule(make_task([0, 1, 0], cap=1), backward_first)
    assert error.value.code == "deadlock"


def test_delays_are_kept() -> None:
    """F of group 1 two ticks after that of group 0, the gradient three ticks back: 1 + 2 + 1 + 2 + 3 + 2."""
    task = make_task([0, 1], num_micro_batches=1)
    late = GreedyTask(**{**vars(task), "delays": {(1, 0): Delay(2, 3)}})
    assert list_schedule(late, backward_first).end == 11


def test_weight_gradients_fill_the_gaps() -> None:
    task = make_task([0, 1], operations="FIW")
    assert ordered(task) == ["0F0 0F1 0I0 0W0 0I1 0W1", "1F0 1I0 1F1 1I1 1W0 1W1"]


# the bound of the placement: two lines p/2-1, two V p/4-1/2; split W, at most p micro-batches kept, m = 2p
@pytest.mark.parametrize(
    ("num_groups", "shape", "bubble"), [(4, "v", 0.5), (8, "v", 1.5), (4, "line", 1), (8, "line", 3)]
)
def test_two_routes_with_split_backward_reach_their_bound(num_groups: int, shape: str, bubble: float) -> None:
    down = v(num_groups) if shape == "v" else line(num_groups)
    up, m, num_stages = mirrored(down), 2 * num_groups, len(down)
    task = GreedyTask(
        groups=down + up,
        operations=["FIW"] * 2 * num_stages,
        batches=[range(0, m, 2)] * num_stages + [range(1, m, 2)] * num_stages,
        reads=chain(num_stages) + chain(num_stages, first=num_stages),
        ticks={"F": 1, "I": 1, "W": 1},
        caps=[num_stages] * num_groups,
        kept=[1] * 2 * num_stages,
    )
    found = worked_lists(two_routes(FamilyShape(num_groups, m), down, up, list_schedule(task, backward_first).streams))
    assert (found.bubble, max(found.memory) <= num_groups) == (bubble, True)
