"""Random legal plans on ranks: families, cuts, graphs with detached reads, ties, slices, recompute, replicas, splits.

Every gradient is that of the whole graph in one process.
"""

import random
from collections import defaultdict

import pytest

from planner.plan.plan import Plan
from planner.schedules.families import FAMILIES
from tests.helpers.ranks import Ranks
from tests.helpers.small_graph import executor_plan, family_plan_of

TOLERANCE = 1e-10
NUM_PLANS, NUM_SOAKED = 60, 300


def random_plans(num_plans: int) -> dict[int, list[Plan]]:
    """By number of ranks."""
    found: dict[int, list[Plan]] = defaultdict(list)
    for seed in range(num_plans):
        plan = executor_plan(random.Random(seed))
        found[plan.num_ranks].append(plan)
    return found


def require_exact(plans: dict[int, list[Plan]], ranks: Ranks) -> None:
    for size, of_size in sorted(plans.items()):
        texts = [plan.model_dump_json(by_alias=True) for plan in of_size]
        answers = ranks.results("tests.helpers.small_graph:run_plans", size, plans=texts)
        for text, *results in zip(texts, *answers, strict=True):
            worst = max(max(result["error"], result["loss_error"]) for result in results)
            assert worst <= TOLERANCE, f"off by {worst}: {text}"
            compared = set().union(*(result["names"] for result in results))
            assert compared == set(results[0]["expected"]), text


def test_random_plans_train_as_the_whole_graph(ranks: Ranks) -> None:
    require_exact(random_plans(NUM_PLANS), ranks)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_every_synchronous_family_trains_as_the_whole_graph(num_ranks: int, ranks: Ranks) -> None:
    """HelixPipe's attention on other groups, heads in parts with one and two barriers, and slices among them."""
    names = [name for name, spec in FAMILIES.items() if not spec.changes_results]
    assert len(names) >= 19
    require_exact({num_ranks: [family_plan_of(name, num_ranks) for name in names]}, ranks)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_random_plans_train_as_the_whole_graph(ranks: Ranks) -> None:
    require_exact(random_plans(NUM_SOAKED), ranks)


def test_the_plans_say_what_they_should() -> None:
    """Every feature occurs in the plans of ``make test``."""
    plans = [plan for of_size in random_plans(NUM_PLANS).values() for plan in of_size]
    count = {
        "slices": sum(any(batch.num_slices > 1 for batch in plan.micro_batches) for plan in plans),
        "ties": sum(bool(plan.graph.tied) for plan in plans),
        "reads": sum(bool(plan.graph.reads) for plan in plans),
        "detached": sum(any(reads.detached for reads in plan.graph.reads) for plan in plans),
        "routes": sum(len(plan.routes) > 1 for plan in plans),
        "data": sum(any(stage.mesh.data > 1 for stage in plan.stages) for plan in plans),
        "recompute": sum(any(stage.recomputes for stage in plan.stages) for plan in plans),
        "restored": sum(any("R" in text for text in plan.visit_operations.values()) for plan in plans),
        "split": sum(any("W" in text for text in plan.visit_operations.values()) for plan in plans),
        "legs": sum(len(plan.stages) > len(plan.groups) for plan in plans),
    }
    assert min(count.values()) >= 3, count
