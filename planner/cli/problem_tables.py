"""Profiles and clusters as tables."""

from rich.table import Table

from planner.cli.plan_tables import facts_table, new_table
from planner.problem.cluster import Cluster, Link
from planner.problem.profile import ModelProfile, Point, Statistic, Statistics
from planner.units import bytes_text, counted, time_text

__all__ = ["cluster_tables", "profile_tables"]

_SHOWN_BYTES = 1_000_000  # the message of which a link's row gives the time


def profile_tables(profile: ModelProfile) -> list[Table | str]:
    """Facts, then a row for each different layer: how many there are and what the largest measured shape costs.

    I and W: input and weight gradient where the backward is split.
    """
    model, device, made = profile.model, profile.device, profile.provenance
    shapes = sorted({(p.micro_batch_size, p.sequence_length) for m in profile.measurements for p in m.points})
    facts = [
        ("profile", profile.digest),
        ("model", f"{model.source}, {model.precision}, fingerprint {model.fingerprint[:12]}"),
        ("parameters", f"{sum(layer.num_params for layer in profile.layers):,}"),
        ("device", f"{device.kind}, {bytes_text(device.usable_bytes)} usable of {bytes_text(device.total_bytes)}"),
        ("measured", f"{made.created_utc} on {counted(made.num_ranks, 'rank')} at once, {made.backend}"),
        ("shapes", ", ".join(f"{size}x{length}" for size, length in shapes)),
        ("times", profile.statistic.removesuffix("_ns")),
        ("instruction", f"{time_text(profile.overheads.per_instruction_ns)} overhead"),
        ("load", f"layers take {profile.overheads.load_factor:.3g} times as long as measured alone"),
        ("calibration", counted(len(profile.calibration), "run")),
    ]
    if made.scaled_from:
        facts.append(("scaled from", made.scaled_from))
    return [facts_table("profile", facts), "", _layer_table(profile)]


def _layer_table(profile: ModelProfile) -> Table:
    title = "layers, at the largest measured shape"
    columns = [
        "layer",
        "kind",
        "#equal",
        "#parameters",
        "shape",
        "#forward",
        "#backward",
        "#I",
        "#W",
        "#saved",
        "costs",
    ]
    table = new_table(title, columns)
    fingerprints = [layer.fingerprint for layer in profile.layers]
    for number, layer in enumerate(profile.layers):
        if fingerprints.index(layer.fingerprint) == number:
            equal = str(fingerprints.count(layer.fingerprint))
            table.add_row(layer.id, layer.kind, equal, f"{layer.num_params:,}", *_point_cells(profile, number))
    return table


def _point_cells(profile: ModelProfile, layer: int) -> tuple[str, ...]:
    points = list(profile.usable_points(layer))
    if not points:
        return ("-", "-", "-", "-", "-", "-", "nothing fits")
    point = max(points, key=_tokens)
    measured = (point.forward, point.backward, point.backward_input, point.backward_weight)
    times = [_time(found, profile.statistic) for found in measured]
    saved = "-" if point.saved_bytes is None else bytes_text(point.saved_bytes)
    return (f"{point.micro_batch_size}x{point.sequence_length}", *times, saved, point.provenance)


def _tokens(point: Point) -> int:
    return point.micro_batch_size * point.sequence_length


def _time(found: Statistics | None, statistic: Statistic) -> str:
    return "-" if found is None else time_text(int(getattr(found, statistic)))


def cluster_tables(cluster: Cluster) -> list[Table | str]:
    """Node groups and links."""
    groups = new_table("node groups", ["name", "device kind", "#nodes", "#ranks a node", "#usable a rank"])
    for group in cluster.node_groups:
        counts = (str(group.num_nodes), str(group.ranks_per_node), bytes_text(group.usable_bytes))
        groups.add_row(group.name, group.device_kind, *counts)
    links = new_table("links", ["from", "to", "tier", "#latency", "#bandwidth", "#1 MB takes", "#measured sizes"])
    for link in cluster.links:
        bandwidth = f"{bytes_text(link.bandwidth_bytes_per_s)}/s"
        cells = (time_text(link.latency_ns), bandwidth, _megabyte(link), str(len(link.table)))
        links.add_row(link.source, link.target, link.tier, *cells)
    facts = facts_table("cluster", [("cluster", cluster.digest), ("ranks", str(cluster.num_ranks))])
    return [facts, "", groups, "", links]


def _megabyte(link: Link) -> str:
    if not link.usable:
        return "absent"
    return time_text(link.latency_ns + _SHOWN_BYTES * 10**9 // link.bandwidth_bytes_per_s)
