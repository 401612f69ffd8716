"""Searches that make orders for the costs of the best plans: never worse, checked, bounded, obedient, reproducible."""

import random

import pytest

from planner.check.problem import check_against
from planner.executor.support import refuse_unsupported
from planner.plan.answer import Answer, Progress
from planner.plan.plan import Plan, Prediction, Provenance
from planner.problem.options import Constraints, LayerPin, Schedules, SearchOptions
from planner.problem.problem import Problem
from planner.problem.profile import Reads
from planner.search.search import Listener, search
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_workload, with_points
from tests.helpers.slow_link import MADE_NS, NAMED_NS, ONE_LINE, slow_link

MS = 1_000_000
PIPELINES = Constraints(data_degrees=(1,))


def searched(problem: Problem, constraints: Constraints = PIPELINES, schedules: Schedules = "synthesised") -> Answer:
    answer = search(problem, SearchOptions(constraints=constraints, schedules=schedules))
    if answer.plan is not None:
        verdict = check_against(answer.plan, problem)
        assert verdict.ok, verdict.fault
        refuse_unsupported(answer.plan)
    return answer


def plan_of(answer: Answer) -> Plan:
    assert answer.plan is not None, answer.reasons
    return answer.plan


def prediction_of(answer: Answer) -> Prediction:
    found = plan_of(answer).prediction
    assert found is not None
    return found


def provenance_of(answer: Answer) -> Provenance:
    found = plan_of(answer).provenance
    assert found is not None
    return found


def operations_of(answer: Answer) -> set[str]:
    return {one.operation for stream in plan_of(answer).instructions for one in stream}


def test_a_third_micro_batch_in_flight_hides_a_slow_link() -> None:
    """Worked by hand, in ms, with memory for three micro-batches on group 0, where GPipe needs four.

    1F1B: 0F0 0-1, 0F1 1-2 | 1F0 2-3, 1B0 3-4, 1F1 4-5, 1B1 5-6 | 0B0 5-6, 0F2 6-7, 0B1 7-8, 0F3 8-9 | 1F2 8-9,
    1B2 9-10, 1F3 10-11, 1B3 11-12 | 0B3 13-14: 14 ms.
    Three forwards first: 0F0 0F1 0F2 0-3 | 1F0 2-3, 1B0 3-4 ... 1B2 7-8 | 0B0 5-6, 0F3 6-7 | 1F3 8-9, 1B3 9-10 |
    0B3 11-12: 12 ms, which is the way of the last micro-batch behind 0F3 and as short as group 1 allows (2 + 8 + 2).
    Four messages of 11 ns more stand on both ways.
    """
    named, made = searched(slow_link(), ONE_LINE, "named"), searched(slow_link(), ONE_LINE)
    assert prediction_of(named).step_ns == NAMED_NS == 14 * MS + 44
    assert prediction_of(made).step_ns == MADE_NS == 12 * MS + 44
    assert plan_of(made).streams[0] == "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3 0G0 0U0"
    assert provenance_of(made).family == "synthesised"
    assert (provenance_of(made).method or "").endswith(", from 1f1b")
    assert provenance_of(named).method is None


