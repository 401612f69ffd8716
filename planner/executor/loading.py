"""A plan from a file, read once and checked: what runs is what was found."""

from pathlib import Path

from planner.errors import HandshakeError, PlanError
from planner.plan.plan import Plan
from planner.problem.reading import read_document

__all__ = ["load_plan"]


def load_plan(path: str | Path, digest: str | None = None) -> Plan:
    """The plan in the file ``path``. Raises ``HandshakeError`` where it is not the plan named by ``digest``."""
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise PlanError(
            f"cannot read the plan {file}: {error.strerror}", code="unreadable", pointer=str(file)
        ) from None
    plan = read_document(data, Plan)
    if digest is not None and plan.digest != digest:
        raise HandshakeError(
            f"found the plan {plan.digest} in {file}, expected {digest}", code="plan_digest", pointer=str(file)
        )
    return plan
