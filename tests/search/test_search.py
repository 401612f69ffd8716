"""The whole search: equal to brute force over its space, checked, bounded, reproducible, obedient to constraints."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest

from planner.check.problem import check_against
from planner.errors import ProblemError, SolverError
from planner.plan.answer import Answer, Progress
from planner.plan.plan import Plan
from planner.problem.options import Constraints, Family, LayerPin, Schedules, SearchOptions
from planner.problem.problem import Problem
from planner.problem.profile import Reads
from planner.search.search import Listener, search
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_workload, with_split_costs
from tests.helpers.every_plan import best_of_every_plan


def searched(problem: Problem, constraints: Constraints | None = None) -> Plan:
    """The plan of a search that must find one; it is checked against the problem."""
    answer = search(problem, SearchOptions(constraints=constraints or Constraints()))
    assert answer.status == "succeeded", answer.reasons
    assert answer.plan is not None
    verdict = check_against(answer.plan, problem)
    assert verdict.ok, verdict.fault
    prediction = answer.plan.prediction
    assert prediction is not None
    assert prediction.bound_model == "any_schedule"
    assert prediction.bound_ns <= prediction.step_ns
    return answer.plan


def step_ns(plan: Plan) -> int:
    assert plan.prediction is not None
    return plan.prediction.step_ns


def mixed_problem(num_layers: int = 5, global_batch_size: int = 4) -> Problem:
    """One fast device and one slow one: a profile of twice the times. Messages cost, data parallelism is impossible."""
    times = [1_000_000, 1_500_000, 1_200_000, 900_000, 2_000_000, 1_100_000][:num_layers]
    fast = make_profile(layer_forward_ns=times)
    slow = make_profile(kind="cpu-b", layer_forward_ns=[2 * time for time in times], provenance="scaled:cpu-a")
    cluster = make_cluster(("cpu-a", 1, 1), ("cpu-b", 1, 1), latency_ns=100_000)
    return make_problem(
        profiles=[fast, slow], cluster=cluster, workload=make_workload(global_batch_size=global_batch_size)
    )


def layers_by_kind(plan: Plan) -> dict[str, int]:
    found: dict[str, int] = {}
    for stage in plan.stages:
        kind = plan.group_kind(stage.group)
        found[kind] = found.get(kind, 0) + len(stage.layers)
    return found


def test_mixed_cluster_equals_brute_force_and_gives_the_slow_kind_fewer_layers() -> None:
    problem = mixed_problem()
    plan, best = searched(problem), best_of_every_plan(problem)
    assert best is not None
    assert best.num_plans > 200
    assert step_ns(plan) == best.step_ns
    layers = layers_by_kind(plan)
    assert 0 < layers["cpu-b"] < layers["cpu-a"]
    assert plan.prediction is not None
    assert plan.prediction.costs == "scaled:cpu-a"


def random_problem(source: random.Random) -> Problem:
    """Up to 4 layers, 3 devices and 2 kinds, memory from too little to plenty; batches that divide evenly."""
    num_layers = source.randint(2, 4)
    times = [source.randint(200_000, 2_000_000) for _ in range(num_layers)]
    kinds = source.choice([("cpu-a",), ("cpu-a", "cpu-b")])
    groups = [(kind, 1, source.randint(1, 2 if len(kinds) > 1 else 3)) for kind in kinds]
    if len(kinds) > 1 and source.random() < 0.5:
        groups[1] = (kinds[1], 1, 1)
    saved, outputs, params, transients = (
        [source.randint(least, most) for _ in range(num_layers)]
        for least, most in ((0, 8_000), (0, 4_000), (1, 4_000), (0, 4_000))
    )
    splits = source.random() < 0.5
    profiles = [
        make_profile(
            kind=kind,
            layer_forward_ns=[time * (1 + number) for time in times],
            tied=[(0, num_layers - 1)] if source.random() < 0.3 and number == 0 and len(kinds) == 1 else (),
            update_ns_per_million_params=20_000_000,
            per_instruction_ns=10_000,
            saved_bytes=saved,
            output_bytes=outputs,
            num_params=params,
            transient_bytes=transients,
            split=splits,
        )
        for number, kind in enumerate(kinds)
    ]
    if splits and source.random() < 0.5:  # a split visit has costs of its own
        profiles = [with_split_costs(one, forward_ns=900_000, kept_bytes=5_000, peak_bytes=3_000) for one in profiles]
    need = sum(params) * 16 + 4 * sum(saved)
    usable = [source.randint(need // 3, 2 * need) for _ in groups]
    return make_problem(
        profiles=profiles,
        cluster=make_cluster(*groups, usable_bytes=usable, latency_ns=source.choice([1_000, 300_000])),
        workload=make_workload(global_batch_size=source.choice([2, 4])),
    )


@pytest.mark.parametrize("seed", range(24))
def test_equals_brute_force_over_the_whole_space(seed: int) -> None:
    check_against_brute_force(random_problem(random.Random(seed)))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(24, 5024, 100))
def test_equals_brute_force_on_5000_problems(first: int) -> None:
    for seed in range(first, first + 100):
        check_against_brute_force(random_problem(random.Random(seed)))


def check_against_brute_force(problem: Problem) -> None:
    """Every family, split backwards where the profiles have them; no bound above the optimum, the step is simulated."""
    best = best_of_every_plan(problem)
    answer = search(problem, SearchOptions())
    if best is None:
        assert answer.status == "infeasible"
        assert answer.reasons[0].code == "memory"
        return
    assert answer.plan is not None
    assert check_against(answer.plan, problem).ok
    assert step_ns(answer.plan) == best.step_ns
    assert answer.plan.prediction is not None
    assert answer.plan.prediction.bound_ns <= best.step_ns


def test_same_digest_every_time() -> None:
    digests = {searched(mixed_problem()).digest for _ in range(6)}
    assert len(digests) == 1


def test_same_digest_in_other_processes() -> None:
    """Whatever the order of sets and dictionaries of strings is there."""
    code = (
        "import sys; from tests.search.test_search import mixed_problem, searched;"
        "sys.stdout.write(searched(mixed_problem()).digest)"
    )
    digests = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=150, env=environment
        )
        digests.add(done.stdout)
    assert digests == {searched(mixed_problem()).digest}


@pytest.mark.soak
@pytest.mark.parametrize("schedules", ["named", "synthesised"])
def test_same_digest_in_20_runs_with_both_cores_loaded(schedules: Schedules) -> None:
    """Two busy processes slow the search down; its budget counts work, so it ends at the same place."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    options = SearchOptions(constraints=Constraints(data_degrees=(1,)), schedules=schedules, time_limit_ns=120 * 10**9)
    try:
        answers = [search(mixed_problem(num_layers=6, global_batch_size=8), options) for _ in range(20)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert {answer.limit for answer in answers} <= {"optimal", "deterministic"}
    assert len({answer.plan.digest for answer in answers if answer.plan is not None}) == 1


def test_more_memory_is_never_worse() -> None:
    steps = []
    for usable_bytes in (40_000, 50_000, 60_000, 90_000, 200_000):
        answer = search(make_problem(cluster=make_cluster(usable_bytes=usable_bytes)), SearchOptions())
        steps.append(step_ns(answer.plan) if answer.plan else None)
    assert steps[0] is None
    found = [step for step in steps if step is not None]
    assert len(found) >= 3
    assert all(a >= b for a, b in pairwise(found))


def test_recompute_is_used_where_memory_binds() -> None:
    """Devices that hold the state of two layers and little more."""
    profile = make_profile(saved_bytes=40_000, num_params=1_000)
    problem = make_problem(profiles=[profile], cluster=make_cluster(usable_bytes=110_000))
    plan = searched(problem)
    assert any(stage.recomputes for stage in plan.stages)
    best = best_of_every_plan(problem)
    assert best is not None
    assert step_ns(plan) <= best.step_ns


def families_of(plan: Plan) -> set[str]:
    assert plan.provenance is not None
    return {plan.provenance.family}


@pytest.mark.parametrize(
    ("constraints", "holds"),
    [
        (Constraints(families=("gpipe",)), lambda plan: families_of(plan) == {"gpipe"}),
        (Constraints(families=("interleaved",)), lambda plan: families_of(plan) == {"interleaved"}),
        (Constraints(data_degrees=(1,)), lambda plan: all(stage.mesh.data == 1 for stage in plan.stages)),
        (Constraints(data_degrees=(4,)), lambda plan: all(stage.mesh.data == 4 for stage in plan.stages)),
        (Constraints(micro_batch_sizes=(2,), data_degrees=(2,)), lambda plan: len(plan.micro_batches) == 2),
        (Constraints(num_stages=3), lambda plan: len(plan.stages) == 3),
        (Constraints(num_stages=4), lambda plan: len(plan.stages) == 4),
        (Constraints(most_stages=2, data_degrees=(1,)), lambda plan: len(plan.stages) <= 2),
        (
            Constraints(most_legs=1, data_degrees=(1,)),
            lambda plan: len(plan.stages) == len(plan.groups),
        ),
        (Constraints(recompute=("full",)), lambda plan: all(stage.recomputes for stage in plan.stages)),
        (Constraints(recompute=("none",)), lambda plan: not any(stage.recomputes for stage in plan.stages)),
        (
            Constraints(pins=(LayerPin(layer=1, device_kind="cpu-b"),)),
            lambda plan: all(plan.group_kind(stage.group) == "cpu-b" for stage in plan.stages if 1 in stage.layers),
        ),
        (Constraints(unused_kinds=("cpu-b",)), lambda plan: {n.device_kind for n in plan.nodes} == {"cpu-a"}),
    ],
)
def test_constraints_take_effect(constraints: Constraints, holds: Callable[[Plan], bool]) -> None:
    fast = make_profile()
    slow = make_profile(kind="cpu-b", layer_forward_ns=[2_000_000] * 4)
    problem = make_problem(profiles=[fast, slow], cluster=make_cluster(("cpu-a", 1, 4), ("cpu-b", 1, 2)))
    assert holds(searched(problem, constraints))


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(families=("interleaved",), data_degrees=(1,), most_legs=1),
        Constraints(families=("interleaved",), data_degrees=(1,), most_legs=2, num_stages=4),
    ],
)
def test_legs_are_limited(constraints: Constraints) -> None:
    plan = searched(make_problem(), constraints)
    assert len(plan.stages) <= constraints.most_legs * len(plan.groups)


