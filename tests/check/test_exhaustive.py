"""Check's verdict equals that of an independent replay of every element, which shares no code with the project.

1,000 seeded mutations of random legal plans (families, meshes, routes, graphs, ties, slices, split backwards,
recompute), each judged under the three message models; and lists of steps whose sends and receives were moved.
"""

import json
import random
from collections import Counter
from typing import Any

import pytest

from planner.check.structure import check_document, check_plan
from tests.helpers.exhaustive import verdict
from tests.helpers.plans import line_plan
from tests.helpers.random_plans import MUTATIONS, random_plan

NUM_MUTATIONS = 1000
PARTS = 4  # so that workers can share them


def judged(document: dict[str, Any]) -> str:
    """What check says: legal, stuck, or broken."""
    found = check_document(json.dumps(document).encode())
    if found.ok:
        return "legal"
    assert found.fault is not None
    return "stuck" if found.fault.code == "deadlock" else "broken"


def expected(document: dict[str, Any], seed: int) -> str:
    found = verdict(document, seed)
    return "legal" if found is None else found if found in ("stuck", "wrong") else "broken"


@pytest.mark.parametrize("part", range(PARTS))
def test_check_agrees_with_an_independent_replay_on_mutations(part: int) -> None:
    require_agreement(range(part, NUM_MUTATIONS, PARTS))


@pytest.mark.soak
def test_check_agrees_on_4000_other_mutations() -> None:
    require_agreement(range(NUM_MUTATIONS, NUM_MUTATIONS + 4000))


def require_agreement(seeds: range) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        source = random.Random(seed)
        document = random_plan(source).model_dump(mode="json")
        mutation = source.choice(MUTATIONS)
        mutant = mutation(source, document)
        found = judged(mutant)
        assert found == expected(mutant, seed), f"seed {seed}, {mutation.__name__}: {verdict(mutant, seed)}"
        counts[found] += 1
    # the comparison says something only if each verdict is met often
    assert min(counts[name] for name in ("legal", "stuck", "broken")) >= 0.1 * len(seeds), counts


@pytest.mark.parametrize("seed", range(60))
def test_plans_of_the_families_are_legal(seed: int) -> None:
    require_legal(seed)


@pytest.mark.soak
def test_1000_plans_of_the_families_are_legal() -> None:
    for seed in range(60, 1060):
        require_legal(seed)


def require_legal(seed: int) -> None:
    plan = random_plan(random.Random(10_000 + seed))
    assert check_plan(plan).fault is None
    assert verdict(plan.model_dump(mode="json"), seed) is None


def test_the_independent_replay_refuses_what_cannot_end() -> None:
    """Group 1 wants to go backward before it has gone forward."""
    document = line_plan("1f1b", 2, 2).model_dump(mode="json")
    assert verdict(document, 0) is None
    document["streams"][1] = "1B0 1F0 1F1 1B1 1G0 1U0"
    assert verdict(document, 0) == "stuck"
