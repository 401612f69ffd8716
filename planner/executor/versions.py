"""Weights of one rank while a step updates them several times: a backward uses the weights of its forward.

Method: PipeDream's stashed weights (Narayanan et al. 2019, arXiv 1806.03377), copied only where a visit still needs
them. The optimizer keeps the model's own parameters; layers run with aliases that share their memory. An update under
visits that are on their way moves the parameter to new memory first: the old alias keeps the old values, later visits
get a new one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from planner.cutting.layer import CutLayer

__all__ = ["Version", "WeightVersions"]

Version = dict[str, nn.Parameter]  # alias by global name


class WeightVersions:
    """``layers``: of this rank; ``parameters``: its trained weights by global name."""

    def __init__(self, layers: Iterable[CutLayer], parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self._places: dict[str, list[tuple[nn.Module, str]]] = {name: [] for name in parameters}
        for layer in layers:
            for name in layer.parameters.keys() & parameters.keys():
                for place in layer.local_names[name]:
                    owner, _, attribute = place.rpartition(".")
                    self._places[name].append((layer.module.get_submodule(owner), attribute))
        self._current: Version = {}
        self._in_flight: Counter[int] = Counter()  # by id of the alias

    def begin(self) -> None:
        """A step starts: nothing is on its way."""
        self._in_flight.clear()
        self._renew(self._parameters)

    def end(self) -> None:
        """The modules hold the model's own parameters again."""
        self._install(dict(self._parameters))
        self._current = {}

    def hold(self, names: Iterable[str]) -> Version:
        """What a forward is about to use, kept until ``release``."""
        version = {name: self._current[name] for name in names}
        self._in_flight.update(id(alias) for alias in version.values())
        return version

    def release(self, version: Version) -> None:
        self._in_flight.subtract(id(alias) for alias in version.values())

    @contextmanager
    def installed(self, version: Version) -> Iterator[None]:
        """Inside, the modules run with an earlier version: what recompute needs."""
        changed = {name: self._current[name] for name, alias in version.items() if self._current[name] is not alias}
        self._install({name: version[name] for name in changed})
        try:
            yield
        finally:
            self._install(changed)

    def leave_old(self, names: Iterable[str]) -> None:
        """Call it before ``names`` are updated: visits on their way keep the values that they have seen."""
        held = [name for name in names if self._in_flight[id(self._current[name])] > 0]
        for name in held:
            self._parameters[name].data = self._parameters[name].data.clone()
        self._renew(held)

    def _renew(self, names: Iterable[str]) -> None:
        fresh = {name: _alias(self._parameters[name]) for name in names}
        self._current.update(fresh)
        self._install(fresh)

    def _install(self, weights: Mapping[str, nn.Parameter]) -> None:
        for name, weight in weights.items():
            for owner, attribute in self._places[name]:
                owner._parameters[attribute] = weight


def _alias(parameter: nn.Parameter) -> nn.Parameter:
    """The same memory as another leaf."""
    with torch.no_grad():
        return nn.Parameter(parameter.data)
