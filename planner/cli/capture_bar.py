"""The progress of a capture on stderr: a bar with the time left on a terminal, a line now and then elsewhere."""

import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from planner.cli.talk import say
from planner.units import time_text

if TYPE_CHECKING:
    from profiles.capture import CaptureProgress

__all__ = ["CaptureBar"]

_PAUSE_S = 10.0  # between two lines off a terminal


class CaptureBar:
    """Used as a context; ``show`` is what the capture calls."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said_s = 0.0
        self._whole_ns = 0

    def __enter__(self) -> "CaptureBar":
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
            self._bar = Progress(*columns, console=Console(file=sys.stderr), transient=True)
            self._task = self._bar.add_task("starting", total=1.0, left="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, progress: "CaptureProgress") -> None:
        self._whole_ns = max(self._whole_ns, progress.left_ns)
        text = f"{progress.phase}: {progress.rounds} rounds, {progress.points_done} of {progress.points} points sure"
        left = f"at most {time_text(progress.left_ns)} left"
        if self._bar is not None and self._task is not None:
            done = 1.0 if progress.phase == "done" else 1 - progress.left_ns / max(1, self._whole_ns)
            self._bar.update(self._task, description=text, completed=done, left=left)
        elif progress.phase != "measuring" or time.monotonic() - self._said_s > _PAUSE_S:
            say(text if progress.phase != "measuring" else f"{text}, {left}")
            self._said_s = time.monotonic()
