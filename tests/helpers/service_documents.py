"""Small legal documents for tests of the service, and the simplest legal plan of a problem.

The model has three layers, 1 ms forward and 2 ms backward each; figures are made up and only have to be legal.
"""

from typing import Any

from planner import __version__
from planner.plan.plan import Plan
from planner.problem.problem import Problem

__all__ = ["cluster", "mixed_cluster", "plan_for", "profile", "request", "simple_plan", "workload"]

Json = dict[str, Any]
_BLOCK, _HEAD, _MODEL = "b" * 64, "a" * 64, "c" * 64


def _statistics(time_ns: int) -> Json:
    names = ("min_ns", "p10_ns", "p25_ns", "median_ns", "mean_ns", "p90_ns")
    return {"num_samples": 10, "cpu_median_ns": time_ns, **dict.fromkeys(names, time_ns)}


def _point(micro_batch_size: int, *, time_ns: int) -> Json:
    return {
        "micro_batch_size": micro_batch_size,
        "sequence_length": 64,
        "status": "ok",
        "provenance": "measured",
        "forward": _statistics(micro_batch_size * time_ns),
        "backward": _statistics(2 * micro_batch_size * time_ns),
        "saved_bytes": micro_batch_size * 10_000,
        "input_bytes": micro_batch_size * 4_000,
        "output_bytes": micro_batch_size * 4_000,
        "peak_forward_bytes": micro_batch_size * 12_000,
        "peak_backward_bytes": micro_batch_size * 12_000,
    }


def _layer(name: str, fingerprint: str) -> Json:
    return {
        "id": name,
        "kind": "block",
        "fingerprint": fingerprint,
        "param_bytes": 40_000,
        "num_params": 10_000,
        "num_trained_params": 10_000,
        "buffer_bytes": 0,
        "causal": True,
        "splittable": False,
        "forward_flops_per_token": 20_000,
    }


def profile(kind: str = "cpu-small", *, time_ns: int = 1_000_000) -> Json:
    """A profile of a model of three layers at 1, 2 and 4 samples."""
    sizes = (1, 2, 4)
    return {
        "schema": "profile/1",
        "provenance": {
            "tool": "planner 0.1.0",
            "created_utc": "2026-01-01T00:00:00Z",
            "command": "planner profile run",
            "torch": "2.13.0",
            "python": "3.11",
            "backend": "cpu",
            "threads": 1,
            "num_ranks": 1,
        },
        "device": {"kind": kind, "total_bytes": 8 * 10**9, "usable_bytes": 7 * 10**9, "peak_flops_per_s": 10**10},
        "model": {"fingerprint": _MODEL, "source": "tests:three_layers", "precision": "fp32", "cut": None},
        "layers": [_layer("layers.0", _BLOCK), _layer("layers.1", _BLOCK), _layer("head", _HEAD)],
        "measurements": [
            {"fingerprint": fingerprint, "points": [_point(size, time_ns=time_ns) for size in sizes]}
            for fingerprint in (_BLOCK, _HEAD)
        ],
        "statistic": "median_ns",
        "overheads": {"per_instruction_ns": 10_000, "update_ns_per_million_params": 1_000_000},
    }


def _link(source: str, target: str, tier: str) -> Json:
    return {
        "source": source,
        "target": target,
        "tier": tier,
        "latency_ns": 10_000,
        "bandwidth_bytes_per_s": 10**9,
        "table": [{"message_bytes": size, "transfer_ns": 10_000 + size} for size in (1_000, 100_000, 10_000_000)],
    }


def _node_group(name: str, kind: str, *, num_ranks: int) -> Json:
    return {
        "name": name,
        "device_kind": kind,
        "num_nodes": 1,
        "ranks_per_node": num_ranks,
        "usable_bytes": 7 * 10**9,
    }


def cluster(num_ranks: int = 2, *, kind: str = "cpu-small") -> Json:
    """One node."""
    links = [_link("pool", "pool", "inside_node")] if num_ranks > 1 else []
    return {"schema": "cluster/1", "node_groups": [_node_group("pool", kind, num_ranks=num_ranks)], "links": links}


def mixed_cluster(fast: str, slow: str) -> Json:
    """Two nodes of one rank each, of two device kinds."""
    groups = [_node_group("fast", fast, num_ranks=1), _node_group("slow", slow, num_ranks=1)]
    return {"schema": "cluster/1", "node_groups": groups, "links": [_link("fast", "slow", "between_nodes")]}


def workload(global_batch_size: int = 8) -> Json:
    return {
        "schema": "workload/1",
        "global_batch_size": global_batch_size,
        "sequence_length": 64,
        "precision": "fp32",
        "optimizer": "adamw",
    }


def request(**changes: object) -> Json:
    """A plan request with its documents inline; ``changes`` replace top-level members."""
    found: Json = {
        "schema": "request/1",
        "profiles": [profile()],
        "cluster": cluster(),
        "workload": workload(),
        "time_limit_ns": 10**9,
    }
    return {**found, **changes}


def plan_for(problem: Problem) -> Json:
    """Data parallel over all ranks, one micro-batch of everything: legal wherever the ranks are of one kind."""
    num_ranks = problem.cluster.num_ranks
    group = problem.cluster.node_groups[0]
    plan = {
        "schema": "plan/1",
        "problem": problem.digest,
        "precision": problem.workload.precision,
        "graph": {"model": problem.profiles[0].model.fingerprint, "num_layers": problem.num_layers},
        "nodes": [
            {"node_group": group.name, "device_kind": group.device_kind, "num_ranks": group.ranks_per_node}
            for _ in range(group.num_nodes)
        ],
        "groups": [list(range(num_ranks))],
        "stages": [{"group": 0, "first_layer": 0, "end_layer": problem.num_layers, "mesh": {"data": num_ranks}}],
        "routes": [[0]],
        "micro_batches": [
            {"route": 0, "samples": problem.workload.global_batch_size, "cuts": [0, problem.workload.sequence_length]}
        ],
        "streams": ["0F0 0B0 0G0 0U0"],
    }
    plan["prediction"] = {
        "step_ns": 30_000_000,
        "bound_ns": 24_000_000,
        "bound_model": "any_schedule",
        "bubble": 0.125,
        "peak_bytes": [1_000_000],
        "memory_limit_bytes": [group.usable_bytes],
        "costs": "measured",
    }
    plan["provenance"] = {
        "planner": __version__,
        "family": "gpipe",
        "solver": "stand-in",
        "seed": 0,
        "limit": "optimal",
        "search_ns": 1,
        "profiles": sorted(found.digest for found in problem.profiles),
    }
    return plan


def simple_plan(problem: Problem) -> Plan:
    """``plan_for`` as a checked plan."""
    return Plan.model_validate(_tuples(plan_for(problem)))


def _tuples(value: Any) -> Any:
    """JSON arrays as the tuples that the strict contract wants."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
