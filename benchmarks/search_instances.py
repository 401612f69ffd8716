"""Certified search on the synthetic clusters of tests/data/search_instances: gap, CPU time and memory of each scope.

``python -m benchmarks.search_instances`` prints the tables of benchmarks/search_instances.md. Every scope runs in a
process of its own; its CPU time is that of the whole process, from its start. ``--seed`` is taken and changes nothing:
the engine draws no numbers.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import NamedTuple

from planner.search.chains.elastic import elastic_steps, grid_between
from planner.search.chains.refine import Effort, refine_chains
from tests.helpers.search_instances import read_instance, read_instances
from tests.helpers.search_references import Reference, references

TOLERANCES = (0.001, 0.0)


class Row(NamedTuple):
    """What one process found."""

    step_ns: int
    bound_ns: int
    evaluations: int
    discarded: int
    chains: int
    cpu_s: float
    peak_bytes: int


def run_one(number: int, tolerance: float) -> Row:
    """In this process."""
    reference = references(read_instances())[number]
    *_, found = refine_chains(reference.chains, Effort(tolerance=tolerance))
    assert reference.instance.step_ns(reference.listed(found), reference.routes[found.chain]) == found.step_ns
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s, peak_bytes = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    chains = len(reference.chains)
    discarded = chains - len(found.open_chains)
    return Row(found.step_ns, found.bound_ns, found.evaluations, discarded, chains, cpu_s, peak_bytes)


def in_a_process(number: int, tolerance: float) -> Row:
    command = [sys.executable, "-m", "benchmarks.search_instances", "--one", str(number), "--tolerance", str(tolerance)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Row(*json.loads(done.stdout))


def table(tolerance: float) -> None:
    print(f"\nUntil a gap of {tolerance:.1%}:\n" if tolerance else "\nUntil the optimum is proven, whole ns:\n")
    print(
        "| scope | best known s | found s | found / best known | gap % | evaluations | CPU s | peak MB | equal layers |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for number, reference in enumerate(references(read_instances())):
        row = in_a_process(number, tolerance)
        best_ns = reference.facts["best_known_step_ns"]
        assert row.bound_ns <= best_ns, "a bound above a known plan"
        print(
            f"| {reference.name} | {best_ns / 1e9:.6f} | {row.step_ns / 1e9:.6f} | {row.step_ns / best_ns:.7f} "
            f"| {100 * (row.step_ns - row.bound_ns) / row.bound_ns:.4f} | {row.evaluations} | {row.cpu_s:.2f} "
            f"| {row.peak_bytes / 1e6:.0f} | {_against_equal_layers(reference, row)} |",
            flush=True,
        )


def _against_equal_layers(reference: Reference, row: Row) -> str:
    return f"{reference.equal_layers_ns() / row.step_ns:.2f}x" if "equal_layers" in reference.facts else "-"


def elastic() -> None:
    """Four kinds of 32: tables once, then the loss of any one node; each answer against a fresh search."""
    reference = next(r for r in references([read_instance("four_kinds_32_each")]) if r.num_micro_batches == 512)
    chain = reference.chains[0]
    started = time.process_time()
    values = elastic_steps(chain, grid_between(140_000_000, 260_000_000, 1.001))
    print(f"\nTables: {chain.num_vectors} sub-clusters in {time.process_time() - started:.2f} s of CPU.\n")
    print("| lost node | from tables s | fresh search s | difference % | CPU ms |")
    print("|---|---|---|---|---|")
    for kind, name in enumerate(reference.instance.kinds):
        counts = [count - 8 * (kind == lost) for lost, count in enumerate(chain.problem.counts)]
        started = time.process_time()
        cut = values.cut(counts)
        spent = time.process_time() - started
        assert cut is not None
        step_ns = cut.step_ns(chain.problem.num_micro_batches)
        fresh_ns = _fresh_ns(reference, counts)
        share = 100 * (step_ns / fresh_ns - 1)
        print(f"| {name} | {step_ns / 1e9:.6f} | {fresh_ns / 1e9:.6f} | {share:.4f} | {1000 * spent:.1f} |")


def _fresh_ns(reference: Reference, counts: list[int]) -> int:
    kinds = zip(reference.instance.facts["device_kinds"], counts, strict=True)
    facts = {**reference.instance.facts, "device_kinds": [{**kind, "devices": count} for kind, count in kinds]}
    smaller = Reference(type(reference.instance)(reference.instance.name, facts), reference.facts)
    *_, found = refine_chains(smaller.chains, Effort())
    return found.step_ns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", type=int, help="the number of one scope, in this process")
    parser.add_argument("--tolerance", type=float, default=0.001)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(run_one(arguments.one, arguments.tolerance)))
        return
    for tolerance in TOLERANCES:
        table(tolerance)
    elastic()


if __name__ == "__main__":
    main()
