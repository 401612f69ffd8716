"""CPU time of the simulator, part by part: minimum of some runs in one process, the first compiled one apart.

python -m benchmarks.simulator        (table: benchmarks/simulator.md)
"""

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from planner.costs.prices import PlanPrices, VisitPrice
from planner.plan.plan import Plan
from planner.schedules.lower import lower
from planner.simulate.arrays import instruction_arrays
from planner.simulate.batch import ProgramBatch, noise_draws
from planner.simulate.compiled import compiled_sweep, is_installed
from planner.simulate.memory import peak_bytes
from planner.simulate.program import make_program
from planner.simulate.simulate import simulate
from planner.simulate.sweep import plain_sweep
from tests.helpers.plans import make_prices
from tests.helpers.waves import wave_plan

Result = TypeVar("Result")


class Size(NamedTuple):
    num_groups: int
    num_stages: int
    num_micro_batches: int


SIZES = (Size(8, 8, 64), Size(16, 32, 128), Size(64, 256, 1024))
DRAWS = (1, 64, 512)


def cpu_seconds(call: Callable[[], Result], *, runs: int = 3) -> tuple[float, Result]:
    """The least CPU time of some calls, and what the last returned."""
    best = float("inf")
    for _ in range(runs):
        before = time.process_time()
        result = call()
        best = min(best, time.process_time() - before)
    return best, result


def line(name: str, seconds: float, note: str = "") -> None:
    print(f"  {name:58} {seconds * 1000:10.2f} ms CPU  {note}".rstrip())


def priced(plan: Plan) -> PlanPrices:
    return make_prices(
        plan, lambda stage: VisitPrice(10_000, 20_000, 10_000, 10_000, kept_bytes=4), message_ns=lambda a, b: 1_000
    )


def measure(size: Size) -> None:
    seconds, plan = cpu_seconds(lambda: wave_plan(*size), runs=1)
    prices = priced(plan)
    num_instructions = sum(len(stream) for stream in plan.instructions)
    print(f"{num_instructions:,} instructions: {size}")
    line("the plan: streams written, parsed, every rule checked", seconds)
    seconds, arrays = cpu_seconds(lambda: instruction_arrays(plan, prices))
    line("arrays of a plan", seconds)
    seconds, program = cpu_seconds(lambda: make_program(plan, arrays, prices))
    line("program of the arrays", seconds)
    plain, times = cpu_seconds(lambda: plain_sweep(program))
    line("simulation over arrays, plain Python", plain, f"{num_instructions / plain / 1e6:.1f} M instructions/s")
    if is_installed():
        seconds, _ = cpu_seconds(lambda: compiled_sweep(program), runs=1)
        line("simulation over arrays, compiled, first call", seconds)
        seconds, other = cpu_seconds(lambda: compiled_sweep(program))
        assert (times.end_ns == other.end_ns).all()
        assert (times.start_ns == other.start_ns).all()
        line("simulation over arrays, compiled", seconds, f"{num_instructions / seconds / 1e6:.1f} M instructions/s")
    state = prices.state_bytes
    seconds, _ = cpu_seconds(
        lambda: peak_bytes(
            arrays, times.start_ns[:num_instructions], times.end_ns[:num_instructions], state_bytes=state
        )
    )
    line("peaks", seconds)
    seconds, _ = cpu_seconds(lambda: simulate(plan, prices), runs=1)
    line("simulate(): all of these and the events", seconds)
    if num_instructions < 100_000:
        draws(plan, prices)
    seconds, lowered = cpu_seconds(lambda: lower(plan), runs=1)
    line("lowering", seconds, f"{lowered.num_messages:,} messages")


def draws(plan: Plan, prices: PlanPrices) -> None:
    arrays = instruction_arrays(plan, prices)
    program = make_program(plan, arrays, prices)
    seconds, batch = cpu_seconds(lambda: ProgramBatch(program, num_groups=len(plan.groups)))
    line("levels of a batch, once a plan", seconds)
    for num_draws in DRAWS:
        drawn = noise_draws(arrays.duration_ns, spread=0.1, num_draws=num_draws, seed=0)
        seconds, steps = cpu_seconds(lambda d=drawn: batch.steps(d))  # type: ignore[misc]
        rate = num_draws * batch.num_instructions / seconds / 1e6
        line(f"batch of {len(steps.step_ns)} draws, numpy alone", seconds, f"{rate:.1f} M instructions/s")


def main() -> None:
    for size in SIZES:
        measure(size)


if __name__ == "__main__":
    main()
