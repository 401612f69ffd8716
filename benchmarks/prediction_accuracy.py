"""How well predicted steps match measured ones: ``python -P benchmarks/prediction_accuracy.py [--runs 5]``.

A Llama-style model of about 10 million parameters on two ranks of this machine: profile both ranks at once, probe the
link; then five times for 1F1B and for GPipe: calibrate by two steps of one start, predict, start again and compare with
the median of 20 steps. Prints a table; ``--markdown`` writes it to prediction_accuracy.md.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from planner.costs.price import price_plan
from planner.plan.graph import LayerGraph, Node
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.problem.canonical import document_bytes
from planner.problem.problem import Problem
from planner.problem.reading import read_document
from planner.problem.workload import Workload
from planner.schedules.build import PlanParts, build_plan
from planner.simulate.run_record import RunRecord, recorded_step, recorded_timeline
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline
from planner.units import time_text
from profiles.calibration import calibrate
from profiles.capture import CaptureOptions, capture
from profiles.links import probe
from profiles.protocol import Grid
from profiles.source import ModelSource

_SEQUENCE, _SAMPLES, _MICRO_BATCHES = 128, 2, 8
_WARM_UP = 3  # steps of a run that are not compared


def model():  # type: ignore[no-untyped-def]  # torch is imported by the processes that need it
    """Called by the profiler and by the ranks."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=512,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--profile-seconds", type=float, default=30)
    parser.add_argument("--statistic", default="median_ns")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--rank", nargs=3, help=argparse.SUPPRESS)  # plan, record, steps: this process is a rank
    chosen = parser.parse_args()
    if chosen.rank:
        return _run_rank(Path(chosen.rank[0]), Path(chosen.rank[1]), int(chosen.rank[2]))
    problem = _measure_problem(chosen)
    rows: list[_Row] = []
    for number in range(chosen.runs):
        for family in ("1f1b", "gpipe"):
            rows.append(_compare(problem, family, number + 1, steps=chosen.steps))
            print(_line(rows[-1]), flush=True)
    text = _report(rows, problem)
    print(text)
    if chosen.markdown:
        Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")
    return 0


class _Row(NamedTuple):
    family: str
    run: int
    load: float  # of the machine when the run ended: processes that wanted a core, over the last minute
    measured_ns: float
    bare_ns: int
    predicted_ns: int
    load_factor: float
    per_instruction_ns: int
    cpu_share: float  # CPU time of the layers as profiled / CPU time of a step as measured, of both ranks

    @property
    def error_share(self) -> float:
        return self.predicted_ns / self.measured_ns - 1


def _compare(problem: Problem, family: str, number: int, *, steps: int) -> _Row:
    """Calibrate by two steps of one start of the plan, then predict the steps of another start."""
    plan = _plan(problem, family)
    profiles = calibrate(problem, plan, _run(plan, 2).steps)
    run, load = _run(plan, steps), os.getloadavg()[0]
    calibrated = replace(problem, profiles=profiles)
    bare_ns, predicted_ns = (simulate(plan, price_plan(plan, one)).step_ns for one in (problem, calibrated))
    return _Row(
        family=family,
        run=number,
        load=load,
        measured_ns=statistics.median(timeline.step_ns for timeline in run.steps),
        bare_ns=bare_ns,
        predicted_ns=predicted_ns,
        load_factor=profiles[0].overheads.load_factor,
        per_instruction_ns=profiles[0].overheads.per_instruction_ns,
        cpu_share=sum(_predicted_cpu_ns(problem, plan)) / sum(run.cpu_ns),
    )


def _predicted_cpu_ns(problem: Problem, plan: Plan) -> list[int]:
    """By group: process CPU time of the layers of a step; it does not depend on what else the machine does."""
    profile = problem.profiles[0]
    shape = (_SAMPLES, _SEQUENCE)
    found = []
    for stage in plan.stages:
        points = [p for n in stage.layers for p in profile.points_of(n)]
        exact = [p for p in points if (p.micro_batch_size, p.sequence_length) == shape]
        operations = [o for p in exact for o in (p.forward, p.backward) if o is not None]
        found.append(_MICRO_BATCHES * sum(o.cpu_median_ns or 0 for o in operations))
    return found


def _measure_problem(chosen: argparse.Namespace) -> Problem:
    profile = capture(
        ModelSource(factory=f"{Path(__file__).resolve()}:model"),
        Grid(micro_batch_sizes=(1, 2, 4), sequence_lengths=(64, 128, 256)),
        CaptureOptions(time_limit_ns=int(chosen.profile_seconds * 1e9), statistic=chosen.statistic),
    )
    workload = Workload(
        schema_version="workload/1",
        global_batch_size=_SAMPLES * _MICRO_BATCHES,
        sequence_length=_SEQUENCE,
        precision="fp32",
        optimizer="adamw",
    )
    return Problem(profiles=(profile,), cluster=probe(), workload=workload)


