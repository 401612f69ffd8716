"""What a search found, for a person or a program; nothing fits is an error with its reasons."""

from planner.cli.output import emit_json, show_tables
from planner.cli.plan_tables import facts_table, plan_summary
from planner.cli.talk import say, warn
from planner.errors import Fault, InfeasibleError
from planner.plan.answer import Answer, Reason
from planner.plan.plan import Plan
from planner.units import time_text

__all__ = ["report_answer"]


def report_answer(answer: Answer, *, json_output: bool, plan_on_stdout: bool) -> Plan:
    """Say what was found; stdout is left to the plan where it goes there. Raises ``InfeasibleError``."""
    for warning in answer.warnings:
        warn(warning.code, warning.message)
    if json_output and (answer.plan is None or not plan_on_stdout):
        emit_json(_as_json(answer))
    if answer.plan is None:
        for way in answer.relaxations:
            say(f"way out at {way.pointer}: {way.message}")
        raise InfeasibleError(tuple(_fault(reason) for reason in answer.reasons) or _NO_REASON)
    if plan_on_stdout:
        say(_line(answer, answer.plan))
    elif not json_output:
        show_tables(facts_table("plan", plan_summary(answer.plan)))
    return answer.plan


_NO_REASON = (Fault("infeasible", "", "no plan fits the problem"),)


def _fault(reason: Reason) -> Fault:
    place = f"/layers/{reason.layer}" if reason.layer is not None else ""
    return Fault(reason.code, place, reason.message)


def _line(answer: Answer, plan: Plan) -> str:
    found = plan.prediction
    if found is None:
        return f"found plan {plan.digest[:12]} ({answer.limit})"
    step, bound = time_text(found.step_ns), time_text(found.bound_ns)
    return f"found plan {plan.digest[:12]}: step {step}, bound {bound}, gap {found.gap:.1%} ({answer.limit})"


def _as_json(answer: Answer) -> dict[str, object]:
    reasons = [reason.model_dump(mode="json") for reason in answer.reasons]
    found: dict[str, object] = {"status": answer.status, "limit": answer.limit, "reasons": reasons}
    found["relaxations"] = [way.model_dump(mode="json") for way in answer.relaxations]
    found["warnings"] = [warning.model_dump(mode="json") for warning in answer.warnings]
    if answer.plan is None:
        return found
    found["plan"] = answer.plan.digest
    if answer.plan.prediction is not None:
        found |= {"prediction": answer.plan.prediction.model_dump(mode="json"), "gap": answer.plan.prediction.gap}
    return found
