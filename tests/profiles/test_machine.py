"""The lock between profilers, and what a rank may use."""

import re
from pathlib import Path

import pytest

from planner.errors import DeviceError
from planner.executor.processor import cpu_kind
from profiles.machine import cpu_memory_bytes, device_lock, usable_cpu_bytes


def test_a_second_profiler_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with device_lock(tmp_path):
        with pytest.raises(DeviceError) as caught, device_lock(tmp_path):
            pytest.fail("two profilers at once")
        assert caught.value.code == "device_busy"
    with device_lock(tmp_path):
        pass


def test_the_lock_is_freed_by_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stop"), device_lock(tmp_path):
        raise ValueError("stop")
    with device_lock(tmp_path):
        pass


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DeviceError) as caught, device_lock(tmp_path / "nothing"):
        pytest.fail("locked in a folder that does not exist")
    assert caught.value.code == "lock_failed"


def test_ranks_share_nine_tenths_of_the_memory() -> None:
    whole = cpu_memory_bytes()
    assert usable_cpu_bytes(2, 1000) == int(whole * 0.9) // 2 - 1000
    with pytest.raises(DeviceError) as caught:
        usable_cpu_bytes(2, whole)
    assert caught.value.code == "no_memory"


def test_the_processor_has_a_name_that_a_provenance_can_hold() -> None:
    assert re.fullmatch(r"cpu-[A-Za-z0-9._-]{1,60}", cpu_kind())
