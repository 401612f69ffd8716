"""Executor and profiler call a device by the same name."""

import torch

from planner.executor.devices import device_kind
from profiles.machine import cpu_kind


def test_the_processor_has_the_name_that_profiles_state() -> None:
    assert device_kind(torch.device("cpu")) == cpu_kind()
