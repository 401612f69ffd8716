"""Torch's own lowered schedules, in the three message models and by the order rule: which of them are safe.

Five schedules of torch 2.13, p = 2, 4, 8 ranks with two stages each, m = 2p and 4p micro-batches: 30. As torch lowers
them by default all pass. With its receives deferred (``_defer_recv_ops``) all stop where a rank has one queue, 26 where
a pair of ranks has one (not LoopedBFS at p = 4, 8), and 12 send and receive in different orders over a channel without
tags: ZBV all six, DualPipeV at p = 4, 8, InterleavedZeroBubble at p = 2. (DualPipeV needs m >= 2p; at m = p the order
holds in the others.)
"""

import random
from collections import Counter, defaultdict
from functools import cache
from typing import NamedTuple

import pytest
import torch

from planner.check.queues import MESSAGE_MODELS
from planner.check.replay import replay
from planner.check.structure import check_lowered
from planner.schedules.lower import Compute, Entry, LoweredPlan, Receive, Send
from tests.helpers.exhaustive import MODELS, Machine
from tests.helpers.exhaustive_rules import read_facts
from tests.helpers.neutral import neutral_lists
from tests.helpers.torch_lowerings import ReceivePlace, TorchLowering, torch_lowering

SCHEDULES = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")


class Case(NamedTuple):
    schedule: str
    num_ranks: int
    num_micro_batches: int


CASES = [Case(name, p, m) for name in SCHEDULES for p in (2, 4, 8) for m in (2 * p, 4 * p)]


@cache
def lowering(case: Case, receives: ReceivePlace) -> TorchLowering:
    return torch_lowering(*case, receives=receives)


@cache
def codes(case: Case, receives: ReceivePlace) -> tuple[str, ...]:
    """By model, buffered first: ok, deadlock or wrong_data."""
    found = lowering(case, receives)
    faults = [replay(found.plan, found.lowered, model) for model in MESSAGE_MODELS]
    return tuple("ok" if fault is None else fault.code for fault in faults)


def keeps_order(lowered: LoweredPlan) -> bool:
    """The order rule, by itself: over each ordered pair of ranks the sends and the receives are one sequence."""
    sent: dict[tuple[int, int], list[int]] = defaultdict(list)
    received: dict[tuple[int, int], list[int]] = defaultdict(list)
    for entries in lowered.lists:
        for entry in entries:
            if isinstance(entry, Send | Receive):
                ends = sent if isinstance(entry, Send) else received
                ends[entry.message.sender, entry.message.receiver].append(entry.message.tag)
    return sent == received


def refused_by(model: str) -> set[Case]:
    """With receives deferred."""
    return {case for case in CASES if codes(case, "deferred")[MESSAGE_MODELS.index(model)] != "ok"}


def out_of_order() -> set[Case]:
    return {case for case in CASES if not keeps_order(lowering(case, "deferred").lowered)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_default_lowering_passes(case: Case) -> None:
    found = lowering(case, "default")
    assert codes(case, "default") == ("ok", "ok", "ok")
    assert keeps_order(found.lowered)
    assert check_lowered(found.plan, found.lowered) is None


def test_deferred_receives_all_stop_with_one_queue_a_rank() -> None:
    assert len(CASES) == 30
    assert refused_by("rank_queues") == set(CASES)


def test_deferred_receives_stop_26_times_with_one_queue_a_pair() -> None:
    passed = set(CASES) - refused_by("pair_queues")
    assert passed == {case for case in CASES if case.schedule == "LoopedBFS" and case.num_ranks > 2}
    assert len(CASES) - len(passed) == 26


def test_deferred_receives_break_the_order_12_times() -> None:
    expected = {
        *(case for case in CASES if case.schedule == "ZBVZeroBubble"),
        *(case for case in CASES if case.schedule == "DualPipeV" and case.num_ranks > 2),
        *(case for case in CASES if case.schedule == "InterleavedZeroBubble" and case.num_ranks == 2),
    }
    assert out_of_order() == expected
    assert len(expected) == 12
    assert refused_by("buffered") == expected


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_default_verdict_refuses_where_any_rule_fails(case: Case) -> None:
    """The order rule first; where it holds, a deadlock."""
    found = lowering(case, "deferred")
    fault = check_lowered(found.plan, found.lowered)
    assert fault is not None
    assert fault.code == ("deadlock" if keeps_order(found.lowered) else "wrong_data")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_only_receives_differ(case: Case) -> None:
    """Deferred and default lists hold the same entries, and the same order of all but the receives."""
    default, deferred = lowering(case, "default"), lowering(case, "deferred")
    assert default.plan == deferred.plan
    assert default.lowered.lists != deferred.lowered.lists
    for one, other in zip(texts(default.lowered), texts(deferred.lowered), strict=True):
        assert Counter(one) == Counter(other)
        assert [text for text in one if "Receive" not in text] == [text for text in other if "Receive" not in text]


def texts(lowered: LoweredPlan) -> list[list[str]]:
    """Entries without tags, which are numbered as they turn up in each lowering."""
    return [[_text(entry) for entry in entries] for entries in lowered.lists]


def _text(entry: Entry) -> str:
    if isinstance(entry, Compute):
        return str(entry.instruction)
    assert isinstance(entry, Send | Receive)
    return f"{type(entry).__name__} {entry.message._replace(tag=0)}"


@pytest.mark.parametrize("case", [case for case in CASES if case.num_ranks < 8], ids=str)
@pytest.mark.parametrize("receives", ["default", "deferred"])
def test_an_independent_machine_agrees(case: Case, receives: ReceivePlace) -> None:
    found = lowering(case, receives)
    facts = read_facts(found.plan.model_dump(mode="json"))
    lists = neutral_lists(found.lowered)
    names = {"ok": "ok", "deadlock": "stuck", "wrong_data": "wrong"}
    machine = [Machine(facts, lists, model).run(random.Random(0)) for model in MODELS]
    assert machine == [names[code] for code in codes(case, receives)]


def test_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    with pytest.raises(RuntimeError, match=r"found torch 2\.14\.0, expected 2\.13"):
        torch_lowering("LoopedBFS", 2, 4, receives="default")