def _plan(problem: Problem, family: str) -> Plan:
    profile, cluster = problem.profiles[0], problem.cluster
    parts = PlanParts(
        problem=problem.digest,
        precision="fp32",
        graph=LayerGraph(model=profile.model.fingerprint, num_layers=problem.num_layers),
        nodes=(Node(node_group=cluster.node_groups[0].name, device_kind=profile.device.kind, num_ranks=2),),
        groups=((0,), (1,)),
        stages=(
            Stage(group=0, first_layer=0, end_layer=7),
            Stage(group=1, first_layer=7, end_layer=problem.num_layers),
        ),
        routes=((0, 1),),
        micro_batches=(MicroBatch(route=0, samples=_SAMPLES, cuts=(0, _SEQUENCE)),) * _MICRO_BATCHES,
    )
    return build_plan(parts, "1f1b" if family == "1f1b" else "gpipe")


class _Run(NamedTuple):
    """One start of a plan: the steps after the warm-up, and the CPU time that each rank spent in one."""

    steps: list[Timeline]
    cpu_ns: list[float]


def _run(plan: Plan, num_steps: int) -> _Run:
    """Two fresh processes."""
    steps = _WARM_UP + num_steps
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        plan_path, record_path = Path(folder, "plan.json"), Path(folder, "run.json")
        plan_path.write_bytes(document_bytes(plan))
        command = [sys.executable, "-P", __file__, "--rank", str(plan_path), str(record_path), str(steps)]
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen(command, env={**os.environ, **shared, "RANK": str(rank)}) for rank in range(2)]
        statuses = [rank.wait() for rank in ranks]
        if any(statuses):
            raise SystemExit("a rank failed")
        record = read_document(record_path.read_bytes(), RunRecord)
        cpu = [json.loads(Path(f"{record_path}.{rank}").read_bytes()) for rank in range(2)]
    timelines = [found for step in record.steps if (found := recorded_timeline(plan, step)) is not None]
    return _Run(timelines[_WARM_UP:], [statistics.median(one[_WARM_UP:]) for one in cpu])


def _run_rank(plan_path: Path, record_path: Path, num_steps: int) -> int:
    import torch
    import torch.distributed as dist
    from torch.nn import functional

    from planner.executor.executor import Executor

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    plan = Plan.model_validate_json(plan_path.read_bytes())
    executor = Executor(
        plan,
        model(),
        lambda output, labels: functional.cross_entropy(output.flatten(0, 1), labels.flatten(), reduction="sum"),
        lambda labels: labels.numel(),
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
    )
    values = torch.Generator().manual_seed(1)
    steps, cpu_ns = [], []
    for number in range(num_steps):
        batch = torch.randint(0, 2048, (_SAMPLES * _MICRO_BATCHES, _SEQUENCE + 1), generator=values)
        started_ns = time.process_time_ns()
        result = executor.step((batch[:, :-1].contiguous(), batch[:, 1:].contiguous()))
        cpu_ns.append(time.process_time_ns() - started_ns)
        steps.append(recorded_step(plan, number, timeline=result.timeline, loss=result.loss))
    if dist.get_rank() == 0:
        record = RunRecord(schema_version="run/1", plan=plan.digest, num_ranks=2, steps=tuple(steps))
        record_path.write_bytes(document_bytes(record))
    Path(f"{record_path}.{dist.get_rank()}").write_text(json.dumps(cpu_ns), encoding="utf-8")
    executor.close()
    dist.destroy_process_group()
    return 0


def _line(row: _Row) -> str:
    measured, bare, predicted, constant = (
        time_text(round(value)) for value in (row.measured_ns, row.bare_ns, row.predicted_ns, row.per_instruction_ns)
    )
    cells = [row.family, str(row.run), f"{row.load:.1f}", measured]
    cells += [bare, f"{100 * (row.bare_ns / row.measured_ns - 1):+.1f} %"]
    cells += [f"{row.load_factor:.2f}", constant, predicted, f"{100 * row.error_share:+.1f} %"]
    cells.append(f"{100 * (row.cpu_share - 1):+.1f} %")
    return f"| {' | '.join(cells)} |"


def _report(rows: list[_Row], problem: Problem) -> str:
    profile = problem.profiles[0]
    facts = (
        f"`python -P benchmarks/{Path(__file__).name}` on {profile.device.kind}, {os.cpu_count()} cores, torch "
        f"{profile.provenance.torch}; {sum(layer.num_params for layer in profile.layers):,} parameters, "
        f"{_MICRO_BATCHES} micro-batches of {_SAMPLES} x {_SEQUENCE} tokens, 2 ranks with one thread each. "
        "Load = processes that wanted a core in the last minute. Error = predicted / measured - 1; measured = median "
        "of a run's steps; CPU time = error of the layers' CPU time against that of the steps, which no other program "
        "disturbs much."
    )
    names = "schedule, run, load, measured, uncalibrated, error, factor, an instruction, calibrated, error, CPU time"
    header = f"| {names.replace(', ', ' | ')} |"
    lines = ["# Predicted against measured", "", facts, "", header, "|---" * 11 + "|", *map(_line, rows), ""]
    for family in dict.fromkeys(row.family for row in rows):
        errors = [abs(row.error_share) for row in rows if row.family == family]
        lines.append(
            f"{family}: median error {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %.  "
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
