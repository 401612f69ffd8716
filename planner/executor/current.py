"""What ``planner run`` hands to the script that it runs: the plan, and what was said of its executors."""

from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from planner.errors import ExecutorError
from planner.plan.plan import Plan

__all__ = ["CheckpointWish", "asked_checkpoints", "current_plan", "emulation_asked", "set_current_plan"]


@dataclass(frozen=True)
class CheckpointWish:
    """Save into ``folder`` after every ``save_every`` steps, keep the newest ``keep``; ``resume`` from the newest."""

    folder: Path
    save_every: int | None = None
    keep: int | None = None
    resume: bool = False


_current: ContextVar[Plan | None] = ContextVar("current_plan", default=None)
_emulate: ContextVar[bool] = ContextVar("emulate", default=False)
_checkpoints: ContextVar[CheckpointWish | None] = ContextVar("checkpoints", default=None)


def current_plan() -> Plan:
    """Raises ``ExecutorError`` where the script was not started by ``planner run``."""
    plan = _current.get()
    if plan is None:
        raise ExecutorError("no plan: start this script with `planner run --plan PLAN SCRIPT`", code="no_plan")
    return plan


def emulation_asked() -> bool:
    """Whether ``planner run --emulate`` allows a plan for other devices."""
    return _emulate.get()


def asked_checkpoints() -> CheckpointWish | None:
    """What ``planner run --checkpoint`` wants of the script's executor."""
    return _checkpoints.get()


def set_current_plan(plan: Plan | None, *, emulate: bool = False, checkpoints: CheckpointWish | None = None) -> None:
    """For ``planner/executor/launch.py``."""
    _current.set(plan)
    _emulate.set(emulate)
    _checkpoints.set(checkpoints)
