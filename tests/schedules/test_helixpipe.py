"""HelixPipe's table: bubble time by fold, repeats, backward ratio and message delay (replayed independently).

pre + post = 1 (a half each), attention a, backward of blocks beta x and of attention 2 x their forward; the ideal step
is m L ((1 + beta) + 3a) / p.
"""

import pytest

from planner.costs.layer_prices import LayerCost, layer_prices
from planner.schedules.families import family_lists, family_plan
from planner.schedules.family import FamilyShape
from planner.simulate.simulate import simulate
from tests.helpers.families import texts

UNIT_NS = 4  # pre + post


def bubble(name: str, p: int, num_layers: int, m: int, *, beta: int = 2, attention: int = 1, delay: float = 0) -> float:
    plan = family_plan(name, FamilyShape(p, m, num_layers=num_layers))
    block = LayerCost(UNIT_NS // 2, beta * UNIT_NS // 2, 0)
    layers = [block, LayerCost(attention * UNIT_NS, 2 * attention * UNIT_NS, 0), block] * num_layers
    step = simulate(plan, layer_prices(plan, layers, message_ns=round(delay * UNIT_NS))).step_ns / UNIT_NS
    return step - m * num_layers * (1 + beta + 3 * attention) / p


@pytest.mark.parametrize(
    ("p", "num_layers", "folds", "repeats", "beta_2", "beta_3", "delayed"),
    [
        (4, 8, 1, 1, 9, 12, 23),
        (4, 16, 1, 1, 9, 12, 39),
        (4, 16, 1, 2, 9, 12, 71),
        (4, 16, 2, 1, 12, 17, 15),
        (4, 16, 2, 2, 12, 17, 16),
        (8, 32, 1, 1, 21, 28, 83),
        (8, 32, 2, 1, 36, 49, 39),
    ],
)
def test_table(p: int, num_layers: int, folds: int, repeats: int, beta_2: float, beta_3: float, delayed: float) -> None:
    name, m = ("helixpipe", "helixpipe-two-fold")[folds - 1], p * folds * repeats
    assert bubble(name, p, num_layers, m) == beta_2
    assert bubble(name, p, num_layers, m, beta=3) == beta_3
    assert bubble(name, p, num_layers, m, delay=0.5) == delayed


@pytest.mark.parametrize("attention", [1, 4])
@pytest.mark.parametrize(("p", "num_layers"), [(4, 8), (4, 16), (6, 12), (8, 16)])
def test_the_bubble_does_not_depend_on_attention_or_layers(p: int, num_layers: int, attention: int) -> None:
    """One fold (p-1)(1+beta), two folds 2(p-2)(1+beta) from p = 4 on, within one."""
    for beta in (2, 3):
        one = bubble("helixpipe", p, num_layers, p, beta=beta, attention=attention)
        two = bubble("helixpipe-two-fold", p, num_layers, 2 * p, beta=beta, attention=attention)
        assert one == (p - 1) * (1 + beta)
        assert abs(two - 2 * (p - 2) * (1 + beta)) <= 1


def test_forward_streams() -> None:
    """p = L = 4, one fold; stage number 5k = block stage b_k, 5k + 1 + d = attention a_k of route d."""
    printed = [
        "b0.0 b0.1 b0.2 b0.3 a0.3 a1.2 a2.1 a3.0 b4.0 b4.1 b4.2 b4.3",
        "a0.0 b1.0 b1.1 b1.2 b1.3 a1.3 a2.2 a3.1",
        "a0.1 a1.0 b2.0 b2.1 b2.2 b2.3 a2.3 a3.2",
        "a0.2 a1.1 a2.0 b3.0 b3.1 b3.2 b3.3 a3.3",
    ]
    for stream, expected in zip(
        texts(family_lists("helixpipe", FamilyShape(4, 4, num_layers=4))), printed, strict=True
    ):
        forward = [word for word in stream.split() if "F" in word]
        assert forward == [numbered(word) for word in expected.split()]
        backward = [word.replace("I", "F").replace("B", "F") for word in stream.split() if "F" not in word]
        assert backward == forward[::-1]


def numbered(word: str) -> str:
    layer, route = int(word[1:].split(".")[0]), int(word.split(".")[1])
    return f"{5 * layer + (1 + route if word[0] == 'a' else 0)}F{route}"


def test_attention_lies_where_the_route_says() -> None:
    """On route d the attention of layer k is on group (k+d+1) mod p; only route p-1 keeps it on its block's group."""
    plan = family_plan("helixpipe", FamilyShape(3, 3, num_layers=6))
    for route, stages in enumerate(plan.routes):
        for k in range(6):
            block, attention = plan.stages[stages[2 * k]], plan.stages[stages[2 * k + 1]]
            assert block.group == k % 3
            assert attention.group == (k + route + 1) % 3
