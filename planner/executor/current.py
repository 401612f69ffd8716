"""The plan that ``planner run`` hands to the script that it runs."""

from contextvars import ContextVar

from planner.errors import ExecutorError
from planner.plan.plan import Plan

__all__ = ["current_plan", "emulation_asked", "set_current_plan"]

_current: ContextVar[Plan | None] = ContextVar("current_plan", default=None)
_emulate: ContextVar[bool] = ContextVar("emulate", default=False)


def current_plan() -> Plan:
    """Raises ``ExecutorError`` where the script was not started by ``planner run``."""
    plan = _current.get()
    if plan is None:
        raise ExecutorError("no plan: start this script with `planner run --plan PLAN SCRIPT`", code="no_plan")
    return plan


def emulation_asked() -> bool:
    """Whether ``planner run --emulate`` allows a plan for other devices."""
    return _emulate.get()


def set_current_plan(plan: Plan | None, *, emulate: bool = False) -> None:
    """For ``planner/executor/launch.py``."""
    _current.set(plan)
    _emulate.set(emulate)
