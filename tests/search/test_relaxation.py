"""Infeasible problems: the reason is checked by brute force, the named ways out give plans, a little less does not.

Brute force (``tests.helpers.every_plan``) writes every plan of a tiny problem out and checks it without any solver.
"""

import random
import time

import pytest

from planner.plan.answer import Relaxation
from planner.problem.options import Constraints, SearchOptions
from planner.problem.problem import Problem
from planner.search.relaxation import relaxations
from planner.search.search import search
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_workload
from tests.helpers.every_plan import best_of_every_plan


def with_memory(problem: Problem, more_bytes: int) -> Problem:
    groups = tuple(
        group.model_copy(update={"usable_bytes": max(1, group.usable_bytes + more_bytes)})
        for group in problem.cluster.node_groups
    )
    cluster = problem.cluster.model_copy(update={"node_groups": groups})
    return Problem(problem.profiles, cluster, problem.workload)


def tight_problem(source: random.Random) -> Problem:
    """2 to 4 layers on 1 to 3 devices of up to 2 kinds, each with less memory than its share of the state."""
    num_layers, kinds = source.randint(2, 4), source.choice([("cpu-a",), ("cpu-a", "cpu-b")])
    params = [source.randint(500, 4_000) for _ in range(num_layers)]
    profiles = [
        make_profile(
            kind=kind,
            layer_forward_ns=[source.randint(1, 9) * 100_000] * num_layers,
            num_params=params,
            saved_bytes=source.randint(0, 8_000),
            transient_bytes=source.randint(0, 4_000),
        )
        for kind in kinds
    ]
    profiles = [
        one.model_copy(update={"layers": profiles[0].layers, "measurements": one.measurements}) for one in profiles[:1]
    ] + [make_profile(kind=kind, layer_forward_ns=[500_000] * num_layers, num_params=params) for kind in kinds[1:]]
    groups = [(kind, 1, source.randint(1, 2)) for kind in kinds]
    share = 16 * sum(params) // sum(ranks for _, _, ranks in groups)
    usable = [source.randint(share // 4, share - 1) for _ in groups]
    cluster = make_cluster(*groups, usable_bytes=usable)
    return make_problem(profiles=profiles, cluster=cluster, workload=make_workload(global_batch_size=2))


def check_reason_and_way_out(seed: int) -> None:
    problem = tight_problem(random.Random(seed))
    answer = search(problem, SearchOptions())
    assert best_of_every_plan(problem) is None
    assert (answer.status, answer.reasons[0].code) == ("infeasible", "memory")
    missing = (answer.reasons[0].need_bytes or 0) - (answer.reasons[0].have_bytes or 0)
    # the reason: one byte less than it says is too little for every plan with one stage a group
    less = with_memory(problem, missing - 1)
    best = best_of_every_plan(less)
    assert best is None or len(best.plan.stages) > len(best.plan.groups)
    chains = Constraints(families=("gpipe", "1f1b"))
    assert search(less, SearchOptions(constraints=chains)).status == "infeasible"
    way = next(one for one in answer.relaxations if one.code == "memory")
    assert way.more_bytes is not None
    # the way out gives a plan, and a hundredth less does not
    assert search(with_memory(problem, way.more_bytes), SearchOptions()).status == "succeeded"
    less = with_memory(problem, way.more_bytes - max(1, way.more_bytes // 100))
    assert search(less, SearchOptions()).status == "infeasible"


@pytest.mark.parametrize("seed", range(6))
def test_reasons_and_ways_out_of_random_problems(seed: int) -> None:
    check_reason_and_way_out(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6, 56))
def test_50_random_infeasible_problems(seed: int) -> None:
    check_reason_and_way_out(seed)


def ways(problem: Problem, constraints: Constraints) -> tuple[Relaxation, ...]:
    answer = search(problem, SearchOptions(constraints=constraints))
    assert answer.status == "infeasible"
    return answer.relaxations


@pytest.mark.parametrize(
    ("constraints", "pointers"),
    [
        (Constraints(data_degrees=(16,)), ["/constraints/data_degrees"]),
        (Constraints(micro_batch_sizes=(64,)), ["/constraints/micro_batch_sizes"]),
        (Constraints(num_stages=4, families=("1f1b",)), ["/constraints/num_stages", "/constraints/families"]),
        (Constraints(unused_kinds=("cpu-a",)), ["/constraints/unused_kinds"]),
        (Constraints(data_degrees=(16,), micro_batch_sizes=(64,)), ["/constraints"]),
    ],
)
def test_the_constraint_that_stands_in_the_way_is_named(constraints: Constraints, pointers: list[str]) -> None:
    found = ways(make_problem(), constraints)
    assert [one.pointer for one in found if one.code == "constraint"] == pointers


def test_more_nodes_are_a_way_out() -> None:
    """Six layers of 16,000 bytes of state, two nodes that hold two layers each: a third node is needed."""
    profile = make_profile(layer_forward_ns=[1_000_000] * 6, saved_bytes=0, output_bytes=0)
    problem = make_problem(profiles=[profile], cluster=make_cluster(("cpu-a", 2, 1), usable_bytes=40_000))
    (nodes,) = [one for one in ways(problem, Constraints()) if one.code == "nodes"]
    assert nodes.pointer == "/cluster/node_groups/0/num_nodes"
    assert "with 3 nodes of 'cpu-a' instead of 2" in nodes.message


def test_ways_out_that_the_time_limit_cut_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps past the time limit as soon as the first way out is looked for."""
    constraints = Constraints(data_degrees=(16,), micro_batch_sizes=(64,))
    whole = search(make_problem(), SearchOptions(constraints=constraints))
    assert whole.relaxations
    assert whole.warnings == ()
    late_s = time.monotonic() + 10_000

    def late(*arguments: object) -> tuple[Relaxation, ...]:
        monkeypatch.setattr("planner.search.search.time.monotonic", lambda: late_s)
        return relaxations(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("planner.search.search.relaxations", late)
    cut = search(make_problem(), SearchOptions(constraints=constraints))
    assert cut.relaxations == ()
    assert [warning.code for warning in cut.warnings] == ["ways_out_cut"]


def test_an_answer_with_a_plan_has_no_ways_out() -> None:
    assert search(make_problem(), SearchOptions()).relaxations == ()
