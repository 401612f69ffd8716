"""``planner check``: is this plan legal, and does it fit?"""

from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import (
    JsonOption,
    OptionalClusterOption,
    OptionalProfilesOption,
    OptionalWorkloadOption,
    PlanArgument,
)

if TYPE_CHECKING:
    from planner.check.verdict import Facts, Fit, Verdict

__all__ = ["check"]


def check(
    plan_file: PlanArgument,
    profiles: OptionalProfilesOption = None,
    cluster: OptionalClusterOption = None,
    workload: OptionalWorkloadOption = None,
    digest: Annotated[
        str | None, typer.Option("--digest", metavar="HEX", help="The plan must have this digest.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Check structure, order of messages and deadlock; with the problem's files also memory and prediction.

    Exit code 6: the plan is refused. 3: it is legal and does not fit into memory.
    """
    from planner.check.problem import check_against
    from planner.check.structure import check_plan
    from planner.cli.files import read_plan, require_digest
    from planner.cli.output import emit_json
    from planner.cli.problem_files import optional_problem

    plan = read_plan(plan_file)
    if digest is not None:
        require_digest(plan_file, plan, digest)
    problem = optional_problem(profiles, cluster, workload)
    verdict = check_plan(plan) if problem is None else check_against(plan, problem)
    if json_output:
        emit_json(_as_json(verdict))
    else:
        _print(verdict)
    raise typer.Exit(_code(verdict))


def _code(verdict: "Verdict") -> int:
    from planner.cli.exit_codes import DONE, INFEASIBLE, REFUSED

    if verdict.fault is None:
        return DONE
    return INFEASIBLE if verdict.fault.code == "memory" else REFUSED


def _as_json(verdict: "Verdict") -> dict[str, object]:
    from dataclasses import asdict

    return {
        "ok": verdict.ok,
        "fault": None if verdict.fault is None else verdict.fault._asdict(),
        "facts": None if verdict.facts is None else asdict(verdict.facts),
        "fit": None if verdict.fit is None else asdict(verdict.fit),
        "warnings": [warning._asdict() for warning in verdict.warnings],
    }


def _print(verdict: "Verdict") -> None:
    from planner.cli.output import show_tables
    from planner.cli.plan_tables import facts_table
    from planner.cli.talk import fault_line, say, warn

    for warning in verdict.warnings:
        warn(warning.code, warning.message)
    found = [("verdict", "legal" if verdict.ok else "refused")]
    found += _facts(verdict.facts) if verdict.facts else []
    found += _fit(verdict.fit) if verdict.fit else []
    show_tables(facts_table("check", found))
    if verdict.fault is not None:
        say(fault_line(verdict.fault))


def _facts(facts: "Facts") -> list[tuple[str, str]]:
    counts = [
        ("ranks", facts.num_ranks),
        ("groups", facts.num_groups),
        ("stages", facts.num_stages),
        ("routes", facts.num_routes),
        ("micro-batches", facts.num_micro_batches),
        ("samples", facts.num_samples),
        ("instructions", facts.num_instructions),
        ("messages", facts.num_messages),
        ("sums", facts.num_sums),
        ("updates", facts.num_updates),
        ("posted receives", facts.most_posted),
    ]
    staleness = "none" if not any(facts.staleness) else f"up to {max(facts.staleness)} updates"
    return [("plan", facts.digest), *((name, str(count)) for name, count in counts), ("staleness", staleness)]


def _fit(fit: "Fit") -> list[tuple[str, str]]:
    from planner.units import bytes_text, time_text

    peaks = [
        (f"peak of group {group}", f"{bytes_text(need)} of {bytes_text(have)}")
        for group, (need, have) in enumerate(zip(fit.peak_bytes, fit.limit_bytes, strict=True))
    ]
    return [("step", f"{time_text(fit.step_ns)}, bubble {fit.bubble:.1%}, costs {fit.costs}"), *peaks]
