"""Section 3 of the contract, row by row, worked out by hand."""

import pytest

from planner.plan.dependencies import Dependencies, Neighbours, Wait
from planner.plan.instruction import Instruction, Visit, parse_instruction
from planner.plan.plan import Plan
from tests.helpers.edits import edited
from tests.helpers.plan_json import EXAMPLE, chain_json, plan_json, read_plan

CHAIN = read_plan(chain_json(3, 1))
SPLIT = read_plan(chain_json(2, 1, backward="IW"))
EXAMPLE_PLAN = read_plan(EXAMPLE)
SLICES = read_plan(
    plan_json(
        groups=[[0], [1]],
        stages=[{"group": 0, "first_layer": 0, "end_layer": 1}, {"group": 1, "first_layer": 1, "end_layer": 2}],
        routes=[[0, 1]],
        micro_batches=[{"route": 0, "samples": 1, "cuts": [0, 8, 16, 24]}],
    )
)


def _instruction(text: str) -> Instruction:
    found = parse_instruction(text)
    assert found is not None
    return found


def _waits(plan: Plan, text: str) -> list[tuple[str, str]]:
    """(kind, instruction) as text; the slice is written where it is not 0."""
    slices = max(batch.num_slices for batch in plan.micro_batches)
    found = Dependencies(plan).waits(_instruction(text))
    return [(wait.kind, wait.instruction.text(num_slices=slices)) for wait in found]


@pytest.mark.parametrize(
    ("plan", "instruction", "expected"),
    [
        # F: F of the stages it reads, F of the slice before
        (CHAIN, "0F0", []),
        (CHAIN, "1F0", [("activation", "0F0")]),
        (SLICES, "0F0.2", [("own", "0F0.1")]),
        (SLICES, "1F0.0", [("activation", "0F0.0")]),
        (SLICES, "1F0.1", [("activation", "0F0.1"), ("own", "1F0.0")]),
        # first backward: own F (or R), first backward of the readers, of the slice after
        (CHAIN, "2B0", [("own", "2F0")]),
        (CHAIN, "1B0", [("own", "1F0"), ("gradient", "2B0")]),
        (CHAIN, "0B0", [("own", "0F0"), ("gradient", "1B0")]),
        (SLICES, "1B0.2", [("own", "1F0.2")]),
        (SLICES, "1B0.1", [("own", "1F0.1"), ("own", "1B0.2")]),
        (SLICES, "0B0.0", [("own", "0F0.0"), ("gradient", "1B0.0"), ("own", "0B0.1")]),
        (EXAMPLE_PLAN, "2R3.1", [("own", "2F3.1")]),
        (EXAMPLE_PLAN, "2B3.1", [("own", "2R3.1")]),
        (EXAMPLE_PLAN, "2B3.0", [("own", "2R3.0"), ("own", "2B3.1")]),
        # I is the first backward, W waits for its own I only
        (SPLIT, "1I0", [("own", "1F0")]),
        (SPLIT, "0I0", [("own", "0F0"), ("gradient", "1I0")]),
        (SPLIT, "1W0", [("own", "1I0")]),
        (SPLIT, "0W0", [("own", "0I0")]),
        # G: the stream says it; U: one update a step waits for the G of all stages
        (CHAIN, "1G0", []),
        (CHAIN, "1U0", [("sum", "0G0"), ("sum", "1G0"), ("sum", "2G0")]),
    ],
)
def test_what_an_instruction_waits_for(plan: Plan, instruction: str, expected: list[tuple[str, str]]) -> None:
    assert _waits(plan, instruction) == expected


def test_a_frozen_reader_gives_no_gradient() -> None:
    """Stage 1 is visited F only: stage 0 has nobody to wait for, and is forward only itself."""
    plan = read_plan(chain_json(2, 1, backward=""))
    assert Dependencies(plan).neighbours[0, 0] == Neighbours((), ())
    assert Dependencies(plan).first_backward(Visit(0, 0, 0)) is None
    assert Dependencies(plan).last_backward(Visit(0, 0, 0)) is None


def test_detached_reads_bring_outputs_and_no_gradient() -> None:
    """Layer 1 reads layer 0 detached (a local loss): it waits for its F, layer 0 does not wait for its backward."""
    value = edited(chain_json(2, 1), "/graph/reads", [{"layer": 1, "detached": [0]}])
    dependencies = Dependencies(read_plan(value))
    assert dependencies.neighbours == {(0, 0): Neighbours((), ()), (0, 1): Neighbours((0,), ())}
    assert dependencies.waits(_instruction("0B0")) == (Wait("own", Instruction("F", 0, 0)),)


