"""A plan as tables: what it says, group by group and stage by stage, and how its hosts are started."""

import shlex
from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from planner.plan.plan import Plan, Stage
from planner.units import bytes_text, counted, time_text

__all__ = ["facts_table", "group_table", "new_table", "plan_summary", "stage_table", "torchrun_lines"]

_MASTER_PORT = 29500


def new_table(title: str, columns: Sequence[str]) -> Table:
    """An empty table; a column whose name begins with ``#`` is a number, aligned to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name.removeprefix("#"), justify="right" if name.startswith("#") else "left", overflow="fold")
    return table


def facts_table(title: str, facts: Sequence[tuple[str, str]]) -> Table:
    """Two columns, name and value, without a heading."""
    table = new_table(title, ["", ""])
    table.show_header = False
    for name, value in facts:
        table.add_row(name, value)
    return table


def plan_summary(plan: Plan) -> list[tuple[str, str]]:
    """What a person wants to know first."""
    batches = Counter((batch.samples, batch.cuts[-1], batch.num_slices) for batch in plan.micro_batches)
    micro_batches = ", ".join(
        f"{count} of {samples} x {tokens} tokens" + (f" in {slices} slices" if slices > 1 else "")
        for (samples, tokens, slices), count in batches.items()
    )
    facts = [
        ("plan", plan.digest),
        ("problem", plan.problem),
        ("precision", plan.precision),
        ("ranks", f"{plan.num_ranks} on {counted(len(plan.nodes), 'node')}"),
        ("layers", f"{plan.graph.num_layers} in {counted(len(plan.stages), 'stage')}"),
        ("groups", f"{len(plan.groups)}" + (", one stream each" if len(plan.groups) > 1 else ", one stream")),
        ("routes", ", ".join("-".join(map(str, route)) for route in plan.routes)),
        ("micro-batches", micro_batches),
    ]
    return facts + _prediction_facts(plan) + _provenance_facts(plan)


def _prediction_facts(plan: Plan) -> list[tuple[str, str]]:
    found = plan.prediction
    if found is None:
        return []
    return [
        ("predicted step", f"{time_text(found.step_ns)}, bubble {found.bubble:.1%}, costs {found.costs}"),
        ("proven bound", f"{time_text(found.bound_ns)} ({found.bound_model}), gap {found.gap:.1%}"),
    ]


def _provenance_facts(plan: Plan) -> list[tuple[str, str]]:
    found = plan.provenance
    if found is None:
        return []
    family = found.family if found.method is None else f"{found.family} ({found.method})"
    text = f"{family}, {found.solver}, seed {found.seed}, {found.limit}, {time_text(found.search_ns)}"
    return [("found by", f"planner {found.planner}: {text}")]


def stage_table(plan: Plan) -> Table:
    """One row a stage."""
    table = new_table("stages", ["#stage", "#group", "layers", "#number", "mesh", "recompute"])
    for number, stage in enumerate(plan.stages):
        layers = f"{stage.first_layer}..{stage.end_layer - 1}"
        row = (str(number), str(stage.group), layers, str(len(stage.layers)), _mesh_text(stage), _recompute_text(stage))
        table.add_row(*row)
    return table


def _mesh_text(stage: Stage) -> str:
    degrees = [(name, getattr(stage.mesh, name)) for name in ("data", "context", "tensor", "experts", "shards")]
    return " x ".join(f"{name} {degree}" for name, degree in degrees if degree > 1) or "one rank"


def _recompute_text(stage: Stage) -> str:
    return (
        ", ".join(f"{kind} {counted(len(layers), 'layer')}" for kind, layers in stage.recompute.items() if layers)
        or "none"
    )


def group_table(plan: Plan) -> Table:
    """One row a group, with the predicted peak of its fullest rank where the plan has a prediction."""
    table = new_table("groups", ["#group", "ranks", "device kind", "stages", "#instructions", "#peak", "#limit"])
    for group, ranks in enumerate(plan.groups):
        stages = ", ".join(map(str, plan.stages_of_group(group)))
        peak = limit = "-"
        if plan.prediction is not None:
            peak = bytes_text(plan.prediction.peak_bytes[group])
            limit = bytes_text(plan.prediction.memory_limit_bytes[group])
        count = str(len(plan.instructions[group]))
        table.add_row(str(group), ", ".join(map(str, ranks)), plan.group_kind(group), stages, count, peak, limit)
    return table


def torchrun_lines(plan: Plan, plan_file: str) -> list[str]:
    """The command of each host; ranks are numbered node by node, so the rendezvous is static."""
    tail = f"--no-python planner run --plan {shlex.quote(plan_file)} SCRIPT"
    if len(plan.nodes) == 1:
        return [f"torchrun --standalone --nproc-per-node={plan.num_ranks} {tail}"]
    return [
        f"torchrun --nnodes={len(plan.nodes)} --node-rank={number} --nproc-per-node={node.num_ranks} "
        f"--master-addr=HOST0 --master-port={_MASTER_PORT} {tail}"
        for number, node in enumerate(plan.nodes)
    ]
