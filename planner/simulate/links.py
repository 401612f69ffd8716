"""A step in which messages on a shared link wait for each other: a clock for each link.

Method: instructions end in the order of time (ties: by number); each end puts its messages on their links, first come,
first served (ties: by reader). A message leaves when all its links are free and holds them for its time without the
latency; it arrives after its whole time. Without shared links the times are those of ``simulate``.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from planner.costs.prices import PlanPrices
from planner.plan.dependencies import Dependencies
from planner.plan.plan import Plan
from planner.simulate.arrays import InstructionArrays, instruction_arrays
from planner.simulate.program import Program, make_program
from planner.simulate.simulate import make_timeline
from planner.simulate.sweep import NOT_DONE, Times
from planner.simulate.timeline import Timeline

__all__ = ["SharedLinks", "node_adapters", "simulate_on_links"]


@dataclass(frozen=True)
class SharedLinks:
    """``links_of``: (sender stage, receiver stage) -> numbers of the links that its messages hold; absent: none.

    ``latency_ns``: the part of every message's time in which it holds no link.
    """

    links_of: Mapping[tuple[int, int], tuple[int, ...]]
    latency_ns: int = 0


class _Message(NamedTuple):
    reader: int
    delay_ns: int
    links: tuple[int, ...]


def simulate_on_links(plan: Plan, prices: PlanPrices, links: SharedLinks) -> Timeline:
    """As ``simulate``, with messages that wait for each other on shared links. Raises ``PlanError`` (deadlock)."""
    arrays = instruction_arrays(plan, prices)
    replay = _Replay(arrays, make_program(plan, arrays, prices).as_lists(), links)
    replay.run()
    times = Times(np.array(replay.starts_ns, np.int64), np.array(replay.ends_ns, np.int64))
    return make_timeline(plan, arrays, prices, times=times)


def node_adapters(plan: Plan, *, latency_ns: int = 0) -> SharedLinks:
    """One adapter a node and direction: what leaves a node shares one link, and so does what comes in.

    Borders inside one node share nothing. Link ``2n``: out of node n, ``2n+1``: into it.
    """
    nodes = [sorted({plan.rank_nodes[rank] for rank in ranks}) for ranks in plan.groups]
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for (_, stage), neighbours in Dependencies(plan).neighbours.items():
        for source in neighbours.reads:
            for border in ((source, stage), (stage, source)):
                one, other = (nodes[plan.stages[end].group] for end in border)
                if one != other:
                    found[border] = (*(2 * node for node in one), *(2 * node + 1 for node in other))
    return SharedLinks(found, latency_ns)


class _Replay:
    """Instructions in the order of their ends."""

    def __init__(self, arrays: InstructionArrays, program: Program, links: SharedLinks) -> None:
        self._program = program
        self._latency_ns = links.latency_ns
        count = program.num_instructions
        self.starts_ns = [0] * count
        self.ends_ns = [NOT_DONE] * count
        self._ready_ns = [0] * count
        self._missing = [1] * count  # the one before it in its row, and messages
        self._messages: dict[int, list[_Message]] = defaultdict(list)
        self._busy_until_ns: dict[int, int] = defaultdict(int)
        self._last_of_row = {end - 1 for end in program.first}
        self._running: list[tuple[int, int]] = []
        self._post_messages(arrays, links)

    def _post_messages(self, arrays: InstructionArrays, links: SharedLinks) -> None:
        count, stages = self._program.num_instructions, arrays.stage.tolist()
        for index, before in enumerate(self._program.before):
            reader = index % count
            if before == count:
                continue
            self._missing[reader] += 1
            inside = reader < len(stages) and before < len(stages)
            held = links.links_of.get((stages[before], stages[reader]), ()) if inside else ()
            self._messages[before].append(_Message(reader, self._program.delay_ns[index], held))
        for posted in self._messages.values():
            posted.sort()

    def run(self) -> None:
        """Until nothing runs; what is blocked keeps the end -1."""
        for first, end in pairwise(self._program.first):
            if first < end:
                self._arrive(first, 0)
        while self._running:
            end_ns, number = heappop(self._running)
            for message in self._messages.get(number, ()):
                self._arrive(message.reader, self._arrival_ns(message, end_ns))
            if number not in self._last_of_row:
                self._arrive(number + 1, end_ns)

    def _arrival_ns(self, message: _Message, sent_ns: int) -> int:
        leaves_ns = max([sent_ns, *(self._busy_until_ns[link] for link in message.links)])
        for link in message.links:
            self._busy_until_ns[link] = leaves_ns + max(0, message.delay_ns - self._latency_ns)
        return leaves_ns + message.delay_ns

    def _arrive(self, number: int, time_ns: int) -> None:
        """One thing that an instruction waits for is there; after the last it runs."""
        self._ready_ns[number] = max(self._ready_ns[number], time_ns)
        self._missing[number] -= 1
        if self._missing[number] == 0:
            self.starts_ns[number] = self._ready_ns[number]
            self.ends_ns[number] = self._ready_ns[number] + self._program.duration_ns[number]
            heappush(self._running, (self.ends_ns[number], number))
