"""What is said to a person, on stderr; data goes to stdout (``planner/cli/output.py``)."""

import json
import sys
from collections.abc import Sequence

from planner.errors import Fault, PlannerError

__all__ = ["MOST_FAULTS", "error_lines", "fault_line", "json_error", "say", "warn"]

MOST_FAULTS = 20  # shown; the rest is counted


def say(text: str) -> None:
    """One line of talk."""
    sys.stderr.write(_printable(text) + "\n")
    sys.stderr.flush()


def warn(code: str, message: str) -> None:
    """Something that a person should know, but that stops nothing."""
    say(f"warning[{code}]: {message}")


def fault_line(fault: Fault) -> str:
    """``error[code] at pointer: message``."""
    place = f" at {fault.pointer}" if fault.pointer else ""
    return f"error[{fault.code}]{place}: {fault.message}"


def error_lines(error: PlannerError) -> list[str]:
    """Every fault of ``error`` as a line, the first ones written out."""
    lines = [fault_line(fault) for fault in error.faults[:MOST_FAULTS]]
    left_out = len(error.faults) - MOST_FAULTS
    return [*lines, f"... and {left_out} more"] if left_out > 0 else lines


def json_error(faults: Sequence[Fault]) -> str:
    """The same as one line of JSON, for a caller that asked for ``--json``."""
    shown = [fault._asdict() for fault in faults[:MOST_FAULTS]]
    return json.dumps({"code": faults[0].code, "errors": shown, "error_count": len(faults)})


def _printable(text: str) -> str:
    """``text`` without characters that could steer a terminal."""
    return "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)
