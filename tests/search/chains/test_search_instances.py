"""The synthetic clusters: listed plans recomputed, best known steps reached, bounds inside their scope."""

import pytest

from planner.search.chains.refine import Effort, refine_chains
from tests.helpers.search_instances import ListedStage, read_instances
from tests.helpers.search_references import Reference, references

ALL = references(read_instances())


@pytest.fixture(params=ALL, ids=[reference.name for reference in ALL])
def reference(request: pytest.FixtureRequest) -> Reference:
    found: Reference = request.param
    return found


def test_the_listed_plan_has_the_listed_step_and_fits(reference: Reference) -> None:
    instance, routes = reference.instance, reference.best_routes
    stages = [ListedStage(*row) for row in reference.facts["best_known_stages"]]
    assert instance.step_ns(stages, routes) == reference.facts["best_known_step_ns"]
    assert (stages[0].first_layer, stages[-1].end_layer) == (0, len(instance.layers))
    for place, stage in enumerate(stages):
        in_flight = min(len(stages) - place, instance.num_micro_batches(routes))
        assert instance.stage_bytes(stage, routes, in_flight=in_flight) <= instance.usable_bytes(stage.kind)
    for kind, count in instance.counts(routes).items():
        assert sum(stage.tensor for stage in stages if stage.kind == kind) <= count


def test_the_best_known_step_is_reached_and_no_bound_is_above_it(reference: Reference) -> None:
    """The larger ones with the gap of the acceptance; the benchmark has the exact ones."""
    *_, found = refine_chains(reference.chains, Effort(tolerance=0.001))
    best_ns = reference.facts["best_known_step_ns"]
    assert found.gap <= 0.001
    assert found.step_ns <= best_ns * 1.0002
    assert found.bound_ns <= best_ns
    assert found.cut is not None
    stages = reference.listed(found)
    assert reference.instance.step_ns(stages, reference.routes[found.chain]) == found.step_ns


def test_equal_layers_take_the_listed_step(reference: Reference) -> None:
    if "equal_layers" in reference.facts:
        expected = reference.facts["equal_layers"]
        assert reference.equal_layers_ns() == expected["step_ns"]
    else:
        assert reference.instance.name == "one_kind_1024"
