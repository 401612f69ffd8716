"""What the processes that measure links are told and what they answer."""

from planner.problem.contract import Bytes, Contract, Count, Index, Many, Name, Nanoseconds

__all__ = ["Exchange", "Exchanges", "LinkJob"]


class LinkJob(Contract):
    """One rank's part of a probe."""

    rank: Index
    num_ranks: Count
    threads: Count
    device: Name  # cpu or cuda
    usable_bytes: Bytes | None
    rendezvous: str  # file:// or tcp:// address at which the ranks meet
    message_sizes: Many[Count]
    warm_up: Index
    repeats: Count


class Exchange(Contract):
    """Half of each ping-pong of one size with one partner."""

    partner: Index
    message_bytes: Count
    transfers_ns: Many[Nanoseconds]


class Exchanges(Contract):
    """What one rank measured as the sender, and its device."""

    device_kind: Name
    usable_bytes: Count
    exchanges: Many[Exchange]

    def of_size(self, message_bytes: int) -> tuple[int, ...]:
        """All times of one size."""
        return tuple(t for one in self.exchanges if one.message_bytes == message_bytes for t in one.transfers_ns)
