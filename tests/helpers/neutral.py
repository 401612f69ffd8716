"""Lowered lists in the words of the independent interpreter, so that it can replay them."""

from planner.schedules.lower import Compute, LoweredPlan, Receive, Send
from planner.schedules.lower import Entry as LoweredEntry
from tests.helpers.exhaustive import Entry
from tests.helpers.exhaustive_rules import Order

__all__ = ["neutral_lists"]


def neutral_lists(lowered: LoweredPlan) -> list[list[Entry]]:
    return [[_neutral(lowered, entry) for entry in entries] for entries in lowered.lists]


def _neutral(lowered: LoweredPlan, entry: LoweredEntry) -> Entry:
    if isinstance(entry, Compute):
        return Entry("run", Order(*entry.instruction))
    if isinstance(entry, Send | Receive):
        found = entry.message
        subject = (found.kind, found.sender_stage, found.receiver_stage, found.micro_batch, found.slice)
        elements = frozenset(
            (sample, token) for sample in range(*found.samples) for tokens in found.tokens for token in range(*tokens)
        )
        peer = found.receiver if isinstance(entry, Send) else found.sender
        return Entry("send" if isinstance(entry, Send) else "receive", subject, (peer,), elements)
    piece = lowered.pieces[entry.piece]
    return Entry("sum", (*piece.weights, entry.update), piece.members)
