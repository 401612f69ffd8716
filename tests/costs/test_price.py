"""Prices of whole plans, worked out by hand from synthetic documents."""

import pytest

from planner.costs.price import price_plan
from planner.costs.prices import BorderPrice, PlanPrices
from planner.costs.stages import StateCut, layer_state_bytes
from planner.errors import PriceError
from planner.plan.graph import LayerGraph, Node
from planner.plan.mesh import Mesh
from planner.plan.plan import MicroBatch, Plan, Stage, VisitShape
from planner.problem.problem import Problem
from tests.helpers.documents import (
    make_cluster,
    make_problem,
    make_profile,
    make_workload,
    with_points,
    with_split_costs,
)

SHAPE = VisitShape(4, 0, 32)


def make_plan(
    problem: Problem,
    *stages: Stage,
    streams: tuple[str, ...],
    groups: tuple[tuple[int, ...], ...],
    ranks_per_node: int = 2,
) -> Plan:
    profile = problem.profiles[0]
    num_ranks = sum(len(group) for group in groups)
    return Plan(
        schema_version="plan/1",
        problem=problem.digest,
        precision=problem.workload.precision,
        graph=LayerGraph(
            model=profile.model.fingerprint, num_layers=4, tied=tuple(tied.layers for tied in profile.model.tied)
        ),
        nodes=tuple(
            Node(node_group="cpu-a", device_kind="cpu-a", num_ranks=min(ranks_per_node, num_ranks - first))
            for first in range(0, num_ranks, ranks_per_node)
        ),
        groups=groups,
        stages=stages,
        routes=(tuple(range(len(stages))),),
        micro_batches=tuple(MicroBatch(route=0, samples=4, cuts=(0, 32)) for _ in range(2)),
        streams=streams,
    )


TWO = (Stage(group=0, first_layer=0, end_layer=2), Stage(group=1, first_layer=2, end_layer=4))
TWO_STREAMS = ("0F0 0F1 0B0 0B1 0G0 0U0", "1F0 1B0 1F1 1B1 1G0 1U0")


def two_stages(problem: Problem) -> PlanPrices:
    return price_plan(make_plan(problem, *TWO, streams=TWO_STREAMS, groups=((0,), (1,))), problem)


def test_two_stages() -> None:
    """Layers of 1 ms, 4,000 saved and 1,000 output bytes a sample; 4 samples a micro-batch, overhead 5 us."""
    prices = two_stages(make_problem(profiles=[make_profile(per_instruction_ns=5_000)]))
    first, last = prices.visits[0, SHAPE], prices.visits[1, SHAPE]
    assert (first.forward_ns, first.backward_ns) == (8_005_000, 16_005_000)
    # saved 2 x 16,000; input of layer 0: 32 tokens of 8 bytes a sample, of layer 1: 4,000; its own output: 4,000
    assert first.kept_bytes == 32_000 + 4 * 256 + 4_000 + 4_000
    assert last.kept_bytes == 32_000 + 4_000 + 4_000  # nothing reads it
    assert prices.borders[0, 1, SHAPE].message_bytes == 4_000
    assert prices.state_bytes == (2 * 1_000 * 16, 2 * 1_000 * 16)  # fp32 adamw: 4 + 4 + 8 a parameter
    assert prices.sum_ns == (0, 0)
    assert prices.costs == "measured"


def test_data_parallel_stage_prices_its_fullest_rank_and_its_sum() -> None:
    problem = make_problem(profiles=[make_profile(update_ns_per_million_params=10**9)])
    stage = Stage(group=0, first_layer=0, end_layer=4, mesh=Mesh(data=2))
    plan = make_plan(problem, stage, streams=("0F0 0B0 0F1 0B1 0G0 0U0",), groups=((0, 1),))
    prices = price_plan(plan, problem)
    assert prices.visits[0, SHAPE].forward_ns == 4 * 2 * 1_000_000  # 2 of 4 samples
    # ring of 2 ranks: 2 messages of half of 16,000 gradient bytes over the table of the link
    assert prices.sum_ns == (2 * 9_217,)
    assert prices.update_ns == (4_000_000,)  # 4,000 parameters at 1 us each


