"""Parts without a rule of order: worked cases, brute force, equal kernels, the rules of the programme one by one."""

from itertools import count

import pytest

from planner.errors import InfeasibleError, SolverError
from planner.search.graphs.anywhere import AnywhereEffort, anywhere_answers
from planner.search.graphs.contiguous import least_load_ns, never
from planner.search.graphs.kernels import compiled_kernels, plain_kernels
from planner.search.graphs.merged import merge_classes, with_leaves_joined
from planner.search.graphs.placement import Effort, Range, first_fit, improved, plan_of_placement
from planner.search.graphs.plan import GraphAnswer
from planner.search.graphs.problem import DeviceKind, GraphLayer, GraphProblem
from planner.search.graphs.program import ProgramEffort, solve_placement
from tests.helpers.graph_search import NOTHING, best_anywhere, best_contiguous, chain_graph, random_graph
from tests.helpers.public_instances import max_load

SHORT = AnywhereEffort(Effort(rounds=2, tries=200), 2.0)
LOCAL = AnywhereEffort(Effort(rounds=4, tries=2_000), 0)


def last(problem: GraphProblem, effort: AnywhereEffort = SHORT) -> GraphAnswer:
    *_, answer = anywhere_answers(problem, effort=effort, kernels=plain_kernels())
    return answer


def test_a_line_folds_back() -> None:
    # 3 4 3 on two devices without transfers: the outer layers together, 6 and 4; in order it would be 7.
    answer = last(chain_graph((3, 4, 3), num_devices=2))
    assert answer.plan is not None
    assert (answer.plan.value_ns, answer.bound_ns, answer.limit) == (6, 6, "optimal")
    assert sorted(part.layers for part in answer.plan.parts) == [(0, 2), (1,)]


def test_transfers_keep_it_straight() -> None:
    # With transfers of 2: folded back 3 + 3 + 2 + 2 = 10 and 4 + 2 + 2 = 8; in order 3 + 2 = 5 and 7 + 2 = 9.
    answer = last(chain_graph((3, 4, 3), num_devices=2, transfer_ns=2))
    assert answer.plan is not None
    assert (answer.plan.value_ns, answer.limit) == (9, "optimal")


@pytest.mark.parametrize("block", range(10))
def test_brute_force_agrees(block: int) -> None:
    """Values equal, bounds never above, never worse than contiguous, refusals where nothing fits."""
    for seed in range(60 * block, 60 * (block + 1)):
        try:
            problem = random_graph(seed)
        except InfeasibleError:
            continue
        best = best_anywhere(problem)
        assert best <= best_contiguous(problem)
        if best >= NOTHING:
            with pytest.raises(InfeasibleError):
                last(problem)
            continue
        answers = list(anywhere_answers(problem, effort=SHORT, kernels=plain_kernels()))
        assert all(answer.bound_ns <= best for answer in answers), seed
        assert all(answer.plan is not None and answer.plan.value_ns >= best for answer in answers), seed
        assert answers[-1].plan is not None
        assert (answers[-1].plan.value_ns, answers[-1].limit) == (best, "optimal"), seed


def test_local_search_alone_is_within_a_tenth_and_mostly_exact() -> None:
    exact = tried = 0
    for seed in range(600, 700):
        try:
            problem = random_graph(seed)
        except InfeasibleError:
            continue
        best = best_anywhere(problem)
        if first_fit(merge_classes(problem)) is None or best >= NOTHING:
            continue
        found = last(problem, LOCAL).plan
        assert found is not None
        tried += 1
        exact += found.value_ns == best
        assert found.value_ns >= best
    assert tried >= 50
    assert exact >= 0.9 * tried


def test_plain_and_compiled_loops_agree() -> None:
    merged = with_leaves_joined(merge_classes(max_load("dnn/gnmt_inference")))
    start = first_fit(merged)
    assert start is not None
    effort = Effort(rounds=3, tries=3_000)
    plain, compiled = (
        list(improved(merged, start, kernels=kernels, effort=effort, seed=5))
        for kernels in (plain_kernels(), compiled_kernels())
    )
    assert plain == compiled
    assert plan_of_placement(merged, plain[-1]).value_ns < plan_of_placement(merged, start).value_ns


