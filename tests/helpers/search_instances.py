"""The synthetic clusters of tests/data/search_instances as chains, and their formula by plain arithmetic."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.search.chains.chain import Chain
from planner.search.partition import Cut, Integers, PartitionProblem, StageOption

__all__ = ["DIRECTORY", "ListedStage", "Routes", "SearchInstance", "read_instance", "read_instances"]

DIRECTORY = Path(__file__).parent.parent / "data" / "search_instances"


class ListedStage(NamedTuple):
    """A stage as the files write it."""

    first_layer: int
    end_layer: int
    kind: str
    tensor: int
    recompute: str


class Routes(NamedTuple):
    """Equal routes, each with its share of every kind."""

    routes: int = 1
    micro_batch_size: int = 1


@dataclass(frozen=True)
class SearchInstance:
    """One file; ``facts`` is its JSON."""

    name: str
    facts: Mapping[str, Any]

    @cached_property
    def layers(self) -> list[Mapping[str, Any]]:
        """Every layer, rows with a count repeated."""
        return [row for row in self.facts["layers"] for _ in range(row["count"])]

    @property
    def kinds(self) -> list[str]:
        return [kind["kind"] for kind in self.facts["device_kinds"]]

    @property
    def _shares_optimizer(self) -> bool:
        return self.name == "one_kind_1024"

    def num_micro_batches(self, routes: Routes) -> int:
        return int(self.facts["workload"]["global_batch"] // (routes.routes * routes.micro_batch_size))

    def border_ns(self, routes: Routes) -> int:
        link = self.facts["links"]["between_nodes"]
        num_bytes = 2 * self.facts["border_bytes"] * routes.micro_batch_size
        return -(-num_bytes * 10**9 // link["bandwidth_bytes_per_s"]) + 2 * int(link["latency_ns"])

    def stage_ns(self, stage: ListedStage, routes: Routes) -> int:
        factor = 4 if stage.recompute == "full" else 3
        forward = sum(row["forward_ns"][stage.kind][str(stage.tensor)] for row in self._of(stage))
        return int(factor * forward * routes.micro_batch_size + self.border_ns(routes))

    def stage_bytes(self, stage: ListedStage, routes: Routes, *, in_flight: int) -> int:
        size, tensor = routes.micro_batch_size, stage.tensor
        state = sum(self._state_bytes(row, tensor, routes) for row in self._of(stage))
        if stage.recompute == "none":
            return int(state + in_flight * sum(-(-row["saved_bytes"] * size // tensor) for row in self._of(stage)))
        largest = max(row["saved_bytes"] for row in self.layers)
        kept = (stage.end_layer - stage.first_layer) * self.facts["border_bytes"] * size
        return int(state + in_flight * kept - (-size * largest // tensor))

    def usable_bytes(self, kind: str) -> int:
        return next(int(row["usable_bytes"]) for row in self.facts["device_kinds"] if row["kind"] == kind)

    def reduction_ns(self, stage: ListedStage, routes: Routes) -> int:
        if not self._shares_optimizer or routes.routes == 1:
            return 0
        parameters = sum(row["parameters"] for row in self._of(stage))
        work = 2 * (routes.routes - 1) * self.facts["gradient_bytes_per_parameter"] * parameters * 10**9
        speed = routes.routes * stage.tensor * self.facts["links"]["between_nodes"]["bandwidth_bytes_per_s"]
        return int(-(-work // speed))

    def step_ns(self, stages: Sequence[ListedStage], routes: Routes) -> int:
        times = [self.stage_ns(stage, routes) for stage in stages]
        step = (self.num_micro_batches(routes) - 1) * max(times) + sum(times)
        return step + max(self.reduction_ns(stage, routes) for stage in stages)

    def _of(self, stage: ListedStage) -> list[Mapping[str, Any]]:
        return self.layers[stage.first_layer : stage.end_layer]

    def _state_bytes(self, row: Mapping[str, Any], tensor: int, routes: Routes) -> int:
        each = self.facts["state_bytes_per_parameter"]
        if not self._shares_optimizer:
            return int(-(-row["parameters"] * sum(each.values()) // tensor))
        shared = (each["weights"] + each["gradients"]) * routes.routes + each["optimizer"]
        return int(-(-row["parameters"] * shared // (routes.routes * tensor)))

    def counts(self, routes: Routes) -> dict[str, int]:
        """Devices of a route."""
        return {row["kind"]: row["devices"] // routes.routes for row in self.facts["device_kinds"]}

    def choices(self, routes: Routes, tensor_degrees: Sequence[int]) -> list[tuple[str, int, str]]:
        """Kind, tensor degree and recompute of each option of ``chain``."""
        counts, modes = self.counts(routes), self.facts["recompute"]
        sizes = [(kind, tensor) for kind in self.kinds for tensor in tensor_degrees if tensor <= counts[kind]]
        return [(kind, tensor, mode) for kind, tensor in sizes for mode in modes]

    def chain(self, routes: Routes, tensor_degrees: Sequence[int], most_stages: int | None) -> Chain:
        """As the formula says, with prefix sums of whole numbers."""
        counts = tuple(self.counts(routes).values())
        m = self.num_micro_batches(routes)
        most = min(most_stages or len(self.layers), len(self.layers), sum(counts) // min(tensor_degrees))
        problem = PartitionProblem(
            options=tuple(self._option(choice, routes) for choice in self.choices(routes, tensor_degrees)),
            counts=counts,
            num_micro_batches=m,
            in_flight=tuple(min(j, m) for j in range(1, most + 1)),
            usable_bytes=tuple(self.usable_bytes(kind) for kind in self.kinds),
        )
        return Chain(problem)

    def _option(self, choice: tuple[str, int, str], routes: Routes) -> StageOption:
        kind, tensor, mode = choice
        size = routes.micro_batch_size
        factor = 4 if mode == "full" else 3
        times = [factor * row["forward_ns"][kind][str(tensor)] * size for row in self.layers]
        state = [self._state_bytes(row, tensor, routes) for row in self.layers]
        free = self.usable_bytes(kind) - _spans(state)
        kept = _spans([-(-row["saved_bytes"] * size // tensor) for row in self.layers])
        if mode == "full":
            kept = _spans([self.facts["border_bytes"] * size] * len(self.layers))
            free = free + -size * max(row["saved_bytes"] for row in self.layers) // tensor
        parameters = _spans([row["parameters"] for row in self.layers])
        work = 2 * (routes.routes - 1) * self.facts["gradient_bytes_per_parameter"]
        speed = routes.routes * tensor * self.facts["links"]["between_nodes"]["bandwidth_bytes_per_s"]
        sums = np.array([[-(-work * int(p) * 10**9 // speed) for p in row] for row in parameters], np.int64)
        return StageOption(
            kind=self.kinds.index(kind),
            size=tensor,
            time_ns=_spans(times) + self.border_ns(routes),
            most_in_flight=np.where(free >= 0, np.maximum(free, 0) // np.maximum(kept, 1), 0),
            layer_ns=np.array(times, np.int64),
            layer_state_bytes=np.array(state, np.int64),
            reduction_ns=sums if self._shares_optimizer else None,
        )

    def listed(self, cut: Cut, routes: Routes, tensor_degrees: Sequence[int]) -> list[ListedStage]:
        """A cut of ``chain`` in the words of the files."""
        choices = self.choices(routes, tensor_degrees)
        return [ListedStage(pick.first_layer, pick.end_layer, *choices[pick.option]) for pick in cut.stages]


def _spans(values: Sequence[int]) -> Integers:
    """[first, end] -> sum of ``values[first:end]``; 0 where the end is not above the first."""
    before = np.concatenate([[0], np.cumsum(np.array(values, np.int64))])
    return np.asarray(np.maximum(before[None, :] - before[:-1, None], 0))


def read_instance(name: str) -> SearchInstance:
    return SearchInstance(name, json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8")))


def read_instances() -> list[SearchInstance]:
    return [read_instance(path.stem) for path in sorted(DIRECTORY.glob("*.json"))]
