"""What is left to do when an executor ends."""

from typing import NamedTuple

from planner.executor.guard import Guard
from planner.executor.measure import Recorder

__all__ = ["Ending"]


class Ending(NamedTuple):
    """It does not refer to the executor."""

    guard: Guard
    recorder: Recorder

    def run(self) -> None:
        """The last collective is done, the thread is joined."""
        self.recorder.settle()
        self.guard.close()
