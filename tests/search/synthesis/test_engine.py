"""Schedules of one problem: replay against a plain recursion, streams there and back, memory, plain = compiled."""

import importlib.util
import random
from functools import cache

import pytest

from planner.errors import SettingsError
from planner.plan.instruction import Instruction
from planner.search.synthesis.engine import Engine, Schedule, WalkEffort
from planner.search.synthesis.kernels import compiled_kernels, plain_kernels, quickest_kernels
from planner.search.synthesis.layout import Manner
from planner.search.synthesis.order_problem import OrderProblem
from planner.search.synthesis.synthesise import Effort, synthesise
from planner.search.synthesis.templates import plain_keys, template_keys, templates
from tests.helpers.order_problems import equal_stages, messages, placements, stages_on_routes

PLACEMENTS = ("line", "loop", "v", "wave", "two lines", "two v")


def random_problem(seed: int) -> OrderProblem:
    """Any placement, unequal times, some stages fused, memory from tight to loose."""
    draw = random.Random(seed)
    p = draw.choice((2, 4))
    routes = placements(PLACEMENTS[seed % len(PLACEMENTS)], p, legs=draw.choice((2, 3)))
    groups = [group for route in routes for group in route]

    def times(low: int) -> tuple[int, ...]:
        return tuple(draw.randint(low, 9) for _ in groups)

    kept = tuple(draw.randint(1, 3) for _ in groups)
    least = [sum(k for k, owner in zip(kept, groups, strict=True) if owner == group) for group in range(p)]
    return OrderProblem(
        group_of_stage=tuple(groups),
        routes=stages_on_routes(routes),
        num_micro_batches=tuple(draw.randint(1, 6) for _ in routes),
        forward_ns=times(1),
        backward_input_ns=times(1),
        backward_weight_ns=tuple(draw.choice((0, 2, 5)) for _ in groups),
        forward_message_ns=messages(routes, draw.randint(0, 3), backwards=0),
        backward_message_ns=messages(routes, draw.randint(0, 3), backwards=1),
        kept=kept,
        limit=tuple(total + draw.randint(0, 6) for total in least),
    )


def recursive_step(problem: OrderProblem, streams: list[list[Instruction]]) -> int:
    """The longest path, by definition: own stage, neighbour and message, place in the stream."""
    ahead = {one: other for stream in streams for one, other in zip(stream, (None, *stream[:-1]), strict=True)}
    first = {(i.stage, i.number): i for stream in streams for i in stream if i.operation in "IB"}
    route_of = problem.route_of_stage

    def waits(one: Instruction) -> list[tuple[Instruction, int]]:
        operation, stage, number, _ = one
        if operation == "W":
            return [(Instruction("I", stage, number), 0)]
        route = problem.routes[route_of[stage]]
        place = route.index(stage)
        if operation == "F":
            message = problem.forward_message_ns[stage]
            return [(Instruction("F", route[place - 1], number), message)] if place else []
        found = [(Instruction("F", stage, number), 0)]
        if place + 1 < len(route):
            found.append((first[route[place + 1], number], problem.backward_message_ns[stage]))
        return found

    @cache
    def end(one: Instruction) -> int:
        earlier = ahead[one]
        ready = [end(other) + delay for other, delay in waits(one)] + ([end(earlier)] if earlier is not None else [])
        operation = "I" if one.operation == "B" else one.operation
        return max(ready, default=0) + problem.duration_ns(one.stage, operation)

    return max(end(one) for stream in streams for one in stream)


def most_kept(problem: OrderProblem, streams: list[list[Instruction]]) -> list[int]:
    peaks = []
    for stream in streams:
        used = peak = 0
        for one in stream:
            used += problem.kept[one.stage] if one.operation == "F" else 0
            peak = max(peak, used)
            used -= problem.kept[one.stage] if one.operation == ("W" if problem.splits(one.stage) else "B") else 0
        peaks.append(peak)
    return peaks


