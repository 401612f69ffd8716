"""Contiguous parts: worked cases, everything by brute force on small graphs, bounds, stops."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from planner.errors import InfeasibleError
from planner.search.graphs.contiguous import contiguous_answers
from planner.search.graphs.down_sets import down_sets
from planner.search.graphs.plan import GraphAnswer, load_ns, plan_of
from planner.search.graphs.problem import DeviceKind, GraphLayer, GraphProblem
from planner.search.partition import PartitionProblem, StageOption
from planner.search.refinement import refine
from tests.helpers.graph_search import NOTHING, best_contiguous, chain_graph, random_graph

NAMES = "abcd"


def diamond(num_devices: int) -> GraphProblem:
    """a feeds b and c, both feed d; every transfer takes 1."""
    layers = tuple(GraphLayer(name, (time,), 1, 1) for name, time in zip(NAMES, (2, 3, 4, 1), strict=True))
    return GraphProblem(layers, ((0, 1), (0, 2), (1, 3), (2, 3)), (DeviceKind("device", num_devices),))


def last(problem: GraphProblem) -> GraphAnswer:
    *_, answer = contiguous_answers(problem)
    assert answer.limit == "optimal"
    return answer


def test_a_diamond_on_two_devices() -> None:
    # {a,b} {c,d}: 2+3, a and b leave: 7; 4+1, a and b enter: 7. {a,c} {b,d}: 8, 6. {a} {b,c,d}: 3, 9. One device: 10.
    answer = last(diamond(2))
    assert answer.plan is not None
    assert [(part.layers, part.load_ns) for part in answer.plan.parts] == [((0, 1), 7), ((2, 3), 7)]
    assert (answer.plan.value_ns, answer.bound_ns, answer.gap) == (7, 7, 0)


def test_an_output_is_paid_once_however_many_devices_read_it() -> None:
    # {a} {b} {c,d}: a leaves once: 3; a enters, b leaves: 5; a and b enter: 7. {a} {c} {b,d}: 3, 6, 6.
    problem = diamond(3)
    assert [load_ns(problem, 0, layers) for layers in ((0,), (1,), (2, 3))] == [3, 5, 7]
    plan = last(problem).plan
    assert plan is not None
    assert [(part.layers, part.load_ns) for part in plan.parts] == [((0,), 3), ((2,), 6), ((1, 3), 6)]


def test_a_line_may_not_fold_back() -> None:
    # 3 4 3 on two devices: 3 and 7; folded back it would be 6 and 4.
    plan = last(chain_graph((3, 4, 3), num_devices=2)).plan
    assert plan is not None
    assert plan.value_ns == 7


def test_a_host_takes_what_the_devices_need_not() -> None:
    # The host needs 3 times as long and pays nothing: the last layer 9; the devices 9 + 1 and 8 + 1 + 1.
    layers = tuple(GraphLayer(f"{n}", (time, 3 * time), 1, 1) for n, time in enumerate((9, 8, 3)))
    kinds = (DeviceKind("device", 2), DeviceKind("host", 1, None, False))
    plan = last(GraphProblem(layers, ((0, 1), (1, 2)), kinds)).plan
    assert plan is not None
    assert [(part.kind, part.layers, part.load_ns) for part in plan.parts] == [
        (0, (0,), 10),
        (0, (1,), 10),
        (1, (2,), 9),
    ]


def test_a_backward_layer_follows_its_class() -> None:
    # Forward a b, backward b' a'; a and a' together: the same cut holds both. a a': 2 + 5, a and b' cross: 1 + 1.
    layers = (
        GraphLayer("a", (2,), 1, 1, "a"),
        GraphLayer("b", (4,), 1, 1, "b"),
        GraphLayer("b'", (3,), 1, 1, "b", True),
        GraphLayer("a'", (5,), 1, 1, "a", True),
    )
    plan = last(GraphProblem(layers, ((0, 1), (1, 2), (2, 3)), (DeviceKind("device", 2),))).plan
    assert plan is not None
    assert [(part.layers, part.load_ns) for part in plan.parts] == [((0, 3), 9), ((1, 2), 9)]


def test_memory_moves_the_cut() -> None:
    # Without a limit 5 | 1 1 1 1 1; with three bytes a device 5 1 1 | 1 1 1.
    times = (5, 1, 1, 1, 1, 1)
    free, tight = (last(chain_graph(times, num_devices=2, memory_bytes=limit)).plan for limit in (None, 3))
    assert free is not None
    assert tight is not None
    assert (free.value_ns, tight.value_ns) == (5, 7)


def test_what_fits_only_when_folded_back_is_refused() -> None:
    # Two devices of 3 bytes: 1 2 | 2 1 fits; 2 2 1 1 would have to be 2 1 and 2 1, which is no cut of the line.
    layers = tuple(GraphLayer(f"{n}", (1,), size) for n, size in enumerate((1, 2, 2, 1)))
    reads = ((0, 1), (1, 2), (2, 3))
    assert last(GraphProblem(layers, reads, (DeviceKind("device", 2, 3),))).plan is not None
    layers = tuple(GraphLayer(f"{n}", (1,), size) for n, size in enumerate((2, 2, 1, 1)))
    with pytest.raises(
        InfeasibleError, match=r"all layers need 6 bytes, 2 devices have 6; no contiguous parts"
    ) as refused:
        list(contiguous_answers(GraphProblem(layers, reads, (DeviceKind("device", 2, 3),))))
    assert refused.value.reasons[0].code == "memory"


@pytest.mark.parametrize("block", range(10))
def test_brute_force_agrees(block: int) -> None:
    """Values equal, bounds never above, refusals where nothing fits."""
    refused = 0
    for seed in range(60 * block, 60 * (block + 1)):
        try:
            problem = random_graph(seed)
        except InfeasibleError:
            continue
        best = best_contiguous(problem)
        if best >= NOTHING:
            refused += 1
            with pytest.raises(InfeasibleError):
                list(contiguous_answers(problem))
            continue
        answers = list(contiguous_answers(problem))
        assert all(answer.bound_ns <= best for answer in answers), seed
        assert all(answer.plan is None or answer.plan.value_ns >= best for answer in answers), seed
        assert answers[-1].plan is not None
        assert (answers[-1].plan.value_ns, answers[-1].bound_ns, answers[-1].limit) == (best, best, "optimal"), seed


def test_bounds_rise_and_values_fall() -> None:
    answers = list(contiguous_answers(random_line(30)))
    bounds = [answer.bound_ns for answer in answers]
    values = [answer.plan.value_ns for answer in answers if answer.plan is not None]
    assert len(answers) >= 3
    assert bounds == sorted(bounds)
    assert values == sorted(values, reverse=True)


def random_line(length: int) -> GraphProblem:
    """Times and transfers that fit badly, and a shortcut over every other layer."""
    line = chain_graph([(7 * n * n + 3) % 11 + 1 for n in range(length)], num_devices=4, transfer_ns=2)
    return replace(line, reads=(*line.reads, *((n, n + 2) for n in range(0, length - 2, 2))))


def test_a_stop_leaves_plan_and_bound() -> None:
    asked = count()
    *_, answer = contiguous_answers(random_line(30), stop=lambda: next(asked) > 0)
    full = last(random_line(30))
    assert answer.limit == "wall"
    assert answer.plan is not None
    assert full.plan is not None
    assert answer.bound_ns <= full.plan.value_ns <= answer.plan.value_ns


def test_too_many_down_sets_leave_a_plan_and_an_honest_limit() -> None:
    *_, answer = contiguous_answers(random_line(30), most_down_sets=10)
    full = last(random_line(30)).plan
    assert answer.limit == "deterministic"
    assert answer.plan is not None
    assert full is not None
    assert answer.bound_ns <= full.value_ns <= answer.plan.value_ns


def test_the_partition_programme_agrees_on_chains() -> None:
    """Its objective (m-1) T + S is the bottleneck alone when m is large."""
    for length in range(3, 12):
        times = [(5 * n * n + 2 * length) % 13 + 1 for n in range(length)]
        sums = [0]
        for time in times:
            sums.append(sums[-1] + time)
        option = line_option(sums)
        problem = PartitionProblem((option,), (3,), 10**6, (1, 1, 1), (2**40,))
        *_, found = refine(problem, start_ns=0)
        plan = last(chain_graph(times, num_devices=3)).plan
        assert plan is not None
        assert plan.value_ns == found.cut.bottleneck_ns


def line_option(sums: list[int]) -> StageOption:
    prefix = np.array(sums, np.int64)
    time_ns = np.maximum(prefix[None, :] - prefix[:-1, None], 0)
    return StageOption(0, 1, time_ns, np.ones_like(time_ns), np.diff(prefix), np.zeros(len(sums) - 1, np.int64))


def test_down_sets_of_small_orders_are_counted() -> None:
    # A line of n has n + 1, n loose vertices 2^n, the diamond 6: nothing, a, ab, ac, abc, abcd.
    for before, size, expected in (([(0, 1), (1, 2)], 3, 4), ([], 5, 32), ([(0, 1), (0, 2), (1, 3), (2, 3)], 4, 6)):
        sets = down_sets(before, [1] * size, most=100)
        assert sets is not None
        assert sets.num_sets == expected
        assert down_sets(before, [1] * size, most=expected) is not None
        assert down_sets(before, [1] * size, most=expected - 1) is None


def test_more_than_a_word_of_vertices() -> None:
    sets = down_sets([(n, n + 1) for n in range(149)], [1] * 150, most=200)
    assert sets is not None
    assert sets.num_sets == 151
    assert list(sets.supersets(140, 0, 151)) == list(range(140, 151))
    assert sets.between(63, 66) == (63, 64, 65)


def test_an_illegal_plan_is_never_counted() -> None:
    problem = chain_graph((1, 2, 3), num_devices=2, memory_bytes=2)
    assert plan_of(problem, [(0, (0, 1)), (0, (2,))]).value_ns == 3
    for parts in ([(0, (0, 1, 2))], [(0, (0, 1))], [(0, (0,)), (0, (1,)), (0, (2,))]):
        with pytest.raises(AssertionError):
            plan_of(problem, parts)
