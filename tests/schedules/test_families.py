"""What holds for every family of the registry, on every shape that it does not refuse."""

from collections import defaultdict

import pytest

from planner.check.structure import check_plan
from planner.errors import PlanError
from planner.plan.dependencies import Dependencies
from planner.plan.plan import Plan
from planner.schedules.families import FAMILIES, abstract_plan, family_lists, family_plan
from planner.schedules.family import FamilyShape, PlanLists
from planner.schedules.lower import lower
from planner.schedules.split import fused, split_in_place
from tests.helpers.families import worked_lists

GROUPS = (1, 2, 3, 4, 6)


def shapes(num_groups: int) -> list[FamilyShape]:
    p = num_groups
    return [FamilyShape(p, m) for m in sorted({1, 2, p, p + 1, 2 * p, 3 * p + 1})]


def served(name: str, num_groups: int) -> list[PlanLists]:
    spec = FAMILIES[name]
    return [spec.lists(shape) for shape in shapes(num_groups) if spec.refusal(shape) is None]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("num_groups", GROUPS)
def test_a_family_is_refused_with_a_reason_or_gives_a_legal_plan(name: str, num_groups: int) -> None:
    """Structure, order of messages, no deadlock in three message models."""
    for shape in shapes(num_groups):
        reason = FAMILIES[name].refusal(shape)
        if reason is not None:
            with pytest.raises(PlanError, match=name) as error:
                family_plan(name, shape)
            assert reason in error.value.message
            continue
        plan = family_plan(name, shape)
        assert len(plan.groups) == num_groups
        assert len(plan.micro_batches) == shape.num_micro_batches
        verdict = check_plan(plan)
        assert verdict.fault is None, verdict.fault
        assert bool(verdict.warnings) == (
            FAMILIES[name].changes_results and len(plan.groups) > 1 < len(plan.micro_batches)
        )


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_serves_an_even_number_of_groups_with_many_micro_batches(name: str) -> None:
    for num_groups in (2, 4, 8):
        assert FAMILIES[name].refusal(FamilyShape(num_groups, 4 * num_groups)) is None


@pytest.mark.parametrize("name", FAMILIES)
def test_the_memory_walk_is_a_count_of_the_stream(name: str) -> None:
    """Live visits along the stream, counted here: one more at F, one less behind the last backward."""
    for lists in served(name, 4):
        found = worked_lists(lists)
        shares = lists.layer_shares or (1,) * lists.num_layers
        dependencies = Dependencies(found.plan)
        for group, stream in enumerate(found.plan.instructions):
            live, most = 0.0, 0.0
            for instruction in stream:
                if instruction.operation in ("G", "U"):
                    continue
                held = sum(shares[layer] for layer in found.plan.stages[instruction.stage].layers) / sum(shares)
                batch = found.plan.micro_batches[instruction.number]
                tokens = batch.tokens(instruction.slice)
                kept = 4 * held * tokens.size / batch.cuts[-1]
                if instruction.operation == "F":
                    live += kept
                    most = max(most, live)
                elif instruction == dependencies.last_backward(instruction.visit):
                    live -= kept
            assert found.memory[group] == pytest.approx(most, abs=1e-3)
            assert live == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_step_is_below_head_and_work(name: str) -> None:
    """A group starts when the first micro-batch can reach it, and then has its work to do."""
    for lists in served(name, 4):
        found = worked_lists(lists)
        step = found.bubble + 3 * len(found.plan.micro_batches)
        for group, work in enumerate(work_by_group(found.plan, lists)):
            assert step >= head(found.plan, lists, group) + work - 1e-3


def share(lists: PlanLists, layers: range) -> float:
    """U of one F on some layers."""
    shares = lists.layer_shares or (1,) * lists.num_layers
    return len(lists.streams) * sum(shares[layer] for layer in layers) / sum(shares)


def work_by_group(plan: Plan, lists: PlanLists) -> list[float]:
    work = [0.0] * len(plan.groups)
    for batch in plan.micro_batches:
        for stage in plan.routes[batch.route]:
            work[plan.stages[stage].group] += 3 * share(lists, plan.stages[stage].layers)
    return work


