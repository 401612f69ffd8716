"""Links between real ranks."""

from pathlib import Path

import pytest

from planner.errors import DeviceError
from planner.problem.cluster import Cluster
from profiles.link_protocol import Exchange, Exchanges
from profiles.links import ProbeOptions, cluster_of, probe
from profiles.machine import device_lock


def answers(*times_ns: tuple[int, ...]) -> list[Exchanges]:
    """Rank 0 measured sizes 1,000, 2,000, ... ; rank 1 only answered."""
    first = Exchanges(
        device_kind="cpu-a",
        usable_bytes=500,
        exchanges=tuple(
            Exchange(partner=1, message_bytes=1000 * (place + 1), transfers_ns=times)
            for place, times in enumerate(times_ns)
        ),
    )
    return [first, Exchanges(device_kind="cpu-a", usable_bytes=400, exchanges=())]


def test_a_table_holds_the_medians_made_rising() -> None:
    # medians 30, 20 and 130: a larger message never takes less time, so 20 becomes 30
    cluster = cluster_of(ProbeOptions(message_sizes=(1000, 2000, 3000)), answers((10, 30, 90), (20,), (120, 140)))
    (link,) = cluster.links
    assert [(point.message_bytes, point.transfer_ns) for point in link.table] == [(1000, 30), (2000, 30), (3000, 130)]
    assert link.latency_ns == 30
    assert link.bandwidth_bytes_per_s == 2000 * 10**9 // 100  # 2,000 bytes more take 100 ns more
    assert cluster.node_groups[0].usable_bytes == 400  # of the poorer rank
    assert (cluster.num_ranks, cluster.device_kinds) == (2, ("cpu-a",))


def test_a_size_that_no_pair_exchanged_is_an_error() -> None:
    with pytest.raises(DeviceError) as caught:
        cluster_of(ProbeOptions(message_sizes=(1000, 2000)), answers((10,)))
    assert caught.value.code == "probe_failed"


def test_one_rank_has_no_link() -> None:
    cluster = cluster_of(ProbeOptions(num_ranks=1), answers()[1:])
    assert cluster.links == ()


@pytest.mark.timeout(300)
def test_three_ranks_of_this_machine_are_probed(tmp_path: Path) -> None:
    options = ProbeOptions(
        num_ranks=3, message_sizes=(1024, 65536), warm_up=1, repeats=3, usable_bytes=10**9, lock_folder=tmp_path
    )
    cluster = probe(options)
    (link,) = cluster.links
    assert [point.message_bytes for point in link.table] == [1024, 65536]
    assert 0 < link.table[0].transfer_ns <= link.table[1].transfer_ns
    assert (link.source, link.tier, cluster.num_ranks) == ("local", "inside_node", 3)
    assert cluster.node_groups[0].usable_bytes == 10**9
    assert Cluster.model_validate_json(cluster.model_dump_json()).digest == cluster.digest


def test_a_busy_device_is_not_probed(tmp_path: Path) -> None:
    with device_lock(tmp_path), pytest.raises(DeviceError) as caught:
        probe(ProbeOptions(lock_folder=tmp_path))
    assert caught.value.code == "device_busy"
