"""Known traps of device catalogues, one test each."""

import pytest

from planner.errors import DeviceError
from profiles.catalogue import catalogue, peak_flops_per_s


def test_every_row_is_read() -> None:
    devices = catalogue()
    assert len(devices) == 24
    for device in devices.values():
        assert device.memory_bytes >= 10**10
        assert set(device.marks.values()) <= {"seen", "derived", "recalled"}


def test_flops_are_dense_wherever_two_precisions_are_known() -> None:
    # each halving of the width doubles the dense rate; a sparse figure would make the ratio 4 or 1
    for device in catalogue().values():
        if device.fp8_dense_flops_per_s and device.bf16_dense_flops_per_s:
            assert device.fp8_dense_flops_per_s / device.bf16_dense_flops_per_s == pytest.approx(2, rel=0.02)
        if device.bf16_dense_flops_per_s and device.tf32_dense_flops_per_s:
            assert device.bf16_dense_flops_per_s / device.tf32_dense_flops_per_s == pytest.approx(2, rel=0.02)


def test_geforce_has_half_the_rate_with_wide_accumulation() -> None:
    assert catalogue()["RTX-4090-24GB"].fp16_dense_flops_per_s == 165 * 10**12


def test_a10_is_not_a10g() -> None:
    a10, a10g = catalogue()["A10-24GB"], catalogue()["A10G-24GB"]
    assert a10.bf16_dense_flops_per_s != a10g.bf16_dense_flops_per_s
    assert a10.price_usd_per_hour != a10g.price_usd_per_hour


def test_links_count_one_way() -> None:
    expected = {"H100-SXM-80GB": 450, "A100-SXM-80GB": 300, "B200-SXM-180GB": 900}
    found = {kind: (catalogue()[kind].link_total_bytes_per_s or 0) // 10**9 for kind in expected}
    assert found == expected


def test_one_peer_is_not_all_peers() -> None:
    device = catalogue()["MI300X-192GB"]
    assert (device.link_one_peer_bytes_per_s, device.link_total_bytes_per_s) == (64 * 10**9, 448 * 10**9)


def test_l4_has_its_own_figures_and_not_those_of_torch() -> None:
    device = catalogue()["L4-24GB"]
    assert device.bf16_dense_flops_per_s == 121 * 10**12
    assert device.memory_bandwidth_bytes_per_s == 300 * 10**9


@pytest.mark.parametrize("kind", ["V100-SXM-16GB", "V100-SXM-32GB", "T4-16GB"])
def test_old_devices_have_no_bf16(kind: str) -> None:
    assert catalogue()[kind].bf16_dense_flops_per_s is None
    with pytest.raises(DeviceError, match=kind) as caught:
        peak_flops_per_s(kind, "bf16")
    assert caught.value.code == "no_precision"


def test_the_peak_ranks_devices_wrongly() -> None:
    # recomputed: 1300 / 312 = 4.17 at peak, 0.514 x 1300 / (0.869 x 312) = 2.46 achieved
    fast, slow = catalogue()["MI300X-192GB"], catalogue()["A100-SXM-80GB"]
    assert peak_flops_per_s(fast.kind, "bf16") / peak_flops_per_s(slow.kind, "bf16") == pytest.approx(4.17, abs=0.005)
    assert fast.achievable_bf16_flops_per_s is not None
    assert slow.achievable_bf16_flops_per_s is not None
    ratio = fast.achievable_bf16_flops_per_s / slow.achievable_bf16_flops_per_s
    assert ratio == pytest.approx(2.46, abs=0.005)


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(DeviceError) as caught:
        peak_flops_per_s("A100", "fp16")
    assert caught.value.code == "no_device"
