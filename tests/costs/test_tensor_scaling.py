"""Tensor degrees that were not measured: the stated rule, worked out by hand."""

import pytest

from planner.costs.layers import LayerPrice
from planner.costs.links import message_ns
from planner.costs.price import price_plan
from planner.costs.tensor_scaling import TENSOR_KINDS, SumBytes, scaled_to_tensor, tensor_sums
from planner.errors import PriceError
from planner.plan.mesh import Mesh
from planner.plan.plan import Stage
from planner.problem.profile import LayerKind, ModelProfile
from tests.costs.test_price import SHAPE, make_plan
from tests.helpers.documents import make_problem, make_profile

PRICE = LayerPrice(
    forward_ns=8_000,
    backward_ns=16_000,
    backward_input_ns=9_000,
    backward_weight_ns=7_000,
    saved_bytes=34_000,
    input_bytes=1_000,
    output_bytes=3_000,
    forward_transient_bytes=3_400,
    backward_transient_bytes=6_800,
    split_forward_ns=8_400,
    split_saved_bytes=68_000,
    split_transient_bytes=340,
    provenance="measured",
)


def test_a_block_on_four_ranks_worked_by_hand() -> None:
    # One ns a byte summed. Forward: 8,000 / 4 and two sums of the output, 3,000 each; backward: 16,000 / 4 and two of
    # the input's gradient. With a whole border 10 of 34 parts of what is kept stay, 24 are cut: 34,000 -> 16,000.
    sums = tensor_sums("block", PRICE, num_tokens=10)
    assert sums == SumBytes((3_000, 3_000), (1_000, 1_000))
    assert scaled_to_tensor(PRICE, sums, tensor=4, border="whole", sum_ns=lambda size: size) == LayerPrice(
        forward_ns=2_000 + 6_000,
        backward_ns=4_000 + 2_000,
        backward_input_ns=2_250 + 2_000,
        backward_weight_ns=1_750,
        saved_bytes=16_000,
        input_bytes=1_000,
        output_bytes=3_000,
        forward_transient_bytes=1_600,
        backward_transient_bytes=3_200,
        split_forward_ns=2_100 + 6_000,
        split_saved_bytes=32_000,
        split_transient_bytes=160,
        provenance="scaled:tensor-4",
    )


def test_a_sharded_border_cuts_all_that_is_kept() -> None:
    found = scaled_to_tensor(PRICE, SumBytes((), ()), tensor=4, border="sharded", sum_ns=lambda size: size)
    assert (found.saved_bytes, found.input_bytes, found.output_bytes) == (8_500, 250, 750)
    assert (found.backward_transient_bytes, found.split_saved_bytes) == (1_700, 17_000)


def test_the_saved_bytes_of_the_formula_of_the_cost_model() -> None:
    # s 2048, b 4, h 6144: s b h 34 bytes, without scores; on 8 tensor ranks s b h (10 + 24/8), 654,311,424 bytes, and
    # with a sharded border 34 s b h / 8, 213,909,504 (cost model 4.2).
    block = PRICE._replace(saved_bytes=34 * 2048 * 4 * 6144)
    for border, expected in (("whole", 654_311_424), ("sharded", 213_909_504)):
        found = scaled_to_tensor(block, SumBytes((), ()), tensor=8, border=border, sum_ns=lambda size: 0)
        assert found.saved_bytes == expected


def test_three_parts_sum_as_their_block_does() -> None:
    part = PRICE._replace(input_bytes=5, output_bytes=5)
    parts = [tensor_sums(kind, part, num_tokens=1) for kind in ("pre", "attention", "post")]
    block = tensor_sums("block", part, num_tokens=1)
    assert sum((one.forward for one in parts), ()) == block.forward
    assert sum((one.backward for one in parts), ()) == block.backward


def test_every_kind_with_a_rule_has_one_and_a_frozen_layer_sums_nothing_back() -> None:
    frozen = PRICE._replace(backward_ns=0, backward_input_ns=0, backward_weight_ns=0)
    for kind in TENSOR_KINDS:
        sums = tensor_sums(kind, frozen, num_tokens=1)
        assert scaled_to_tensor(frozen, sums, tensor=2, border="whole", sum_ns=lambda size: size).backward_ns == 0
    assert tensor_sums("head", PRICE, num_tokens=10) == SumBytes((120,), (1_000,))
    assert scaled_to_tensor(PRICE, SumBytes((9,), (9,)), tensor=1, border="whole", sum_ns=lambda size: size) == PRICE


def of_kind(kind: LayerKind) -> ModelProfile:
    profile = make_profile()
    layers = tuple(layer.model_copy(update={"kind": kind}) for layer in profile.layers)
    return profile.model_copy(update={"layers": layers})


def test_a_plan_on_two_tensor_ranks_is_priced_by_the_rule() -> None:
    """Four blocks of 4 ms forward for 4 samples, 4,000 bytes in and out, the first reads 4 x 256 bytes."""
    problem = make_problem(profiles=[of_kind("block")])
    stage = Stage(group=0, first_layer=0, end_layer=4, mesh=Mesh(tensor=2))
    prices = price_plan(make_plan(problem, stage, streams=("0F0 0B0 0F1 0B1 0G0 0U0",), groups=((0, 1),)), problem)
    visit = prices.visits[0, SHAPE]
    # ring of 2 ranks: 2 messages of half of the bytes each
    link = problem.cluster.link("cpu-a", "cpu-a", "inside_node")
    assert link is not None
    output_ns, input_ns = 2 * message_ns(link, 2_000), 2 * message_ns(link, 512)
    assert visit.forward_ns == 4 * 2_000_000 + 8 * output_ns
    assert visit.backward_ns == 4 * 4_000_000 + 6 * output_ns + 2 * input_ns
    assert prices.costs == "scaled:tensor-2"
    assert prices.state_bytes == (4 * 1_000 * 16 // 2,)


def test_a_layer_without_a_rule_has_no_price() -> None:
    problem = make_problem(profiles=[of_kind("other")])
    stage = Stage(group=0, first_layer=0, end_layer=4, mesh=Mesh(tensor=2))
    plan = make_plan(problem, stage, streams=("0F0 0B0 0F1 0B1 0G0 0U0",), groups=((0, 1),))
    with pytest.raises(PriceError, match=r"layer 0 .* has no points for these degrees; asked for .* tensor 2"):
        price_plan(plan, problem)