def test_unused_devices_do_not_appear() -> None:
    """One layer on four devices, a batch of one: three stay unused."""
    problem = make_problem(
        profiles=[make_profile(layer_forward_ns=[1_000_000])],
        cluster=make_cluster(("cpu-a", 1, 4)),
        workload=make_workload(global_batch_size=1),
    )
    plan = searched(problem)
    assert plan.num_ranks == 1


def test_ranks_of_a_group_lie_inside_one_node_where_they_can() -> None:
    problem = make_problem(cluster=make_cluster(("cpu-a", 2, 2), latency_ns=500_000))
    plan = searched(problem, Constraints(data_degrees=(2,), num_stages=2))
    assert [{plan.rank_nodes[rank] for rank in group} for group in plan.groups] == [{0}, {1}]


def infeasible(problem: Problem, constraints: Constraints | None = None) -> Answer:
    answer = search(problem, SearchOptions(constraints=constraints or Constraints()))
    assert answer.status == "infeasible"
    assert answer.plan is None
    return answer


def test_infeasible_names_layer_kind_and_missing_bytes() -> None:
    """A layer of 10,000 parameters needs 160,000 bytes of state alone; with its shortfall it fits exactly."""
    profile = make_profile(layer_forward_ns=[1_000] * 3, num_params=[1_000, 10_000, 1_000])
    reason = infeasible(make_problem(profiles=[profile], cluster=make_cluster(usable_bytes=100_000))).reasons[0]
    assert (reason.code, reason.device_kind, reason.have_bytes) == ("memory", "cpu-a", 100_000)
    assert reason.layer is not None
    assert reason.layer <= 1
    assert reason.need_bytes is not None
    assert f"{reason.need_bytes - 100_000} bytes short" in reason.message
    enough = make_problem(profiles=[profile], cluster=make_cluster(usable_bytes=reason.need_bytes + 4_000))
    assert search(enough, SearchOptions()).status == "succeeded"
    less = make_problem(profiles=[profile], cluster=make_cluster(usable_bytes=reason.need_bytes - 1))
    assert search(less, SearchOptions()).status == "infeasible"


