"""Uniform templates on a V: one micro-batch as a pattern in ticks, repeated every 6 ticks.

Method: building blocks of Qi et al. 2024 (arXiv 2405.15362). A tick is one F, I or W of one of the 2p stages; a group
has six of them for each micro-batch, so six slots modulo 6. F and I move on by fixed steps, W takes the first free slot
after its I, the second stage of the group first. Expansion: start + 6 i for micro-batch i, sorted, order kept.
"""

from typing import NamedTuple

from planner.plan.instruction import BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, Instruction, Operation
from planner.schedules.placements import v
from planner.schedules.shape import Streams

__all__ = ["PERIOD", "Steps", "Template", "Turns", "expanded", "uniform_template"]

PERIOD = 6
_OPERATIONS: tuple[Operation, ...] = (FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)  # in the order of Template


class Steps(NamedTuple):
    """Ticks from one stage to the next: F on the way down and up, I on the way back down and up."""

    forward_down: int
    forward_up: int
    input_down: int  # stages 2p-1 .. p
    input_up: int  # stages p-1 .. 0


class Turns(NamedTuple):
    """Ticks from F of stage p-1 to F of stage p; from F to I of stage 2p-1; from I of stage p to I of stage p-1."""

    forward: int
    end: int
    back: int


class Template(NamedTuple):
    """Start of F, I and W by stage, for micro-batch 0."""

    forward: tuple[int, ...]
    backward_input: tuple[int, ...]
    backward_weight: tuple[int, ...]


def uniform_template(num_groups: int, steps: Steps, turns: Turns) -> Template | None:
    """None where two of the F and I of a group fall into one slot."""
    p, last = num_groups, 2 * num_groups - 1
    forward, inputs = [0] * (2 * p), [0] * (2 * p)
    for stage in range(1, 2 * p):
        step = turns.forward if stage == p else steps.forward_down if stage < p else steps.forward_up
        forward[stage] = forward[stage - 1] + step
    inputs[last] = forward[last] + turns.end
    for stage in reversed(range(last)):
        step = turns.back if stage == p - 1 else steps.input_down if stage >= p else steps.input_up
        inputs[stage] = inputs[stage + 1] + step
    weights = [0] * (2 * p)
    for group in range(p):
        pair = (last - group, group)
        taken = {start % PERIOD for stage in pair for start in (forward[stage], inputs[stage])}
        if len(taken) < 4:
            return None
        for stage in pair:
            weights[stage] = next(
                t for t in range(inputs[stage] + 1, inputs[stage] + PERIOD) if t % PERIOD not in taken
            )
            taken.add(weights[stage] % PERIOD)
    return Template(tuple(forward), tuple(inputs), tuple(weights))


def expanded(template: Template, num_micro_batches: int) -> Streams:
    """The streams of all groups."""
    num_stages = len(template.forward)
    found: list[list[tuple[int, Instruction]]] = [[] for _ in range(num_stages // 2)]
    for stage, group in enumerate(v(num_stages // 2)):
        for operation, starts in zip(_OPERATIONS, template, strict=True):
            found[group] += [
                (starts[stage] + PERIOD * number, Instruction(operation, stage, number))
                for number in range(num_micro_batches)
            ]
    return [[instruction for _, instruction in sorted(stream)] for stream in found]
