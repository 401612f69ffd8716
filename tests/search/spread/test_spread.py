"""Stages spread over data x tensor ranks: arms, formula, plans, and the normal search over documents."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.check.problem import check_against
from planner.costs.price import ProblemCosts, price_plan
from planner.plan.plan import Plan
from planner.problem.options import Constraints, SearchOptions, Target
from planner.problem.problem import Problem
from planner.search.search import search
from planner.search.spread.arms import tensor_degrees
from planner.search.spread.model import model_step_ns
from planner.search.spread.run import is_worthwhile
from planner.search.spread.search import Spread, SpreadSearch, reach_of
from tests.helpers.cuts import brute_force_cuts
from tests.helpers.instance_documents import instance_problem
from tests.helpers.search_instances import SearchInstance, read_instance

# data degree and tensor degrees; micro-batch size 1
MEDIUM = {
    "two_kinds_64_64": (1, (8,)),
    "two_kinds_16_16": (1, ()),
    "four_kinds_32_each": (1, (8,)),
    "four_kinds_16_each": (1, (4, 8)),
    "four_kinds_64_each": (1, (8,)),
    "three_kinds_32_192_random": (1, (8,)),
    "one_kind_1024": (32, (8,)),
}


def small_instance(name: str, *, blocks: int, nodes: int, batch: int) -> SearchInstance:
    """The kinds and layers of a file, with fewer of each."""
    instance = read_instance(name)
    layers = [{**row, "count": blocks if row["name"] == "block" else 1} for row in instance.facts["layers"]]
    kinds = [{**kind, "devices": nodes * kind["node_size"]} for kind in instance.facts["device_kinds"]]
    workload = {**instance.facts["workload"], "global_batch": batch}
    return replace(instance, facts={**instance.facts, "layers": layers, "device_kinds": kinds, "workload": workload})


def spread_search(problem: Problem, constraints: Constraints, target: Target = "any") -> SpreadSearch:
    costs = ProblemCosts(problem)
    return SpreadSearch(costs, constraints, reach_of(costs, constraints, target), lambda: True)


def best_spread(name: str) -> Spread:
    data, tensor = MEDIUM[name]
    constraints = Constraints(data_degrees=(data,), micro_batch_sizes=(1,), tensor_degrees=tensor)
    found = spread_search(instance_problem(read_instance(name)), constraints)
    spread = found.best(found.arms())
    assert spread is not None
    return spread


@pytest.mark.parametrize("name", sorted(MEDIUM))
def test_formula_is_within_one_percent_of_the_simulator(name: str) -> None:
    spread = best_spread(name)
    assert abs(spread.model_ns / spread.step_ns - 1) <= 0.01
    assert spread.model_bound_ns <= spread.model_ns
    assert spread.arm.bound_ns <= spread.step_ns
    assert spread.made.fits


def test_stages_of_one_tensor_degree_stay_inside_nodes() -> None:
    plan = best_spread("four_kinds_16_each").made.plan
    nodes = plan.rank_nodes
    assert {stage.mesh.tensor for stage in plan.stages} == {4, 8}
    for stage in plan.stages:
        ranks = plan.groups[stage.group]
        rows = [ranks[first : first + stage.mesh.tensor] for first in range(0, len(ranks), stage.mesh.tensor)]
        assert all(len({nodes[rank] for rank in row}) == 1 for row in rows)


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_no_cut_is_worth_less_than_the_bound(batch: int) -> None:
    """Every cut of every arm of a small problem, by the formula."""
    problem = instance_problem(small_instance("two_kinds_16_16", blocks=4, nodes=1, batch=batch))
    constraints = Constraints(tensor_degrees=(4, 8), data_degrees=(1, 2), micro_batch_sizes=(1,))
    found = spread_search(problem, constraints)
    arms = found.arms()
    values = [model_step_ns(arm, arm.chain.cut(picks)) for arm in arms for picks in brute_force_cuts(arm.chain.problem)]
    assert len(values) > 30
    spread = found.best(arms)
    assert spread is not None
    assert spread.model_bound_ns <= min(values) <= spread.model_ns <= 1.01 * min(values)


def _small_problem() -> Problem:
    return instance_problem(small_instance("two_kinds_16_16", blocks=6, nodes=1, batch=8))


def _plan(problem: Problem, target: Target) -> Plan:
    constraints = Constraints(micro_batch_sizes=(1,), data_degrees=(1, 2))
    answer = search(problem, SearchOptions(target=target, constraints=constraints, time_limit_ns=3_600 * 10**9))
    assert answer.limit == "deterministic"
    assert answer.plan is not None
    return answer.plan


def test_normal_search_spreads_over_tensor_ranks_where_any_plan_is_wanted() -> None:
    problem = _small_problem()
    plan = _plan(problem, "any")
    assert check_against(plan, problem).fault is None
    assert max(stage.mesh.tensor for stage in plan.stages) > 1
    assert plan.prediction is not None
    assert plan.prediction.bound_ns <= plan.prediction.step_ns
    assert plan.digest == _plan(problem, "any").digest


def test_for_the_executor_no_plan_has_tensor_ranks_or_shards() -> None:
    costs = ProblemCosts(_small_problem())
    reach = reach_of(costs, Constraints(), "executor")
    assert set(reach.tensor.values()) == {(1,)}
    assert not reach.shares_optimizer


@pytest.mark.parametrize(("wanted", "expected"), [((), (1, 2, 4, 8)), ((2, 8), (2, 8)), ((3,), ())])
def test_tensor_degrees_are_what_the_profile_prices(wanted: tuple[int, ...], expected: tuple[int, ...]) -> None:
    found = tensor_degrees(ProblemCosts(_small_problem()), Constraints(tensor_degrees=wanted))
    assert set(found.values()) == {expected}


def test_a_family_other_than_1f1b_leaves_spread_stages_alone() -> None:
    costs = ProblemCosts(_small_problem())
    assert is_worthwhile(costs, SearchOptions(target="any"))
    assert not is_worthwhile(costs, SearchOptions(target="any", constraints=Constraints(families=("gpipe",))))


def test_it_ends_when_it_is_told_to() -> None:
    costs = ProblemCosts(_small_problem())
    asked: list[bool] = []

    def stop_after(calls: int) -> Callable[[], bool]:
        return lambda: asked.append(True) or len(asked) < calls

    constraints = Constraints(micro_batch_sizes=(1,))
    found = SpreadSearch(costs, constraints, reach_of(costs, constraints, "any"), stop_after(12))
    found.best(found.arms())
    assert found.was_ended
    assert len(asked) == 12


def test_a_sum_is_over_ranks_with_the_same_part_of_the_weights() -> None:
    """One data rank: nothing to sum, whatever the tensor degree. 32 data ranks, one a node: a ring of 32 over the
    network, 2 x 31 messages of 1/32 of an eighth of the gradients."""
    alone = best_spread("two_kinds_64_64").made.plan
    assert set(price_plan(alone, instance_problem(read_instance("two_kinds_64_64"))).sum_ns) == {0}
    instance = read_instance("one_kind_1024")
    spread = best_spread("one_kind_1024")
    first = spread.made.plan.stages[0]
    layers = instance.layers[first.first_layer : first.end_layer]
    num_bytes = -(-4 * sum(-(-row["parameters"] * 16 // 18) for row in layers) // 8)
    part_bytes = -(-num_bytes // 32)
    message_ns = -(-part_bytes * 10**9 // 25_000_000_000)
    assert price_plan(spread.made.plan, instance_problem(instance)).sum_ns[0] == 62 * message_ns
