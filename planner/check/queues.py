"""Where messages and sums wait for their other end, in three models of a network.

``buffered``: every directed pair of ranks has a queue of its own, a send never blocks another message.
``pair_queues``: rendezvous, both directions of a pair share one queue at each end.
``rank_queues``: rendezvous, everything of a rank stands in one queue.
Nothing carries a tag: what stands at the head of two queues meets, so a swapped pair of receives is found as wrong
data. A sum is one event of all its members.
"""

from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.plan.pieces import Piece
from planner.schedules.lower import Message, Receive, Send, Sum

__all__ = ["MESSAGE_MODELS", "Exchange", "MessageModel", "Post", "Queues", "WrongData"]

MessageModel = Literal["buffered", "pair_queues", "rank_queues"]
MESSAGE_MODELS: tuple[MessageModel, ...] = ("buffered", "pair_queues", "rank_queues")
Exchange = Send | Receive | Sum


class Post(NamedTuple):
    """What a rank has put into a queue, by its place in the rank's list."""

    rank: int
    place: int
    entry: Exchange


class WrongData(NamedTuple):
    """Two ends that meet and do not mean the same."""

    one: Post
    other: Post


class _Queue(NamedTuple):
    rank: int
    key: Hashable


@dataclass
class Queues:
    """All queues of one replay."""

    model: MessageModel
    pieces: Sequence[Piece]

    def __post_init__(self) -> None:
        self._waiting: dict[_Queue, deque[Post]] = defaultdict(deque)
        first: dict[tuple[int, ...], int] = {}  # members -> the first piece with them: a short name of their queue
        self._sum_queue = [first.setdefault(piece.members, number) for number, piece in enumerate(self.pieces)]

    def post(self, post: Post) -> list[Post] | WrongData:
        """Put ``post`` into its queue; everything that completes by it, or the first two ends that do not fit."""
        queue = _Queue(post.rank, self._key(post.entry))
        waiting = self._waiting[queue]
        waiting.append(post)
        if len(waiting) > 1:
            return []  # its head has no other end yet
        completed: list[Post] = []
        open_queues = [queue]
        while open_queues:
            ends = self._meet(open_queues.pop())
            wrong = next((WrongData(ends[0], end) for end in ends[1:] if not _same(ends[0].entry, end.entry)), None)
            if wrong is not None:
                return wrong
            for end in ends:
                freed = _Queue(end.rank, self._key(end.entry))
                self._waiting[freed].popleft()
                completed.append(end)
                open_queues.append(freed)
        return completed

    def heads(self) -> list[Post]:
        """What stands at the head of each queue that is not empty, by rank."""
        return sorted((posts[0] for posts in self._waiting.values() if posts), key=lambda post: post[:2])

    def _key(self, entry: Exchange) -> Hashable:
        if self.model == "rank_queues":
            return "all"
        if isinstance(entry, Sum):
            return ("sum", self._sum_queue[entry.piece])
        ends = (entry.message.sender, entry.message.receiver)
        return ends if self.model == "buffered" else ("pair", *sorted(ends))

    def _meet(self, queue: _Queue) -> list[Post]:
        """The heads that meet at ``queue``, its own first; none where an end is missing."""
        if not self._waiting[queue]:
            return []
        head = self._waiting[queue][0]
        partners = self._partners(head)
        if any(self._head(rank, queue.key) is None for rank in reversed(partners)):  # the last to come stand last
            return []
        ends = [self._head(rank, queue.key) for rank in partners]
        found = [end for end in ends if end is not None and self._fits(head, end)]
        return [head, *found] if len(found) == len(ends) else []

    def _fits(self, head: Post, end: Post) -> bool:
        """A send meets a receive from its rank; a sum meets sums over the same members."""
        if isinstance(head.entry, Sum):
            return isinstance(end.entry, Sum) and self.pieces[head.entry.piece].members == (
                self.pieces[end.entry.piece].members
            )
        return {type(head.entry), type(end.entry)} == {Send, Receive} and self._partners(end) == [head.rank]

    def _partners(self, post: Post) -> list[int]:
        if isinstance(post.entry, Send):
            return [post.entry.message.receiver]
        if isinstance(post.entry, Receive):
            return [post.entry.message.sender]
        return [rank for rank in self.pieces[post.entry.piece].members if rank != post.rank]

    def _head(self, rank: int, key: Hashable) -> Post | None:
        waiting = self._waiting.get(_Queue(rank, key))
        return waiting[0] if waiting else None


def _same(one: Exchange, other: Exchange) -> bool:
    return _meaning(one) == _meaning(other)


def _meaning(entry: Exchange) -> Message | Sum:
    return entry if isinstance(entry, Sum) else entry.message
