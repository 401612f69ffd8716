"""The reference results of the synthetic clusters: the chains of a scope, and the comparison with equal layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations
from typing import Any

from planner.search.chains.chain import Chain
from planner.search.chains.refine import Certificate
from tests.helpers.search_instances import ListedStage, Routes, SearchInstance

__all__ = ["Reference", "references"]


@dataclass(frozen=True)
class Reference:
    """One scope of one file; ``facts`` is its row."""

    instance: SearchInstance
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        degrees = "-".join(str(degree) for degree in self.tensor_degrees)
        return f"{self.instance.name}, tensor {degrees}, stages {self.most_stages or 'all'}, m {self.num_micro_batches}"

    @property
    def scope(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.facts["scope"]
        return found

    @property
    def tensor_degrees(self) -> list[int]:
        return list(self.scope["tensor_degrees"])

    @property
    def most_stages(self) -> int | None:
        return self.scope.get("max_stages")

    @property
    def num_micro_batches(self) -> int:
        return self.instance.num_micro_batches(self.best_routes)

    @property
    def best_routes(self) -> Routes:
        return Routes(self.facts.get("routes", 1), self.facts.get("micro_batch_size", 1))

    @cached_property
    def routes(self) -> list[Routes]:
        """All that the scope allows."""
        if isinstance(self.scope["routes"], int):
            return [self.best_routes]
        batch = self.instance.facts["workload"]["global_batch"]
        fewest = min(kind["devices"] for kind in self.instance.facts["device_kinds"])
        counts = [2**n for n in range(batch.bit_length()) if 2**n * min(self.tensor_degrees) <= fewest]
        sizes = self.scope.get("micro_batch_sizes", [1])
        return [Routes(count, size) for count in counts for size in sizes if batch % (count * size) == 0]

    @cached_property
    def chains(self) -> list[Chain]:
        return [self.instance.chain(routes, self.tensor_degrees, self.most_stages) for routes in self.routes]

    def listed(self, found: Certificate) -> list[ListedStage]:
        assert found.cut is not None
        return self.instance.listed(found.cut, self.routes[found.chain], self.tensor_degrees)

    def equal_layers_ns(self) -> int:
        """One stage a node of 8 with tensor degree 8: the best that fits, else the best."""
        routes, size = self.best_routes, len(self.instance.layers)
        nodes = {row["kind"]: row["devices"] // (8 * routes.routes) for row in self.instance.facts["device_kinds"]}
        total = sum(nodes.values())
        cuts = [round(n * size / total) for n in range(total + 1)]
        found = []
        for order in permutations(nodes):
            kinds = [kind for kind in order for _ in range(nodes[kind])]
            for mode in self.instance.facts["recompute"]:
                spans = zip(pairwise(cuts), kinds, strict=True)
                stages = [ListedStage(first, end, kind, 8, mode) for (first, end), kind in spans]
                found.append((not self._fits(stages), self.instance.step_ns(stages, routes)))
        return min(found)[1]

    def _fits(self, stages: Sequence[ListedStage]) -> bool:
        m = self.num_micro_batches
        return all(
            self.instance.stage_bytes(stage, self.best_routes, in_flight=min(len(stages) - place, m))
            <= self.instance.usable_bytes(stage.kind)
            for place, stage in enumerate(stages)
        )


def references(instances: Sequence[SearchInstance]) -> list[Reference]:
    """Every scope of every file; where the scope names micro-batches, the batch is theirs."""
    found = []
    for instance in instances:
        for row in instance.facts["reference"]:
            m = row["scope"].get("micro_batches")
            found.append(Reference(instance if m is None else _with_batch(instance, m), row))
    return found


def _with_batch(instance: SearchInstance, global_batch: int) -> SearchInstance:
    workload = {**instance.facts["workload"], "global_batch": global_batch}
    return replace(instance, facts={**instance.facts, "workload": workload})