def head(plan: Plan, lists: PlanLists, group: int) -> float:
    """Earliest start of anything: the way of the shortest slice to the group's nearest stage."""
    sizes = {batch.tokens(k).size / batch.cuts[-1] for batch in plan.micro_batches for k in range(batch.num_slices)}
    ready: dict[int, float] = defaultdict(float)
    dependencies = Dependencies(plan)
    for (_, stage), found in sorted(dependencies.neighbours.items(), key=lambda item: item[0][1]):
        ends = (ready[source] + min(sizes) * share(lists, plan.stages[source].layers) for source in found.reads)
        ready[stage] = max(ends, default=0.0)
    return min(ready[stage] for stage in plan.stages_of_group(group))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_stream_split_in_place_and_fused_again_is_the_same(name: str) -> None:
    for lists in served(name, 4):
        for stream in lists.streams:
            whole = fused(stream)
            assert fused(split_in_place(whole)) == whole
            assert not {(i.stage, i.number, i.slice) for i in whole if i.operation == "I"} & {
                (i.stage, i.number, i.slice) for i in whole if i.operation == "W"
            }


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v", "bitpipe", "helixpipe"])
def test_splitting_in_place_and_fusing_keep_plans_legal(name: str) -> None:
    lists = family_lists(name, FamilyShape(4, 9))
    for change in (split_in_place, fused):
        changed = abstract_plan(PlanLists(**{**vars(lists), "streams": [change(stream) for stream in lists.streams]}))
        assert check_plan(changed).ok
    whole = PlanLists(**{**vars(lists), "streams": [fused(stream) for stream in lists.streams]})
    parts = PlanLists(**{**vars(lists), "streams": [split_in_place(stream) for stream in whole.streams]})
    assert worked_lists(parts).bubble <= worked_lists(whole).bubble


def test_the_split_puts_the_gradient_first() -> None:
    (stream,) = family_lists("1f1b", FamilyShape(1, 2)).streams
    assert [str(i) for i in split_in_place(stream)] == ["0F0", "0I0", "0W0", "0F1", "0I1", "0W1"]


# section 2: forward messages of a micro-batch: p-1; interleaved vp-1; V and BitPipe 2p-2, the tip is local
@pytest.mark.parametrize(
    ("name", "forward"),
    [
        ("gpipe", 3),
        ("1f1b", 3),
        ("zb-h1", 3),
        ("chimera", 3),
        ("interleaved", 7),
        ("zb-v", 6),
        ("v-half", 6),
        ("bitpipe", 6),
    ],
)
def test_messages_of_a_micro_batch(name: str, forward: int) -> None:
    """As many gradients come back."""
    assert lower(family_plan(name, FamilyShape(4, 8))).num_messages == 8 * 2 * forward


@pytest.mark.parametrize(
    ("shape", "name", "reason"),
    [
        (FamilyShape(4, 8, num_slices=2), "gpipe", "num_slices, which gpipe does not read"),
        (FamilyShape(4, 8, num_stages=3), "interleaved", "3 stages on 4 groups"),
        (FamilyShape(4, 8, forwards_first=(1, 2, 3, 4)), "1f1b", "counts that do not rise"),
        (FamilyShape(3, 8), "bitpipe", "3 groups, expected an even number"),
        (FamilyShape(2, 1), "chimera", "1 micro-batch"),
        (FamilyShape(4, 7), "dualpipe-v", "7 micro-batches, expected at least 8"),
        (FamilyShape(4, 8, num_layers=6), "helixpipe", "6 blocks, expected a multiple of the 4 groups"),
        (FamilyShape(4, 3), "helixpipe", "3 micro-batches, expected more than 3"),
        (FamilyShape(4, 8, cuts=(0, 4, 2)), "seq1f1b", "expected ascending numbers"),
        (FamilyShape(4, 8, cuts=(0, 4), num_slices=2), "terapipe", "expected one of them"),
        (FamilyShape(1, 8), "vocabulary-one-barrier", "1 group"),
        (FamilyShape(2, 8, forwards_first=(0, 1)), "vocabulary-two-barriers", "counts of at least 1"),
    ],
)
def test_refusals_say_what_was_found(shape: FamilyShape, name: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason) as error:
        family_lists(name, shape)
    assert error.value.code == "family"


def test_shapes_and_names_are_checked() -> None:
    with pytest.raises(PlanError, match="found num_groups=0"):
        FamilyShape(0, 1)
    with pytest.raises(PlanError, match=r"found family 'gpip', expected one of .*gpipe"):
        family_plan("gpip", FamilyShape(2, 2))


def test_asynchronous_1f1b_works_with_old_weights() -> None:
    """p = 4: group d goes backward with weights p-1-d updates old."""
    verdict = check_plan(family_plan("1f1b-asynchronous", FamilyShape(4, 8)))
    assert verdict.facts is not None
    assert verdict.facts.staleness == (3, 2, 1, 0)
    assert verdict.facts.num_updates == 8
