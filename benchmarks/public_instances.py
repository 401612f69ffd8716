"""The public instances: optimum or best known, what we reach, gap, CPU time beside the authors'.

``python -m benchmarks.public_instances`` prints the tables of benchmarks/public_instances.md; ``--write`` writes them
there too. CPU time is of one process on one core, problem in memory, least of three runs (one where CP-SAT is used).
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from planner.search.graphs.anywhere import AnywhereEffort, anywhere_answers
from planner.search.graphs.contiguous import contiguous_answers
from planner.search.graphs.in_flight import pipeline_answers
from planner.search.graphs.kernels import compiled_kernels, plain_kernels
from planner.search.graphs.plan import GraphAnswer
from planner.search.graphs.replicas import replica_answers
from tests.helpers.public_instances import CASES, Case, max_load, pipeline, replicas

PAGE = Path(__file__).with_suffix(".md")
RUNS = 3


class Row(NamedTuple):
    """``seconds``: of CPU."""

    value_ns: int
    bound_ns: int
    limit: str
    seconds: float


def ms(value_ns: int | None) -> str:
    return "-" if value_ns is None else f"{value_ns / 1e6:.6f}"


def timed(run: Callable[[], GraphAnswer], runs: int = RUNS) -> Row:
    """The answer and the least time of several runs."""
    spent = []
    for _ in range(runs):
        before = time.process_time()
        answer = run()
        spent.append(time.process_time() - before)
    assert answer.plan is not None
    return Row(answer.plan.value_ns, answer.bound_ns, answer.limit or "", min(spent))


def contiguous_row(case: Case) -> Row:
    kind, *_ = case.name.split("/")
    if kind == "dnn":
        problem = max_load(case.name)
        return timed(lambda: list(contiguous_answers(problem))[-1])
    spent = []
    for _ in range(RUNS):
        if kind == "piper":
            found = pipeline()
            before = time.process_time()
            value_ns, bound_ns, limit = list(pipeline_answers(found))[-1][1:]
        else:
            model, _, _, cuts = case.name.removeprefix("pipedream/").split("-")
            copied = replicas(model, "priced" if cuts == "priced" else "free")
            before = time.process_time()
            value_ns, bound_ns, limit = list(replica_answers(copied))[-1][1:]
        spent.append(time.process_time() - before)
    assert value_ns is not None
    return Row(value_ns, bound_ns, limit or "", min(spent))


def contiguous_table() -> list[str]:
    lines = ["| instance | optimum, ms | ours, ms | difference | bound, ms | limit | CPU, s | authors' CPU, s |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for case in CASES.values():
        row = contiguous_row(case)
        known = ms(case.contiguous_ns) + ("" if case.contiguous_is_proven else " (best known)")
        difference = f"{row.value_ns / case.contiguous_ns - 1:+.1e}"
        values = f"{known} | {ms(row.value_ns)} | {difference} | {ms(row.bound_ns)} | {row.limit}"
        lines.append(f"| {case.name} | {values} | {row.seconds:.3f} | {case.authors_cpu_s} |")
        print(lines[-1], flush=True)
    return lines


def anywhere_table() -> list[str]:
    """Local search in plain loops and compiled, then CP-SAT with the whole effort."""
    compiled_kernels()
    lines = ["| instance | best known, ms | ours, ms | difference | bound known, ms | our bound, ms | gap | limit |"]
    lines[0] += " local search, plain, CPU s | compiled | all with CP-SAT |"
    lines.append("|---|---|---|---|---|---|---|---|---|---|---|")
    for case in CASES.values():
        if case.any_best_known_ns is None:
            continue
        problem, local = max_load(case.name), AnywhereEffort(deterministic=0)
        plain, compiled = (
            timed(lambda: list(anywhere_answers(problem, effort=local, kernels=kernels))[-1])  # noqa: B023
            for kernels in (plain_kernels(), compiled_kernels())
        )
        assert plain.value_ns == compiled.value_ns
        row = timed(lambda: list(anywhere_answers(problem))[-1], runs=1)  # noqa: B023
        difference = f"{row.value_ns / case.any_best_known_ns - 1:+.1e}"
        known = f"{ms(case.any_best_known_ns)} | {ms(row.value_ns)} | {difference} | {ms(case.any_bound_ns)}"
        gap = f"{(row.value_ns - row.bound_ns) / row.bound_ns:.2%}"
        seconds = f"{plain.seconds:.2f} | {compiled.seconds:.2f} | {row.seconds:.1f}"
        lines.append(f"| {case.name} | {known} | {ms(row.bound_ns)} | {gap} | {row.limit} | {seconds} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    ordered, free = contiguous_table(), anywhere_table()
    page = [
        "# Public instances of graph partition",
        "",
        "`python -m benchmarks.public_instances --write`. Times are CPU seconds of one process on one shared core",
        "(AMD EPYC), problem in memory, numpy 2.4, Python 3.11; contiguous: numpy alone, least of three runs. Authors'",
        "times: their own programs on such a core. Data and licences: tests/data/public_instances. Objectives:",
        "docs/search.md.",
        "",
        "## Contiguous: nested down-sets of the forward graph",
        "",
        *ordered,
        "",
        "## Any parts",
        "",
        "Local search of 8 rounds x 100,000 tries, then CP-SAT with one worker, deterministic limit 20.",
        "",
        *free,
    ]
    if "--write" in sys.argv:
        PAGE.write_text("\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