@pytest.mark.parametrize(
    ("constraints", "code"),
    [
        (Constraints(data_degrees=(16,)), "devices"),
        (Constraints(micro_batch_sizes=(64,)), "divisibility"),
        (Constraints(num_stages=4, families=("1f1b",)), "devices"),
        (Constraints(unused_kinds=("cpu-a",)), "devices"),
    ],
)
def test_infeasible_constraints_are_named(constraints: Constraints, code: str) -> None:
    assert infeasible(make_problem(), constraints).reasons[0].code == code


@pytest.mark.parametrize(
    ("constraints", "text"),
    [
        (Constraints(unused_kinds=("cpu-a",)), "no device is left: unused_kinds names every device kind .*'cpu-a'"),
        (Constraints(data_degrees=(16,)), "data degree 16 asked for, the largest node group that may be used has"),
        (Constraints(families=("zb-v",), num_stages=3), r"families asked for \(zb-v\) has a schedule of 3 stages"),
        (Constraints(families=("zb-h1",), recompute=("full",)), "recompute 'full' asked for, but zb-h1 split"),
    ],
)
def test_the_true_conflict_is_named(constraints: Constraints, text: str) -> None:
    reason = infeasible(make_problem(profiles=[make_profile(split=True)]), constraints).reasons[0]
    assert re.search(text, reason.message), reason.message
    assert "pinned" not in reason.message