def random_pipeline(source: random.Random) -> Problem:
    """Up to 5 layers on 2 or 3 devices of up to 2 kinds, links from quick to slow, memory from too little to plenty."""
    num_layers = source.randint(2, 5)
    times = [source.randint(200_000, 2_000_000) for _ in range(num_layers)]
    splits, overhead_ns = source.random() < 0.5, source.choice([0, 10_000])
    kinds = source.choice([("cpu-a",), ("cpu-a", "cpu-b")])
    saved = [source.randint(0, 8_000) for _ in range(num_layers)]
    profiles = [
        make_profile(
            kind=kind,
            layer_forward_ns=[time * (1 + number) for time in times],
            saved_bytes=saved,
            num_params=[source.randint(1, 1_000) if not number else 500 for _ in range(num_layers)],
            per_instruction_ns=overhead_ns,
            split=splits,
        )
        for number, kind in enumerate(kinds[:1])
    ]
    if len(kinds) == 2:
        params = [layer.num_params for layer in profiles[0].layers]
        profiles.append(
            make_profile(
                kind="cpu-b",
                layer_forward_ns=[2 * time for time in times],
                saved_bytes=saved,
                num_params=params,
                per_instruction_ns=overhead_ns,
                split=splits,
            )
        )
    batch = source.choice([2, 4])
    need = sum(layer.num_params for layer in profiles[0].layers) * 16 + batch * sum(saved)
    usable = [source.randint(need // 3, 2 * need) for _ in kinds]
    groups = [(kind, 1, source.randint(1, 2) if len(kinds) > 1 else source.randint(2, 3)) for kind in kinds]
    cluster = make_cluster(*groups, usable_bytes=usable, latency_ns=source.choice([1_000, 100_000, 1_000_000]))
    return make_problem(profiles=profiles, cluster=cluster, workload=make_workload(global_batch_size=batch))


@pytest.mark.parametrize("first", range(0, 200, 10))
def test_never_worse_than_the_best_named_order(first: int) -> None:
    """200 random problems; the bound stays below, memory and message rules are checked."""
    for seed in range(first, first + 10):
        problem = random_pipeline(random.Random(seed))
        named, made = searched(problem, schedules="named"), searched(problem)
        assert named.status == made.status
        if named.plan is None:
            continue
        assert prediction_of(made).step_ns <= prediction_of(named).step_ns
        assert prediction_of(made).bound_ns == prediction_of(named).bound_ns <= prediction_of(made).step_ns
        assert (made.limit == "optimal") == (prediction_of(made).bound_ns == prediction_of(made).step_ns)


def pipeline(*, splits: bool, num_layers: int = 8, batch: int = 8) -> Problem:
    """Unequal layers on two kinds of devices."""
    times = [1_000_000 + 137_000 * (layer % 5) for layer in range(num_layers)]
    fast = make_profile(layer_forward_ns=times, split=splits)
    slow = make_profile(kind="cpu-b", layer_forward_ns=[2 * time for time in times], split=splits)
    cluster = make_cluster(("cpu-a", 1, 2), ("cpu-b", 1, 2), latency_ns=50_000)
    return make_problem(profiles=[fast, slow], cluster=cluster, workload=make_workload(global_batch_size=batch))


def test_split_backwards_are_used_where_the_profiles_have_their_parts() -> None:
    """And shorten the step; without them only whole backwards are used, and a warning says why."""
    split, whole = searched(pipeline(splits=True)), searched(pipeline(splits=False))
    assert {"I", "W"} <= operations_of(split)
    assert not operations_of(whole) & {"I", "W"}
    assert prediction_of(split).step_ns < prediction_of(whole).step_ns
    assert not split.warnings
    (warning,) = whole.warnings
    assert (warning.code, warning.layer, warning.device_kind) == ("no_split", 0, "cpu-a")
    assert "no order with a split backward was tried" in warning.message


@pytest.mark.parametrize("missing", ["backward_input", "backward_weight"])
def test_half_of_the_parts_is_none(missing: str) -> None:
    """Plan, bound and warning are those of a profile with neither."""
    problem = pipeline(splits=True)
    profiles = [with_points(profile, **{missing: None}) for profile in problem.profiles]
    half = searched(make_problem(profiles=profiles, cluster=problem.cluster, workload=problem.workload))
    whole = searched(pipeline(splits=False))
    assert [warning.code for warning in half.warnings] == ["no_split"]
    assert not operations_of(half) & {"I", "W"}
    assert prediction_of(half).bound_ns == prediction_of(whole).bound_ns


def test_named_families_with_a_split_backward_need_its_parts() -> None:
    only = Constraints(data_degrees=(1,), families=("zb-h1", "zb-v"), num_stages=4)
    found = searched(pipeline(splits=True), only, "named")
    assert provenance_of(found).family in ("zb-h1", "zb-v")
    refused = searched(pipeline(splits=False), only, "named")
    assert refused.status == "infeasible"
    assert refused.reasons[0].code == "no_split"


def test_one_kind_without_the_parts_keeps_whole_backwards() -> None:
    """A profile of cpu-b that has only the whole backward: plans that use cpu-b do not split."""
    problem = pipeline(splits=True)
    whole = pipeline(splits=False).profiles[1]
    mixed = make_problem(profiles=[problem.profiles[0], whole], cluster=problem.cluster, workload=problem.workload)
    found = searched(mixed)
    kinds = {node.device_kind for node in plan_of(found).nodes}
    assert kinds == {"cpu-a"} or not operations_of(found) & {"I", "W"}
    assert found.warnings[0].device_kind == "cpu-b"


def test_same_request_same_plan() -> None:
    digests = {plan_of(searched(pipeline(splits=True))).digest for _ in range(3)}
    assert len(digests) == 1


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(data_degrees=(1,), families=("1f1b",)),
        Constraints(data_degrees=(1,), most_legs=1),
        Constraints(data_degrees=(1,), num_stages=8),
        Constraints(data_degrees=(1,), most_stages=3),
        Constraints(data_degrees=(1,), recompute=("full",)),
        Constraints(data_degrees=(1,), unused_kinds=("cpu-b",)),
        Constraints(data_degrees=(1,), pins=(LayerPin(layer=1, device_kind="cpu-b"),)),
        Constraints(data_degrees=(2,), num_stages=2),
    ],
)
def test_constraints_hold_for_made_orders(constraints: Constraints) -> None:
    found = searched(pipeline(splits=True), constraints)
    plan = plan_of(found)
    assert len(plan.stages) <= (constraints.most_stages or len(plan.stages))
    assert len(plan.stages) == (constraints.num_stages or len(plan.stages))
    assert len(plan.stages) <= constraints.most_legs * len(plan.groups)
    if constraints.families == ("1f1b",):
        assert len(plan.stages) == len(plan.groups)
        assert not operations_of(found) & {"I", "W"}
    if constraints.recompute == ("full",):
        assert all(stage.recomputes for stage in plan.stages)
    if constraints.unused_kinds:
        assert {node.device_kind for node in plan.nodes} == {"cpu-a"}
    for pin in constraints.pins:
        assert {plan.group_kind(s.group) for s in plan.stages if pin.layer in s.layers} == {pin.device_kind}


