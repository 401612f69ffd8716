"""What is taken as one vertex, and what crosses between vertices."""

from itertools import product

from planner.errors import InfeasibleError
from planner.search.graphs.merged import merge_classes, merge_for_contiguous, with_leaves_joined
from planner.search.graphs.problem import DeviceKind, GraphLayer, GraphProblem
from tests.helpers.graph_search import load_of, random_graph

DEVICES = (DeviceKind("device", 2),)


def graph(times: tuple[int, ...], reads: tuple[tuple[int, int], ...], together: str = "") -> GraphProblem:
    words = [word if word != "." else "" for word in together] or [""] * len(times)
    layers = tuple(
        GraphLayer(f"{n}", (time,), 1, 1, word) for n, (time, word) in enumerate(zip(times, words, strict=True))
    )
    return GraphProblem(layers, reads, DEVICES)


def test_classes_that_read_each_other_are_one_vertex_of_a_contiguous_plan() -> None:
    # Class x = {0, 2} feeds 1, and 1 feeds it: in order only all three together.
    problem = graph((1, 2, 3, 4), ((0, 1), (1, 2), (2, 3)), "x.x.")
    assert merge_classes(problem).parts == ((0, 2), (1,), (3,))
    assert merge_for_contiguous(problem).parts == ((0, 1, 2), (3,))
    assert merge_for_contiguous(problem).before == ((0, 1),)


def test_nets_with_equal_pins_add_up_and_inner_ones_vanish() -> None:
    problem = graph((1, 2, 3, 4), ((0, 1), (1, 2), (2, 3), (0, 2)), "x.x.")
    # 0 is read by 1 and 2, 1 by 2: both connect {0,2} and {1}; 2 is read by 3.
    assert merge_classes(problem).nets == (((0, 1), 2), ((0, 2), 1))


def test_idle_leaves_join_their_only_neighbour() -> None:
    # 0 -> 1 -> 3 with 0 and 1 idle: a tail that joins 3; 2 is idle but has two neighbours.
    problem = graph((0, 0, 0, 5, 6), ((0, 1), (1, 3), (3, 2), (2, 4)))
    assert with_leaves_joined(merge_classes(problem)).parts == ((0, 1, 3), (2,), (4,))


def test_leaves_with_bytes_stay_apart_where_memory_binds() -> None:
    layers = tuple(GraphLayer(f"{n}", (time,), size) for n, (time, size) in enumerate(((0, 1), (0, 0), (5, 3), (5, 3))))
    problem = GraphProblem(layers, ((0, 2), (1, 2), (2, 3)), (DeviceKind("device", 3, 3),))
    assert with_leaves_joined(merge_classes(problem)).parts == ((0,), (1, 2), (3,))


def test_a_net_is_paid_exactly_where_an_output_enters_or_leaves() -> None:
    checked = 0
    for seed in range(150):
        try:
            problem = random_graph(seed)
        except InfeasibleError:
            continue
        merged = merge_classes(problem)
        free = tuple(kind._replace(memory_bytes=None, pays_transfers=True) for kind in problem.kinds)
        paying = GraphProblem(problem.layers, problem.reads, free)
        for chosen in product((False, True), repeat=len(merged.parts)):
            inside = frozenset(vertex for vertex, held in enumerate(chosen) if held)
            layers = frozenset(merged.layers_of(inside))
            times = [problem.layers[number].times_ns[0] for number in layers]
            if any(time is None for time in times):
                continue
            cut_ns = sum(cost for pins, cost in merged.nets if 0 < len(inside & set(pins)) < len(pins))
            assert load_of(paying, 0, layers) == sum(time or 0 for time in times) + cut_ns
            checked += 1
    assert checked > 1_000