def test_recompute_keeps_inputs_only() -> None:
    problem = make_problem()
    again = Stage(group=0, first_layer=0, end_layer=2, recompute={"full": (0, 1)})
    plan = make_plan(problem, again, TWO[1], streams=TWO_STREAMS, groups=((0,), (1,)))
    visit = price_plan(plan, problem).visits[0, SHAPE]
    assert visit.kept_bytes == 4 * 256 + 4_000 + 4_000
    assert visit.backward_ns == 16_000_000 + 8_000_000  # the forward once more inside it
    assert visit.restored_bytes == 16_000  # layer by layer
    at_once = make_plan(
        problem, again, TWO[1], streams=("0F0 0F1 0R0 0B0 0R1 0B1 0G0 0U0", TWO_STREAMS[1]), groups=((0,), (1,))
    )
    visit = price_plan(at_once, problem).visits[0, SHAPE]
    assert (visit.backward_ns, visit.recompute_ns, visit.restored_bytes) == (16_000_000, 8_000_000, 32_000)


def test_split_backward_needs_its_own_times() -> None:
    streams = ("0F0 0F1 0I0 0W0 0I1 0W1 0G0 0U0", TWO_STREAMS[1])
    split = make_problem(profiles=[make_profile(split=True)])
    plan = make_plan(split, *TWO, streams=streams, groups=((0,), (1,)))
    visit = price_plan(plan, split).visits[0, SHAPE]
    assert (visit.backward_input_ns, visit.backward_weight_ns) == (8_000_000, 8_000_000)
    fused = make_problem()
    unpriced = make_plan(fused, *TWO, streams=streams, groups=((0,), (1,)))
    with pytest.raises(PriceError, match="has no times of input and weight gradient"):
        price_plan(unpriced, fused)


@pytest.mark.parametrize("missing", ["backward_input", "backward_weight"])
def test_one_part_of_a_backward_is_no_price_of_the_other(missing: str) -> None:
    """A part that was not measured is not free."""
    half = make_problem(profiles=[with_points(make_profile(split=True), **{missing: None})])
    plan = make_plan(half, *TWO, streams=("0F0 0F1 0I0 0W0 0I1 0W1 0G0 0U0", TWO_STREAMS[1]), groups=((0,), (1,)))
    with pytest.raises(PriceError, match="has no times of input and weight gradient"):
        price_plan(plan, half)


def test_a_split_visit_has_its_own_forward_and_memory() -> None:
    # F 5 ms a layer instead of 4; a layer keeps 50,000 bytes until W instead of 16,000; 700 more while I or W runs.
    # W gathers the gradients of the stage's 2,000 parameters, 8,000 bytes. B of the other stage is as ever.
    profile = make_profile(split=True, per_instruction_ns=5_000)
    split = make_problem(profiles=[with_split_costs(profile, forward_ns=5_000_000, kept_bytes=50_000, peak_bytes=700)])
    streams = ("0F0 0F1 0I0 0W0 0I1 0W1 0G0 0U0", TWO_STREAMS[1])
    prices = price_plan(make_plan(split, *TWO, streams=streams, groups=((0,), (1,))), split)
    visit, other = prices.visits[0, SHAPE], prices.visits[1, SHAPE]
    assert (visit.forward_ns, visit.backward_input_ns, visit.backward_weight_ns) == (10_005_000, 8_005_000, 8_005_000)
    assert visit.kept_bytes == 2 * 50_000 + 4 * 256 + 4_000 + 4_000
    assert visit.backward_transient_bytes == 700 + 2 * 1_000 * 4
    assert (other.forward_ns, other.kept_bytes) == (8_005_000, 32_000 + 4_000 + 4_000)


def test_under_recompute_a_split_visit_keeps_what_w_waits_for() -> None:
    profile = make_profile(split=True)
    problem = make_problem(
        profiles=[with_split_costs(profile, forward_ns=5_000_000, kept_bytes=50_000, peak_bytes=700)]
    )
    again = Stage(group=0, first_layer=0, end_layer=2, recompute={"full": (0, 1)})
    streams = ("0F0 0F1 0I0 0W0 0I1 0W1 0G0 0U0", TWO_STREAMS[1])
    visit = price_plan(make_plan(problem, again, TWO[1], streams=streams, groups=((0,), (1,))), problem).visits[
        0, SHAPE
    ]
    assert visit.backward_input_ns == 8_000_000 + 10_000_000  # both layers run again, split, inside I
    assert (visit.kept_bytes, visit.restored_bytes) == (2 * 50_000 + 4 * 256 + 4_000 + 4_000, 0)
    streams = ("0F0 0F1 0R0 0I0 0W0 0R1 0I1 0W1 0G0 0U0", TWO_STREAMS[1])
    visit = price_plan(make_plan(problem, again, TWO[1], streams=streams, groups=((0,), (1,))), problem).visits[
        0, SHAPE
    ]
    assert (visit.backward_input_ns, visit.recompute_ns) == (8_000_000, 10_000_000)
    assert (visit.kept_bytes, visit.restored_bytes) == (4 * 256 + 4_000 + 4_000, 2 * 50_000)