def test_a_stop_while_orders_are_made_gives_the_best_so_far() -> None:
    told: list[Progress] = []
    problem = pipeline(splits=True)
    listener = Listener(on_progress=told.append, stop=lambda: len(told) > 0 and told[-1].phase == "synthesis")
    answer = search(problem, SearchOptions(constraints=PIPELINES, schedules="synthesised"), listener)
    named = searched(problem, schedules="named")
    assert prediction_of(answer).step_ns <= prediction_of(named).step_ns
    if told and told[-1].phase == "synthesis":
        assert answer.limit == "wall"


def test_the_budget_of_a_short_limit_ends_both_parts() -> None:
    """In the middle of their work; what there is by then is a whole plan."""
    problem = pipeline(splits=True, num_layers=24, batch=32)
    options = SearchOptions(constraints=PIPELINES, schedules="synthesised", time_limit_ns=10 * 10**9)
    answer = search(problem, options)
    assert answer.limit in ("deterministic", "wall")
    assert check_against(plan_of(answer), problem).ok


def test_micro_batches_of_unequal_size_are_told() -> None:
    """Five samples in parts of two: no order is made, the named plan stands."""
    only = Constraints(data_degrees=(1,), micro_batch_sizes=(2,))
    problem = pipeline(splits=True, batch=5)
    named, made = searched(problem, only, "named"), searched(problem, only)
    assert plan_of(named).digest == plan_of(made).digest
    assert [warning.code for warning in made.warnings] == ["no_synthesis"]
    assert "micro-batches of a route that differ" in made.warnings[0].message


def test_layers_that_read_others_keep_named_orders() -> None:
    profile = make_profile(reads=[Reads(layer=3, sources=(0, 2))], split=True)
    problem = make_problem(profiles=[profile], workload=make_workload(global_batch_size=4))
    only = Constraints(data_degrees=(1,), num_stages=2)
    made = searched(problem, only)
    assert prediction_of(made).step_ns <= prediction_of(searched(problem, only, "named")).step_ns


def test_a_frozen_layer_has_no_weight_gradient() -> None:
    """Layers 0 and 1 are frozen: their stage goes forward only; orders are made all the same."""
    profile = make_profile(layer_forward_ns=[MS] * 6, num_params=[0, 0, 1_000, 1_000, 1_000, 1_000], split=True)
    problem = make_problem(profiles=[profile], cluster=make_cluster(("cpu-a", 1, 3)))
    made = searched(problem)
    assert prediction_of(made).step_ns <= prediction_of(searched(problem, schedules="named")).step_ns
