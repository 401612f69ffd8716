"""What synthesis reaches, and in how much CPU time: equal stages, half memory, unequal stages, large waves, periods.

``python -m benchmarks.synthesis`` prints the tables of benchmarks/synthesis.md. The large wave runs in a process of its
own, compiled code taken from disk (start it twice: the first run compiles and says how long that took).
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from planner.search.synthesis.engine import Engine, WalkEffort
from planner.search.synthesis.kernels import Kernels, compiled_kernels, plain_kernels
from planner.search.synthesis.modulo import least_period
from planner.search.synthesis.order_problem import OrderProblem
from planner.search.synthesis.synthesise import Effort, synthesise
from planner.search.synthesis.templates import plain_keys
from tests.helpers.order_problems import CASES, case_problem, equal_stages, placements

LARGE = "--large"
FAR = Effort(templates=108, shakes=300, moves=45_000)
FIRST = Effort(templates=4, shakes=0, moves=0)


def equal(name: str, num_groups: int, *, legs: int, memory: float, rounds: int) -> OrderProblem:
    """F = I = W; ``memory`` in micro-batches of a group's whole share."""
    routes = placements(name, num_groups, legs)
    return equal_stages(routes, rounds * num_groups, limit=int(memory * legs))


def units(problem: OrderProblem, step: int, legs: int) -> float:
    """Bubble time in units of one group's whole forward."""
    return (step - max(problem.group_work_ns)) / legs


def timed(name: str, problem: OrderProblem, effort: Effort, legs: int) -> None:
    before = time.process_time()
    found = synthesise(problem, effort, kernels=compiled_kernels())
    spent = time.process_time() - before
    bubble, bound = units(problem, found.step_ns, legs), units(problem, found.bound.step_ns, legs)
    print(
        f"| {name} | {problem.num_instructions:,} | {bubble:g} | {bound:g} | {found.method} | {spent:.2f} |", flush=True
    )


def compile_time() -> float:
    """CPU time until the compiled loops have run once on something small."""
    before = time.process_time()
    engine = Engine(equal("line", 2, legs=1, memory=2, rounds=2), compiled_kernels())
    name, keys = next(plain_keys(engine))
    start = engine.by_priority(keys, name)
    assert start is not None
    engine.walked(start, WalkEffort(10, 1, 0), floor_ns=0)
    return time.process_time() - before


def large() -> None:
    """p = 64, 4 legs, m = 1,024: problem in, streams of 786,432 instructions out."""
    problem = equal("wave", 64, legs=4, memory=64, rounds=16)
    found = synthesise(problem, FIRST, kernels=compiled_kernels())
    result = {
        "instructions": sum(len(stream) for stream in found.streams),
        "bubble": units(problem, found.step_ns, 4),
        "bound": units(problem, found.bound.step_ns, 4),
        "method": found.method,
        "cpu_s": time.process_time(),  # of the whole process
    }
    print(json.dumps(result))


def equal_rows() -> None:
    print("| placement | instructions | bubble, u | bound, u | by | CPU, s |\n|---|---|---|---|---|---|")
    for p in (4, 8, 16, 32):
        timed(f"two V, split, p={p}, m=2p, memory p", equal("two v", p, legs=2, memory=p, rounds=2), FIRST, 2)
    timed("line, split, p=64, m=1,024, memory p", equal("line", 64, legs=1, memory=64, rounds=16), FIRST, 1)
    for p in (4, 8, 16, 32):
        effort = FAR if p <= 8 else Effort(36, 60, 300_000_000 // (24 * p * p))
        timed(f"V, split, p={p}, m=4p, memory p/2+1", equal("v", p, legs=2, memory=p / 2 + 1, rounds=4), effort, 2)


def case_rows() -> None:
    print("\n| case | named | best known | found: line | found: V | bound: line | bound: V | CPU, s |")
    print("|---|---|---|---|---|---|---|---|")
    fused, in_place = [], []
    for case in CASES["cases"]:
        before = time.process_time()
        found = {name: synthesise(case_problem(case, name), FAR, kernels=compiled_kernels()) for name in ("line", "v")}
        spent = time.process_time() - before
        steps = " | ".join(f"{found[name].step_ns:,}" for name in ("line", "v"))
        bounds = " | ".join(f"{found[name].bound.step_ns:,}" for name in ("line", "v"))
        names = f"{case['name']} | {case['best_named_step']:,} | {case['best_known_step']:,}"
        print(f"| {names} | {steps} | {bounds} | {spent:.1f} |", flush=True)
        best = min(one.step_ns for one in found.values())
        line = case["placements"]["line"]["named_steps"]
        fused.append(line["one_f_one_b"] / best)
        in_place.append(line["one_f_one_b_w_in_place"] / best)
    means = sum(fused) / len(fused), sum(in_place) / len(in_place)
    print(f"\nFaster than 1F1B: fused backward {means[0]:.3f} x, W in place {means[1]:.3f} x (mean of the cases)")


def period_row() -> None:
    problem = equal_stages(placements("v", 8), 32, limit=10, ticks=(5, 5, 5), message=4)
    before = time.process_time()
    found = least_period(problem, most_ns=60)
    tried = ", ".join(f"{one.period_ns} {one.slots.status}" for one in found.tried)
    print(f"\nPeriod, V, p=8, 5 ticks, message 4, 10 kept: {tried}; {time.process_time() - before:.2f} s of CPU")


def speed_rows() -> None:
    print("\n| loops | list scheduling, instructions/s | moves/s of a walk, 1,536 instructions |\n|---|---|---|")
    for name, kernels, moves in (("plain", plain_kernels(), 400), ("compiled", compiled_kernels(), 8_000)):
        speed_row(name, kernels, moves)


def speed_row(name: str, kernels: Kernels, moves: int) -> None:
    case = next(case for case in CASES["cases"] if case["name"] == "two_kinds_p8")
    engine = Engine(case_problem(case, "v"), kernels)
    label, keys = next(plain_keys(engine))
    start = engine.by_priority(keys, label)
    assert start is not None
    scheduling = seconds(lambda: [engine.by_priority(keys, label) for _ in range(10)])
    walking = seconds(lambda: engine.walked(start, WalkEffort(moves, 10, 0), floor_ns=0))
    print(f"| {name} | {10 * engine.num_instructions / scheduling:,.0f} | {moves / walking:,.0f} |")


def seconds(run: Callable[[], object]) -> float:
    before = time.process_time()
    run()
    return time.process_time() - before


def main() -> None:
    if LARGE in sys.argv:
        large()
        return
    print(f"Loops compiled or loaded in {compile_time():.1f} s of CPU\n")
    equal_rows()
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "benchmarks.synthesis", LARGE]
    print("\nWave, 4 legs, p=64, m=1,024, cold process:", flush=True)
    print(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout)
    case_rows()
    period_row()
    speed_rows()


if __name__ == "__main__":
    main()
