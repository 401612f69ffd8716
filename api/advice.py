"""Warnings about documents that are legal but look wrong; they stand in the answer and stop nothing."""

from planner.plan.answer import Reason
from planner.problem.cluster import Cluster, Tier
from planner.problem.profile import ModelProfile, Statistics
from planner.units import counted

__all__ = ["cluster_warnings", "profile_warnings", "request_warnings"]

# bytes/s one way: NVLink 5 moves 1.8 TB/s both ways for each device, InfiniBand XDR 800 Gb/s for each port
_FASTEST_BYTES_PER_S: dict[Tier, int] = {"inside_node": 900 * 10**9, "between_nodes": 100 * 10**9}


def request_warnings(profiles: tuple[ModelProfile, ...], cluster: Cluster) -> tuple[Reason, ...]:
    return (*(found for profile in profiles for found in profile_warnings(profile)), *cluster_warnings(cluster))


def profile_warnings(profile: ModelProfile) -> tuple[Reason, ...]:
    """``noisy_profile`` where the spread of a layer's times exceeds their median."""
    noisy = tuple(number for number in range(len(profile.layers)) if _noisy(profile, number))
    if not noisy:
        return ()
    found = f"the times of {counted(len(noisy), 'layer')} spread by more than their median"
    message = f"{found}, or their points are marked noisy"
    return (Reason(code="noisy_profile", message=message, layer=noisy[0], device_kind=profile.device.kind),)


def _noisy(profile: ModelProfile, layer: int) -> bool:
    return any(
        point.status == "noisy" or any(_wide(found) for found in (point.forward, point.backward) if found)
        for point in profile.usable_points(layer)
    )


def _wide(found: Statistics) -> bool:
    return found.p90_ns - found.p10_ns > found.median_ns


def cluster_warnings(cluster: Cluster) -> tuple[Reason, ...]:
    """``implausible_bandwidth`` for each link above twice the fastest known one: Gb/s typed for GB/s?"""
    return tuple(
        Reason(
            code="implausible_bandwidth",
            message=f"link {number} ({link.tier}) has {link.bandwidth_bytes_per_s} bytes/s, more than twice the "
            f"{_FASTEST_BYTES_PER_S[link.tier]} of the fastest known link: bits typed for bytes?",
        )
        for number, link in enumerate(cluster.links)
        if link.bandwidth_bytes_per_s > 2 * _FASTEST_BYTES_PER_S[link.tier]
    )
