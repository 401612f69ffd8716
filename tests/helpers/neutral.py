"""Lowered lists in the words of the independent interpreter, so that it can replay them."""

from planner.schedules.lower import Compute, LoweredPlan, Receive, Send
from planner.schedules.lower import Step as LoweredStep
from tests.helpers.exhaustive import Step
from tests.helpers.exhaustive_rules import Order

__all__ = ["neutral_lists"]


def neutral_lists(lowered: LoweredPlan) -> list[list[Step]]:
    return [[_neutral(lowered, step) for step in steps] for steps in lowered.steps]


def _neutral(lowered: LoweredPlan, step: LoweredStep) -> Step:
    if isinstance(step, Compute):
        return Step("run", Order(*step.instruction))
    if isinstance(step, Send | Receive):
        found = step.message
        subject = (found.kind, found.sender_stage, found.receiver_stage, found.micro_batch, found.slice)
        elements = frozenset(
            (sample, token) for sample in range(*found.samples) for tokens in found.tokens for token in range(*tokens)
        )
        peer = found.receiver if isinstance(step, Send) else found.sender
        return Step("send" if isinstance(step, Send) else "receive", subject, (peer,), elements)
    piece = lowered.pieces[step.piece]
    return Step("sum", (*piece.weights, step.update), piece.members)
