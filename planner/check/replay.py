"""Replay of lowered lists, event by event, in a model of the network: does every rank reach its end, with its data?

Method: replay is confluent (no receive from anybody, no polling), so one order of events stands for all. A rank walks
its list: sends, receives and sums are put into queues and do not stop it; an instruction waits until its messages have
arrived and its own rank has done what it needs. Where nothing moves, the blocked heads are the witness.
"""

from collections import defaultdict
from collections.abc import Sequence

from planner.check.queues import MessageModel, Post, Queues, WrongData
from planner.errors import Fault
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Instruction
from planner.plan.plan import Plan
from planner.schedules.deadlock import instruction_text
from planner.schedules.lower import Compute, Entry, LoweredPlan, Message, Receive, Send, Sum

__all__ = ["replay"]

_MOST_HEADS = 6


def replay(plan: Plan, lowered: LoweredPlan, model: MessageModel) -> Fault | None:
    """None where all lists end with the right data, else a fault: wrong_data or deadlock."""
    return _Replay(plan, lowered, model).run()


class _Replay:
    def __init__(self, plan: Plan, lowered: LoweredPlan, model: MessageModel) -> None:
        self._plan, self._lowered, self._model = plan, lowered, model
        self._dependencies = Dependencies(plan)
        self._queues = Queues(model, lowered.pieces)
        self._places = [0] * len(lowered.lists)
        self._done: list[set[Instruction]] = [set() for _ in lowered.lists]
        self._done_everywhere: dict[Instruction, int] = defaultdict(int)  # ranks that have done it
        self._missing = _messages_to(lowered)
        self._posted_sums: list[int] = [0] * len(lowered.lists)  # and not yet ended

    def run(self) -> Fault | None:
        moved = True
        while moved:
            moved = False
            for rank in range(len(self._places)):
                before = self._places[rank]
                found = self._walk(rank)
                if found is not None:
                    return self._wrong_data(found)
                moved = moved or self._places[rank] > before
        return self._blocked()

    def _walk(self, rank: int) -> WrongData | None:
        """Walk a rank's list as far as it goes."""
        entries = self._lowered.lists[rank]
        while self._places[rank] < len(entries):
            entry = entries[self._places[rank]]
            if isinstance(entry, Compute):
                if not self._is_ready(rank, entry.instruction):
                    return None
                self._done[rank].add(entry.instruction)
                self._done_everywhere[entry.instruction] += 1
            else:
                found = self._post(Post(rank, self._places[rank], entry))
                if found is not None:
                    return found
            self._places[rank] += 1
        return None

    def _post(self, post: Post) -> WrongData | None:
        if isinstance(post.entry, Sum):
            self._posted_sums[post.rank] += 1
        ended = self._queues.post(post)
        if isinstance(ended, WrongData):
            return ended
        for end in ended:
            if isinstance(end.entry, Sum):
                self._posted_sums[end.rank] -= 1
            elif isinstance(end.entry, Receive):
                self._missing[end.rank][self._lowered.readers[end.entry.message.tag]] -= 1
        return None

    def _is_ready(self, rank: int, instruction: Instruction) -> bool:
        waits = self._dependencies.waits(instruction)
        if instruction.operation == "U":
            everywhere = all(self._is_done_everywhere(wait.instruction) for wait in waits)
            return everywhere and self._posted_sums[rank] == 0
        group = self._plan.group_of_rank[rank]
        local = (w.instruction for w in waits if self._plan.stages[w.instruction.stage].group == group)
        return self._missing[rank].get(instruction, 0) == 0 and all(needed in self._done[rank] for needed in local)

    def _is_done_everywhere(self, instruction: Instruction) -> bool:
        group = self._plan.stages[instruction.stage].group
        return self._done_everywhere[instruction] == len(self._plan.groups[group])

    def _wrong_data(self, found: WrongData) -> Fault:
        one, other = (self._post_text(post) for post in found)
        return Fault("wrong_data", self._pointer(found.one.rank), f"{one} meets {other}: untagged, the data is wrong")

    def _blocked(self) -> Fault | None:
        """The witness of a deadlock: ranks before their end, and what stands at the head of queues."""
        lists = self._lowered.lists
        blocked = [rank for rank, place in enumerate(self._places) if place < len(lists[rank])]
        heads = self._queues.heads()
        if not blocked and not heads:
            return None
        words = [f"rank {rank} stands at {self._entry_text(lists[rank][self._places[rank]])}" for rank in blocked]
        words = words[:_MOST_HEADS] + [f"{self._post_text(post)} waits" for post in heads[:_MOST_HEADS]]
        first = blocked[0] if blocked else heads[0].rank
        return Fault("deadlock", self._pointer(first), f"deadlock with {self._model}: {'; '.join(words)}")

    def _pointer(self, rank: int) -> str:
        return f"/streams/{self._plan.group_of_rank[rank]}"

    def _post_text(self, post: Post) -> str:
        return f"rank {post.rank}'s {self._entry_text(post.entry)}"

    def _entry_text(self, entry: Entry) -> str:
        if isinstance(entry, Compute):
            return instruction_text(self._plan, entry.instruction)
        if isinstance(entry, Sum):
            return f"sum of piece {entry.piece} (stages {self._lowered.pieces[entry.piece].stages})"
        name = "send" if isinstance(entry, Send) else "receive"
        return f"{name} of {self._message_text(entry.message)}"

    def _message_text(self, message: Message) -> str:
        writer = instruction_text(self._plan, self._lowered.writers[message.tag])
        return f"the {message.kind} of {writer} from rank {message.sender} to {message.receiver}"


def _messages_to(lowered: LoweredPlan) -> list[dict[Instruction, int]]:
    """By rank: how many messages each instruction needs; counted at the senders, so a lost receive is missed."""
    missing: list[dict[Instruction, int]] = [defaultdict(int) for _ in lowered.lists]
    for message in _sent(lowered.lists):
        missing[message.receiver][lowered.readers[message.tag]] += 1
    return missing


def _sent(lists: Sequence[Sequence[Entry]]) -> list[Message]:
    return [entry.message for entries in lists for entry in entries if isinstance(entry, Send)]
