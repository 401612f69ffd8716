"""The feasibility programme: its rules one by one, the worked instance, and as a relaxation of unequal layers."""

import random
import subprocess
import sys
from functools import partial
from itertools import product

import pytest

from planner.search.bounds import bottleneck_start_ns
from planner.search.feasibility import (
    CapacityOption,
    CapacityProgram,
    EqualLayers,
    bisect_bottleneck,
    place_layers,
    window_program,
)
from planner.search.partition import NO_PLAN, best_cut
from planner.search.refinement import stage_times
from tests.helpers.cuts import random_instance

ONE = (CapacityOption(0, 1),)

# 12 equal layers, fast x1 6 ns and 40 bytes, fast x2 4 and 80, slow x1 14 and 24, slow x2 8 and 48; state 3, saved 1,
# m large, border 1 at every position, the head takes a layer's time and 4 bytes; 5 positions, 2 fast, 4 slow devices
WORKED = EqualLayers(
    options=(CapacityOption(0, 1), CapacityOption(0, 2), CapacityOption(1, 1), CapacityOption(1, 2)),
    counts=(2, 4),
    num_layers=12,
    num_positions=5,
    num_micro_batches=1_000,
    border_ns=1,
    layer_ns=(6, 4, 14, 8),
    usable_bytes=(40, 80, 24, 48),
    state_bytes=3,
    saved_bytes=1,
    head_layers=1,
    head_bytes=4,
)


def brute_force(program: CapacityProgram) -> bool:
    """Every choice of an option, or nothing, for each position; used positions stand first."""
    choices = range(len(program.options) + 1)  # the last: not used
    for picks in product(choices, repeat=len(program.caps)):
        used = [pick for pick in picks if pick < len(program.options)]
        if list(picks[: len(used)]) != used:
            continue
        devices = [0] * len(program.counts)
        for pick in used:
            devices[program.options[pick].kind] += program.options[pick].size
        held = sum(program.caps[position][pick] for position, pick in enumerate(used))
        if held >= program.num_layers and all(a <= b for a, b in zip(devices, program.counts, strict=True)):
            return True
    return False


def test_layers_are_held() -> None:
    assert place_layers(CapacityProgram(ONE, (2,), 5, ((2,), (3,)))).status == "feasible"
    assert place_layers(CapacityProgram(ONE, (2,), 6, ((2,), (3,)))).status == "infeasible"


def test_devices_suffice() -> None:
    two = (CapacityOption(0, 2),)
    assert place_layers(CapacityProgram(two, (4,), 4, ((2,), (2,)))).status == "feasible"
    assert place_layers(CapacityProgram(two, (3,), 4, ((2,), (2,)))).status == "infeasible"


def test_one_option_a_position() -> None:
    both = (CapacityOption(0, 1), CapacityOption(1, 1))
    assert place_layers(CapacityProgram(both, (1, 1), 3, ((2, 1), (2, 1)))).status == "feasible"
    assert place_layers(CapacityProgram(both, (1, 1), 3, ((2, 1),))).status == "infeasible"


def test_positions_are_contiguous() -> None:
    # the second position could hold everything, but not without the first, which takes the only device
    assert place_layers(CapacityProgram(ONE, (1,), 3, ((0,), (3,)))).status == "infeasible"
    assert place_layers(CapacityProgram(ONE, (2,), 3, ((0,), (3,)))).status == "feasible"


def test_worked_instance() -> None:
    """Least T = 25, 24 is infeasible; by CP-SAT and by brute force."""
    assert place_layers(WORKED.at(24)).status == "infeasible"
    assert place_layers(WORKED.at(25)).status == "feasible"
    assert not brute_force(WORKED.at(24))
    assert brute_force(WORKED.at(25))
    found = bisect_bottleneck(WORKED.at, low_ns=0, high_ns=100)
    assert (found.proven_ns, found.found_ns) == (24, 25)
    # the witness named with the instance: slow x2 2 layers, fast 4, slow 1, fast 4, slow 1
    caps = WORKED.at(25).caps
    assert [caps[position][option] for position, option in enumerate((3, 0, 2, 0, 2))] == [2, 4, 1, 4, 1]


def test_worked_instance_in_a_solver_child() -> None:
    """Under the memory limit and the start options of a solver child."""
    code = (
        "from planner.search.child import limit_memory; limit_memory(2 * 2**30);"
        "from tests.search.test_feasibility import WORKED;"
        "from planner.search.feasibility import bisect_bottleneck;"
        "import sys; found = bisect_bottleneck(WORKED.at, low_ns=0, high_ns=100);"
        "sys.stdout.write(f'{found.proven_ns} {found.found_ns}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "24 25"


def test_same_answer_every_time() -> None:
    first = place_layers(WORKED.at(25))
    assert all(place_layers(WORKED.at(25)) == first for _ in range(5))


@pytest.mark.parametrize("seed", range(10))
def test_never_proves_more_than_the_exact_programme(seed: int) -> None:
    """On unequal layers the programme is a relaxation: what it calls infeasible has no cut."""
    source = random.Random(seed)
    for _ in range(8):
        problem = random_instance(source)
        times = stage_times(problem)
        for limit_ns in {times[0], times[len(times) // 2], times[-1]}:
            program = window_program(problem, limit_ns)
            placed = place_layers(program)
            assert placed.status == ("feasible" if brute_force(program) else "infeasible")
            if placed.status == "infeasible":
                assert best_cut(problem, limit_ns) is None


def test_start_of_the_refinement_is_below_the_programme() -> None:
    source = random.Random(7)
    for _ in range(30):
        problem = random_instance(source)
        cut = best_cut(problem, NO_PLAN)
        if cut is not None:
            low_ns = bottleneck_start_ns(problem)
            program_at = partial(window_program, problem)
            found = bisect_bottleneck(program_at, low_ns=low_ns, high_ns=cut.bottleneck_ns)
            assert low_ns <= found.proven_ns < cut.bottleneck_ns