def test_huge_times_do_not_overflow() -> None:
    times = [(2**52 // 40) + n for n in range(12)]
    problem = chain_graph(times, num_devices=5, transfer_ns=2**30)
    merged = merge_classes(problem)
    start = first_fit(merged)
    assert start is not None
    effort = Effort(rounds=2, tries=2_000)
    plain, compiled = (
        list(improved(merged, start, kernels=kernels, effort=effort, seed=1))
        for kernels in (plain_kernels(), compiled_kernels())
    )
    assert plain == compiled


def test_one_seed_one_answer() -> None:
    problem = max_load("dnn/bert24_training")
    first, second = (last(problem, LOCAL) for _ in range(2))
    assert first == second


def test_a_stop_leaves_a_plan() -> None:
    asked = count()
    answers = list(
        anywhere_answers(
            max_load("dnn/bert24_training"),
            effort=SHORT,
            kernels=plain_kernels(),
            stop=lambda: next(asked) >= 0,
        )
    )
    assert answers[-1].limit == "wall"
    assert answers[-1].plan is not None


def test_memory_that_only_the_solver_can_fill() -> None:
    # Bytes 4 4 3 3 3 3 on two devices of 10: largest first gives 4 3 3, 4 3 3; bytes 5 5 4 3 3 of 10: only 5 5, 4 3 3.
    layers = tuple(GraphLayer(f"{n}", (1,), size) for n, size in enumerate((5, 4, 5, 3, 3)))
    reads = tuple((n, n + 1) for n in range(4))
    problem = GraphProblem(layers, reads, (DeviceKind("device", 2, 10),))
    merged = merge_classes(problem)
    assert best_contiguous(problem) >= NOTHING
    answer = last(problem)
    assert answer.plan is not None
    assert answer.limit == "optimal"
    assert sorted(part.layers for part in answer.plan.parts) == [(0, 2), (1, 3, 4)]
    if first_fit(merged) is None:
        with pytest.raises(SolverError, match="no parts that fit were found"):
            last(problem, SHORT._replace(deterministic=1e-9))


def solved(problem: GraphProblem, high_ns: int) -> str:
    merged = merge_classes(problem)
    within = Range(min(least_load_ns(merged), high_ns), high_ns, None)
    return solve_placement(merged, within, ProgramEffort(2.0), stop=never).status


def test_rule_loads_stay_below() -> None:
    # 3 4 3 with transfers of 2 needs 9.
    problem = chain_graph((3, 4, 3), num_devices=2, transfer_ns=2)
    assert (solved(problem, 8), solved(problem, 9)) == ("infeasible", "optimal")


def test_rule_memory_suffices() -> None:
    assert solved(chain_graph((1, 1, 1, 1), num_devices=2, memory_bytes=2), 100) == "optimal"
    layers = tuple(GraphLayer(f"{n}", (1,), 2) for n in range(3))
    assert solved(GraphProblem(layers, (), (DeviceKind("device", 2, 3),)), 100) == "infeasible"


def test_rule_every_vertex_lies_where_it_can_run() -> None:
    layers = (GraphLayer("a", (1, None), 1), GraphLayer("b", (None, 1), 1))
    kinds = (DeviceKind("one", 1), DeviceKind("other", 1))
    assert solved(GraphProblem(layers, (), kinds), 100) == "optimal"
    together = tuple(
        layer._replace(together="x", times_ns=times) for layer, times in zip(layers, ((1, 9), (1, 9)), strict=False)
    )
    assert solved(GraphProblem(together, (), kinds), 1) == "infeasible"


def test_too_large_a_programme_is_not_built() -> None:
    problem = chain_graph([1] * 600, num_devices=900)
    assert solved(problem, 100) == "too_large"