def test_a_w_that_stands_alone_is_the_whole_backward() -> None:
    # Nothing goes back from the first stage: its W computes every gradient at once, as B would.
    problem = make_problem()  # no I and W measured, none needed
    streams = ("0F0 0F1 0W0 0W1 0G0 0U0", TWO_STREAMS[1])
    visit = price_plan(make_plan(problem, *TWO, streams=streams, groups=((0,), (1,))), problem).visits[0, SHAPE]
    assert visit.backward_weight_ns == 16_000_000


def test_tied_weights_are_summed_over_both_holders_and_kept_once_a_group() -> None:
    problem = make_problem(profiles=[make_profile(tied=[(0, 3)])])
    prices = two_stages(problem)
    assert len(prices.sum_ns) == 3
    assert [time > 0 for time in prices.sum_ns] == [True, False, False]  # layers 0 and 3; layer 1; layer 2
    one = Stage(group=0, first_layer=0, end_layer=4)
    plan = make_plan(problem, one, streams=("0F0 0B0 0F1 0B1 0G0 0U0",), groups=((0,),))
    assert price_plan(plan, problem).state_bytes == (3 * 16_000,)


def test_links_follow_the_places_of_the_ranks() -> None:
    cluster = make_cluster(("cpu-a", 2, 1), latency_ns=50_000)
    problem = make_problem(cluster=cluster)
    plan = make_plan(problem, *TWO, streams=TWO_STREAMS, groups=((0,), (1,)))
    apart = make_plan(problem, *TWO, streams=TWO_STREAMS, groups=((0,), (1,)), ranks_per_node=1)
    assert price_plan(apart, problem).borders[0, 1, SHAPE].forward_ns > 50_000
    with pytest.raises(PriceError, match="no usable inside_node link"):
        price_plan(plan, problem)


def test_hand_over_inside_a_group_is_free() -> None:
    problem = make_problem()
    stages = (TWO[0], Stage(group=0, first_layer=2, end_layer=4))
    plan = make_plan(problem, *stages, streams=("0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1 0G0 1G0 0U0 1U0",), groups=((0,),))
    assert price_plan(plan, problem).borders[0, 1, SHAPE] == BorderPrice(0, 0, 0)


def test_node_that_the_cluster_lacks_is_refused() -> None:
    problem = make_problem()
    other = make_problem(profiles=[make_profile(kind="cpu-b")], cluster=make_cluster(("cpu-b", 1, 2)))
    plan = make_plan(problem, *TWO, streams=TWO_STREAMS, groups=((0,), (1,)))
    with pytest.raises(PriceError, match="no node of the cluster"):
        price_plan(plan, other)


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        (StateCut(), 16_000),
        (StateCut(tensor=2), 8_000),
        (StateCut(shards=4, sharded="optimizer"), 4_000 + 4_000 + 2_000),
        (StateCut(shards=4, sharded="gradients"), 4_000 + 1_000 + 2_000),
        (StateCut(shards=4, sharded="parameters"), 1_000 + 1_000 + 2_000),
        (StateCut(trained=False), 4_000),
    ],
)
def test_state_of_a_layer(cut: StateCut, expected: int) -> None:
    """1,000 parameters, fp32 adamw: 4 weight, 4 gradient, 8 optimizer bytes each."""
    assert layer_state_bytes(make_profile().layers[0], make_workload(), cut) == expected


def test_sixteen_bit_adam_takes_18_bytes_a_parameter() -> None:
    workload = make_workload(precision="bf16")
    profile = make_profile(precision="bf16")
    assert layer_state_bytes(profile.layers[0], workload, StateCut()) == 18_000


def test_worst_provenance_is_told() -> None:
    problem = make_problem(profiles=[make_profile(provenance="scaled:A100")])
    assert two_stages(problem).costs == "scaled:A100"
