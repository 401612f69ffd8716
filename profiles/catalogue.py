"""Facts about device kinds that were not measured: ``profiles/data/devices.csv``, read and checked.

The last fallback of the cost model; anything measured wins. Every figure has a source and a mark, all flops are dense,
an empty cell means not known. ``profiles/data/README.md`` names the sources.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Literal

from planner.errors import DeviceError
from planner.problem.workload import Precision

__all__ = ["CatalogueDevice", "catalogue", "peak_flops_per_s"]

_Mark = Literal["seen", "derived", "recalled"]
_MARKS: dict[str, _Mark] = {"seen": "seen", "derived": "derived", "recalled": "recalled"}


@dataclass(frozen=True)
class CatalogueDevice:
    """One row; None where a figure is not known."""

    kind: str
    memory_bytes: int
    fp16_dense_flops_per_s: int | None
    bf16_dense_flops_per_s: int | None
    tf32_dense_flops_per_s: int | None
    fp8_dense_flops_per_s: int | None
    memory_bandwidth_bytes_per_s: int | None
    link_class: str
    link_total_bytes_per_s: int | None  # one way, all peers at once
    link_one_peer_bytes_per_s: int | None
    price_usd_per_hour: float | None
    bf16_matmul_max_efficiency: float | None
    fp8_matmul_max_efficiency: float | None
    marks: Mapping[str, _Mark]  # by column group: recalled must be verified
    note: str

    @property
    def achievable_bf16_flops_per_s(self) -> float | None:
        """The best matrix product that others measured; the peak ranks devices wrongly."""
        if self.bf16_dense_flops_per_s is None or self.bf16_matmul_max_efficiency is None:
            return None
        return self.bf16_dense_flops_per_s * self.bf16_matmul_max_efficiency


@cache
def catalogue() -> Mapping[str, CatalogueDevice]:
    """All rows by device kind."""
    text = resources.files("profiles").joinpath("data/devices.csv").read_text(encoding="utf-8")
    devices = [_device(row) for row in csv.DictReader(text.splitlines())]
    found = {device.kind: device for device in devices}
    assert len(found) == len(devices), "a device kind stands twice"
    return MappingProxyType(found)


def peak_flops_per_s(kind: str, precision: Precision) -> int:
    """The dense peak of a kind. Raises ``DeviceError`` for an unknown kind or a precision that it cannot do."""
    device = catalogue().get(kind)
    if device is None:
        raise DeviceError(f"found the device kind {kind!r}, expected one of {', '.join(catalogue())}", code="no_device")
    if precision == "fp32":
        peak = device.tf32_dense_flops_per_s
    else:
        peak = device.fp16_dense_flops_per_s if precision == "fp16" else device.bf16_dense_flops_per_s
    if peak is None:
        raise DeviceError(f"device kind {kind!r} has no {precision} peak in the catalogue", code="no_precision")
    return peak


def _device(row: dict[str, str]) -> CatalogueDevice:
    marks = {name.removesuffix("_mark"): value for name, value in row.items() if name.endswith("_mark") and value}
    return CatalogueDevice(
        kind=row["kind"],
        memory_bytes=int(row["memory_bytes"]),
        fp16_dense_flops_per_s=_whole(row["fp16_dense_flops_per_s"]),
        bf16_dense_flops_per_s=_whole(row["bf16_dense_flops_per_s"]),
        tf32_dense_flops_per_s=_whole(row["tf32_dense_flops_per_s"]),
        fp8_dense_flops_per_s=_whole(row["fp8_dense_flops_per_s"]),
        memory_bandwidth_bytes_per_s=_whole(row["memory_bandwidth_bytes_per_s"]),
        link_class=row["link_class"],
        link_total_bytes_per_s=_whole(row["link_total_bytes_per_s"]),
        link_one_peer_bytes_per_s=_whole(row["link_one_peer_bytes_per_s"]),
        price_usd_per_hour=_number(row["price_usd_per_hour"]),
        bf16_matmul_max_efficiency=_number(row["bf16_matmul_max_efficiency"]),
        fp8_matmul_max_efficiency=_number(row["fp8_matmul_max_efficiency"]),
        marks=MappingProxyType({name: _mark(value) for name, value in marks.items()}),
        note=row["note"],
    )


def _mark(value: str) -> _Mark:
    return _MARKS[value]


def _whole(text: str) -> int | None:
    return int(text) if text else None


def _number(text: str) -> float | None:
    return float(text) if text else None