def test_micro_batches_that_cannot_be_priced_are_told() -> None:
    problem = make_problem(profiles=[make_profile(micro_batch_sizes=(1,))], workload=make_workload(global_batch_size=8))
    answer = search(problem, SearchOptions())
    assert [warning.code for warning in answer.warnings] == ["no_price"] * len(answer.warnings)
    assert answer.warnings
    assert infeasible(problem, Constraints(micro_batch_sizes=(4,))).reasons[0].code == "no_price"


def test_options_that_do_not_belong_to_the_problem_are_refused() -> None:
    with pytest.raises(ProblemError, match="9 stages asked for"):
        search(make_problem(), SearchOptions(constraints=Constraints(num_stages=9)))


def test_optimal_searches_say_so() -> None:
    answer = search(mixed_problem(), SearchOptions())
    assert answer.limit == "optimal"
    assert answer.plan is not None
    assert answer.plan.provenance is not None
    assert answer.plan.provenance.limit == "optimal"
    assert answer.plan.provenance.solver.startswith("ortools 9.")


def test_soft_stop_returns_the_best_so_far() -> None:
    incumbents: list[Plan] = []
    listener = Listener(on_incumbent=incumbents.append, stop=lambda: bool(incumbents))
    answer = search(mixed_problem(), SearchOptions(), listener)
    assert answer.limit == "wall"
    assert answer.plan is not None
    assert incumbents
    assert check_against(incumbents[0], mixed_problem()).ok


def test_stop_before_the_first_plan_is_an_error() -> None:
    with pytest.raises(SolverError) as found:
        search(mixed_problem(), SearchOptions(), Listener(stop=lambda: True))
    assert found.value.code == "no_plan_in_time"


def test_progress_is_told_and_never_contradicts_itself() -> None:
    told: list[Progress] = []
    profile = make_profile(layer_forward_ns=[1_000_000 + 1_000 * n for n in range(16)])
    problem = make_problem(
        profiles=[profile], cluster=make_cluster(("cpu-a", 1, 6)), workload=make_workload(global_batch_size=48)
    )
    search(problem, SearchOptions(), Listener(on_progress=told.append))
    assert told
    for progress in told:
        assert progress.candidates_done <= progress.candidates_total
        if progress.incumbent_ns is not None and progress.bound_ns is not None:
            assert progress.bound_ns <= progress.incumbent_ns


@pytest.mark.parametrize("family", ["1f1b", "gpipe", "interleaved"])
def test_graphs_that_are_no_chain_are_planned_too(family: Family) -> None:
    """Layer 3 reads layers 0 and 2; a frozen first layer."""
    profile = make_profile(reads=[Reads(layer=3, sources=(0, 2))], num_params=[0, 1_000, 1_000, 1_000])
    problem = make_problem(profiles=[profile], workload=make_workload(global_batch_size=4))
    plan = searched(
        problem, Constraints(families=(family,), data_degrees=(1,), num_stages=2 if family != "interleaved" else 4)
    )
    assert plan.graph.reads == profile.model.reads