def schedules(engine: Engine) -> list[Schedule]:
    """By several priorities, from both ends."""
    keys = [keys for _, keys in plain_keys(engine)]
    keys += [template_keys(engine, template) for _, template in zip(range(3), templates(engine.problem), strict=False)]
    found = [engine.by_priority(one, "forwards") for one in keys]
    found += [engine.from_the_end(one, "backwards") for one in keys[2:]]
    found += [engine.by_priority(keys[2], "waits", Manner(wait=5, reserves=0))]
    return [schedule for schedule in found if schedule is not None]


@pytest.mark.parametrize("seed", range(24))
def test_steps_are_longest_paths_within_the_memory(seed: int) -> None:
    problem = random_problem(seed)
    engine = Engine(problem, plain_kernels())
    found = schedules(engine)
    assert found
    for schedule in found:
        streams = engine.streams(schedule)
        assert recursive_step(problem, streams) == schedule.step_ns
        assert all(peak <= limit for peak, limit in zip(most_kept(problem, streams), problem.limit, strict=True))
        order = engine.order_of(streams)
        assert order is not None
        assert order.tolist() == schedule.order.tolist()


@pytest.mark.parametrize("seed", range(24))
def test_memory_for_one_visit_of_each_stage_is_enough(seed: int) -> None:
    """No plain rule locks, and none is slower than one micro-batch at a time."""
    problem = random_problem(seed)
    engine = Engine(problem, plain_kernels())
    slowest = engine.one_at_a_time()
    assert slowest is not None
    assert all(engine.by_priority(keys, name) is not None for name, keys in plain_keys(engine))
    step_ns = synthesise(problem, Effort(4, 4, 50)).step_ns
    assert step_ns <= slowest.step_ns


@pytest.mark.parametrize("seed", range(12))
def test_plain_and_compiled_loops_agree(seed: int) -> None:
    problem = random_problem(seed)
    plain, compiled = (Engine(problem, made) for made in (plain_kernels(), compiled_kernels()))
    effort = WalkEffort(moves=60, heat_ns=3, seed=seed)
    for one, other in zip(schedules(plain), schedules(compiled), strict=True):
        walked = plain.walked(one, effort, floor_ns=0), compiled.walked(other, effort, floor_ns=0)
        for mine, theirs in ((one, other), walked):
            assert mine.step_ns == theirs.step_ns
            assert mine.order.tolist() == theirs.order.tolist()
            assert mine.starts_ns.tolist() == theirs.starts_ns.tolist()


def test_a_walk_is_never_longer_and_fits() -> None:
    for seed in range(6):
        problem = random_problem(seed)
        engine = Engine(problem, plain_kernels())
        start = schedules(engine)[0]
        walked = engine.walked(start, WalkEffort(200, 2, seed), floor_ns=0)
        assert walked.step_ns <= start.step_ns
        streams = engine.streams(walked)
        assert recursive_step(problem, streams) == walked.step_ns
        assert all(peak <= limit for peak, limit in zip(most_kept(problem, streams), problem.limit, strict=True))


def test_an_order_that_cannot_go_on_or_does_not_fit_is_none() -> None:
    """Group 0 of a line of two: I0 before F0 waits for ever; three F within a limit of two do not fit."""
    engine = Engine(equal_stages(placements("line", 2), 3, limit=2), plain_kernels())

    def schedule(*texts: str) -> Schedule | None:
        made = [
            [Instruction(word[0], group, int(word[1])) for word in text.split()] for group, text in enumerate(texts)
        ]  # type: ignore[arg-type]
        order = engine.order_of(made)
        assert order is not None
        return engine.of_order(order, "made")

    good = "F0 I0 W0 F1 I1 W1 F2 I2 W2"
    assert schedule(good, good) is not None
    assert schedule("I0 F0 W0 F1 I1 W1 F2 I2 W2", good) is None
    assert schedule("F0 F1 F2 I0 I1 I2 W0 W1 W2", good) is None
    assert engine.order_of([[Instruction("F", 0, 0)], []]) is None


def test_without_numba_everything_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert quickest_kernels(10**12) is not None
    assert quickest_kernels(10**12).walk is plain_kernels().walk
    compiled_kernels.cache_clear()
    with pytest.raises(SettingsError, match="fast"):
        compiled_kernels()
