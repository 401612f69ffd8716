"""What ran when: each rank notes its own clock, at the end of a step the notes of all ranks become one ``Timeline``.

The gathering runs in the background and is waited for when the timeline is asked for, or at the next step. Clocks are
brought to that of rank 0 by the shortest of several round trips (Cristian 1989); ranks of one machine read one clock,
an offset below half of that round trip counts as none.
"""

import logging
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from planner.errors import PeerLostError
from planner.executor.team import Team
from planner.executor.teardown import hold
from planner.plan.instruction import Instruction
from planner.plan.plan import Plan
from planner.simulate.timeline import Event, Timeline

__all__ = ["Measurement", "Recorder", "clock_offset_ns"]

_log = logging.getLogger(__name__)
_ROUND_TRIPS = 8
_LAST_WAIT = timedelta(seconds=5)
_HEAD = 3  # start of the step, its end, peak bytes; then starts, then ends of the instructions


class Recorder:
    """The notes of one rank; ``starts_ns`` and ``ends_ns`` grow by one an instruction."""

    def __init__(self, plan: Plan, team: Team, offset_ns: int) -> None:
        self._plan, self._team, self._offset_ns = plan, team, offset_ns
        self._longest = max(len(stream) for stream in plan.instructions)
        self.starts_ns: list[int] = []
        self.ends_ns: list[int] = []
        self._begin_ns = 0
        self._last: Measurement | None = None

    def begin(self) -> None:
        self.starts_ns.clear()
        self.ends_ns.clear()
        if self._team.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._team.device)
        self._begin_ns = time.perf_counter_ns()

    def end(self) -> "Measurement":
        """Start to gather the notes of all ranks."""
        device = self._team.device
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else -1
        padding = [0] * (self._longest - len(self.starts_ns))
        times = [self._begin_ns, time.perf_counter_ns(), *self.starts_ns, *padding, *self.ends_ns, *padding]
        notes = torch.tensor([t + self._offset_ns for t in times], dtype=torch.int64)
        own = torch.cat((notes[:2], torch.tensor([peak]), notes[2:])).to(device)
        if self._team.group is None or self._team.num_ranks == 1:
            return Measurement(self._plan, own.unsqueeze(0), None)
        gathered = own.new_empty((self._team.num_ranks, own.numel()))
        work = dist.all_gather(list(gathered.unbind()), own, group=self._team.group, async_op=True)
        hold(work)
        self._last = Measurement(self._plan, gathered, work)
        return self._last

    def settle(self) -> None:
        """Nothing of this rank is under way afterwards, unless another one does not do its part."""
        if self._last is not None:
            self._last.settle()


class Measurement:
    """The notes of all ranks of one step, perhaps still on their way."""

    def __init__(self, plan: Plan, notes: Tensor, work: dist.Work | None) -> None:
        self._plan, self._notes, self._work = plan, notes, work
        self._timeline: Timeline | None = None

    def wait(self) -> None:
        """Raises ``PeerLostError`` where another rank was lost before its notes came."""
        if self._work is None:
            return
        try:
            self._work.wait()
        except RuntimeError as error:
            message = f"another rank was lost after the step, before its times came: {error}"
            raise PeerLostError(message, code="peer_lost") from error
        self._work = None

    def settle(self) -> None:
        """Wait a little; the notes may be lost."""
        if self._work is None:
            return
        try:
            self._work.wait(_LAST_WAIT)
        except RuntimeError as error:
            _log.warning("the times of the last step did not come: %s", error)

    def timeline(self) -> Timeline:
        """Times from the earliest start of a rank; of each group the rank that was busy longest."""
        if self._timeline is None:
            self.wait()
            notes: list[list[int]] = self._notes.tolist()
            self._timeline = _timeline(self._plan, notes)
        return self._timeline


def _timeline(plan: Plan, notes: list[list[int]]) -> Timeline:
    begin_ns = min(note[0] for note in notes)
    longest = (len(notes[0]) - _HEAD) // 2
    events = []
    for ranks, stream in zip(plan.groups, plan.instructions, strict=True):
        candidates = [_events(notes[rank], stream, longest=longest, begin_ns=begin_ns) for rank in ranks]
        events.append(max(candidates, key=lambda found: sum(event.end_ns - event.start_ns for event in found)))
    peaks = [max(notes[rank][2] for rank in ranks) for ranks in plan.groups]
    return Timeline(
        events=tuple(events),
        step_ns=max(note[1] for note in notes) - begin_ns,
        num_ranks=tuple(len(ranks) for ranks in plan.groups),
        peak_bytes=tuple(peaks) if min(peaks) >= 0 else None,
    )


def _events(note: list[int], stream: tuple[Instruction, ...], *, longest: int, begin_ns: int) -> tuple[Event, ...]:
    starts, ends = note[_HEAD:], note[_HEAD + longest :]
    return tuple(
        Event(instruction, start - begin_ns, end - begin_ns)
        for instruction, start, end in zip(stream, starts, ends, strict=False)
    )


def clock_offset_ns(team: Team) -> int:
    """What to add to this rank's clock to get rank 0's; every rank calls it at the same time."""
    offset_ns = 0
    if team.group is None:
        return 0
    for rank in range(1, team.num_ranks):
        if team.rank == 0:
            _answer(team, rank)
        elif team.rank == rank:
            offset_ns = _ask(team)
    return offset_ns


def _answer(team: Team, rank: int) -> None:
    peer = team.global_ranks[rank]
    for _ in range(_ROUND_TRIPS):
        dist.recv(torch.empty(1, dtype=torch.int64, device=team.device), peer, group=team.group)
        dist.send(torch.tensor([time.perf_counter_ns()], device=team.device), peer, group=team.group)


def _ask(team: Team) -> int:
    peer, reply = team.global_ranks[0], torch.empty(1, dtype=torch.int64, device=team.device)
    trips = []
    for _ in range(_ROUND_TRIPS):
        asked_ns = time.perf_counter_ns()
        dist.send(torch.tensor([asked_ns], device=team.device), peer, group=team.group)
        dist.recv(reply, peer, group=team.group)
        answered_ns = time.perf_counter_ns()
        trips.append((answered_ns - asked_ns, int(reply.item()) - (asked_ns + answered_ns) // 2))
    trip_ns, offset_ns = min(trips)
    return offset_ns if abs(offset_ns) > trip_ns // 2 else 0