def test_a_reader_that_keeps_its_gradient_is_no_reader() -> None:
    """Stage 1 is visited F W; stage 0 is frozen."""
    value = plan_json(
        groups=[[0], [1]],
        stages=[{"group": 0, "first_layer": 0, "end_layer": 1}, {"group": 1, "first_layer": 1, "end_layer": 2}],
        routes=[[0, 1]],
        micro_batches=[{"route": 0, "samples": 1, "cuts": [0, 8]}],
        backwards={0: "", 1: "W"},
    )
    dependencies = Dependencies(read_plan(value))
    assert dependencies.neighbours[0, 0].readers == ()
    assert dependencies.waits(_instruction("1W0")) == (Wait("own", Instruction("F", 1, 0)),)
    assert dependencies.first_backward(Visit(1, 0, 0)) == Instruction("W", 1, 0)


def test_skips_are_read_directly() -> None:
    """Layer 3 reads 0 and 2, one layer a stage: stage 0 is read by 1 and 3, stage 3 reads 0 and 2."""
    value = edited(chain_json(4, 1), "/graph/reads", [{"layer": 3, "sources": [0, 2]}])
    found = Dependencies(read_plan(value)).neighbours
    assert [found[0, stage] for stage in range(4)] == [
        Neighbours((), (1, 3)),
        Neighbours((0,), (2,)),
        Neighbours((1,), (3,)),
        Neighbours((0, 2), ()),
    ]


def test_neighbours_belong_to_a_route() -> None:
    """Two routes share stage 0 and go on over their own second stages."""
    value = plan_json(
        groups=[[0], [1], [2]],
        stages=[
            {"group": 0, "first_layer": 0, "end_layer": 1},
            {"group": 1, "first_layer": 1, "end_layer": 2},
            {"group": 2, "first_layer": 1, "end_layer": 2},
        ],
        routes=[[0, 1], [0, 2]],
        micro_batches=[{"route": 0, "samples": 1, "cuts": [0, 8]}, {"route": 1, "samples": 1, "cuts": [0, 8]}],
    )
    dependencies = Dependencies(read_plan(value))
    assert dependencies.of_stage(0, 0) == Neighbours((), (1,))
    assert dependencies.of_stage(1, 0) == Neighbours((), (2,))
    assert dependencies.waits(_instruction("0B1")) == (
        Wait("own", Instruction("F", 0, 1)),
        Wait("gradient", Instruction("B", 2, 1)),
    )


def test_recompute_without_an_r_waits_for_the_forward() -> None:
    value = edited(EXAMPLE, "/streams/2", "2F3.0 2F3.1 2B3.1 2B3.0 2G0 2U0")
    plan = read_plan(value)
    assert _waits(plan, "2B3.1") == [("own", "2F3.1")]
    assert not Dependencies(plan).recomputes(Visit(2, 3, 1))
    assert Dependencies(EXAMPLE_PLAN).recomputes(Visit(2, 3, 1))


@pytest.mark.parametrize(
    ("stream", "last"),
    [("0F0 0I0 0W0", "W"), ("0F0 0W0 0I0", "I"), ("0F0 0B0", "B"), ("0F0 0I0", "I")],
)
def test_last_backward_is_the_last_of_the_stream(stream: str, last: str) -> None:
    value = edited(chain_json(1, 1), "/streams", [stream])
    found = Dependencies(read_plan(value)).last_backward(Visit(0, 0, 0))
    assert found == _instruction(f"0{last}0")


def test_several_updates_wait_for_those_that_share_a_weight() -> None:
    """Layers 0 and 2 are tied; stage 1 shares with nobody."""
    value = edited(chain_json(3, 2), "/graph/tied", [[0, 2]])
    for stage in range(3):
        forward, backward = f"{stage}F0 {stage}F1", f"{stage}B0 {stage}G0 {stage}U0 {stage}B1 {stage}G1 {stage}U1"
        value = edited(value, f"/streams/{stage}", f"{forward} {backward}")
    plan = read_plan(value)
    assert Dependencies(plan).num_updates == 2
    assert _waits(plan, "0U1") == [("sum", "0G1"), ("sum", "2G1")]
    assert _waits(plan, "1U1") == [("sum", "1G1")]
    assert _waits(plan, "2U0") == [("sum", "0G0"), ("sum", "2G0")]


def test_without_updates_nothing_is_summed() -> None:
    value = edited(chain_json(2, 1), "/streams", ["0F0 0B0", "1F0 1B0"])
    dependencies = Dependencies(read_plan(value))
    assert (dependencies.num_updates, dependencies.updated_stages) == (0, ())


def test_a_chain_without_slices_has_at_most_two_predecessors() -> None:
    plan = read_plan(chain_json(8, 4))
    dependencies = Dependencies(plan)
    for stream in plan.instructions:
        for instruction in stream:
            if instruction.operation in "FB":
                assert len(dependencies.waits(instruction)) <= 2
