"""Exit codes of the command line and the one place that gives each error its code (docs/cli.md)."""

from planner.errors import (
    DeviceError,
    DocumentError,
    InfeasibleError,
    ModelError,
    OutputError,
    PlanError,
    PlannerError,
    PriceError,
    ProblemError,
    ServerError,
    SettingsError,
    SolverError,
)

__all__ = [
    "DEVICE",
    "DONE",
    "INFEASIBLE",
    "INTERRUPTED",
    "INVALID",
    "NO_PLAN_IN_TIME",
    "OUTPUT",
    "REFUSED",
    "SERVER",
    "SETTINGS",
    "TERMINATED",
    "UNEXPECTED",
    "InputFileError",
    "InterruptedCommandError",
    "RefusedFileError",
    "exit_code",
]

DONE = 0
UNEXPECTED = 1
INVALID = 2  # usage or invalid input
INFEASIBLE = 3  # nothing fits, or a plan does not fit
NO_PLAN_IN_TIME = 5
REFUSED = 6  # plan or profile file: digest, schema, truncated, layer cover
OUTPUT = 7
DEVICE = 8
SERVER = 9
SETTINGS = 78
INTERRUPTED = 130
TERMINATED = 143  # 128 + SIGTERM


class InterruptedCommandError(PlannerError):
    """The user pressed Ctrl-C."""


class InputFileError(PlannerError):
    """An input file cannot be read: missing, no regular file, too large."""


class RefusedFileError(DocumentError):
    """A plan, profile or run record file that is not what it claims to be."""


_CODES: tuple[tuple[type[PlannerError], int], ...] = (  # the first class that fits counts
    (InterruptedCommandError, INTERRUPTED),
    (RefusedFileError, REFUSED),
    (PlanError, REFUSED),
    (DocumentError, INVALID),
    (ProblemError, INVALID),
    (PriceError, INVALID),
    (InputFileError, INVALID),
    (ModelError, INVALID),
    (InfeasibleError, INFEASIBLE),
    (OutputError, OUTPUT),
    (DeviceError, DEVICE),
    (ServerError, SERVER),
    (SettingsError, SETTINGS),
)


def exit_code(error: PlannerError) -> int:
    """What the command exits with after ``error``."""
    if isinstance(error, SolverError):
        return {"no_plan_in_time": NO_PLAN_IN_TIME, "range": INVALID}.get(error.code, UNEXPECTED)
    if error.code == "terminated":
        return TERMINATED
    if error.code == "usage":
        return INVALID
    return next((code for kind, code in _CODES if isinstance(error, kind)), UNEXPECTED)
