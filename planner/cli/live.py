"""One line on stderr that follows a search: the best step so far, the bound, the gap."""

import sys
import time

from planner.plan.answer import Progress
from planner.units import time_text

__all__ = ["LiveLine", "progress_text"]

_SHORTEST_PAUSE_S = 0.1


def progress_text(progress: Progress) -> str:
    """``partition 12/40, best step 412 ms, bound 398 ms, gap 3.5%``."""
    parts = [progress.phase]
    if progress.candidates_total:
        parts[0] += f" {progress.candidates_done}/{progress.candidates_total}"
    if progress.incumbent_ns is not None:
        parts.append(f"best step {time_text(progress.incumbent_ns)}")
    if progress.bound_ns is not None:
        parts.append(f"bound {time_text(progress.bound_ns)}")
    if progress.incumbent_ns is not None and progress.bound_ns:
        parts.append(f"gap {(progress.incumbent_ns - progress.bound_ns) / progress.bound_ns:.1%}")
    return ", ".join(parts)


class LiveLine:
    """On a terminal one line that is rewritten; elsewhere a new line whenever the best plan or the bound changes."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown: tuple[int | None, int | None] | None = None
        self._at_s = 0.0
        self._open = False

    def show(self, progress: Progress) -> None:
        values = (progress.incumbent_ns, progress.bound_ns)
        if self._terminal:
            now_s = time.monotonic()
            if values != self._shown or now_s - self._at_s > _SHORTEST_PAUSE_S:
                self._write("\r\x1b[K" + progress_text(progress))
                self._at_s, self._open = now_s, True
        elif values != self._shown:
            self._write(progress_text(progress) + "\n")
        self._shown = values

    def close(self) -> None:
        """Leave the line as it is and go on below it."""
        if self._open:
            self._write("\n")
            self._open = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
