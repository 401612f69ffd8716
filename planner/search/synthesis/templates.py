"""Periodic templates as priorities: how urgent each instruction is if every micro-batch did the same, a period later.

A micro-batch goes forward by ``forward_step`` thirds of a stage's share of the period a stage, comes back by
``backward_step``, and leaves its W ``weight_lag`` periods behind its I; the list scheduler makes of it what costs and
memory allow. At half memory on a V of equal stages (p/2 + 1, m = 4p) this alone idles less than the family v-half:
2.5 forward units instead of 3.5 at p = 4, steps 3, lag p/2 (benchmarks/synthesis.md). Method: uniform V templates
(Qi et al. 2024, arXiv 2405.15362), here for any placement and any costs.
"""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from planner.search.synthesis.bounds import period_bounds
from planner.search.synthesis.engine import Engine
from planner.search.synthesis.lanes import OPERATIONS, Integers
from planner.search.synthesis.order_problem import OrderProblem

__all__ = ["Template", "plain_keys", "template_keys", "templates"]

_STEPS = (2.0, 3.0, 1.0, 1.5, 4.0, 2.5)
_LAGS = (0.5, 0.0, 0.25, 1.0, 0.125, 2.0)  # of the groups
_PLAIN = ("IFW", "FIW")  # urgent first


class Template(NamedTuple):
    """Steps in thirds of a stage's share of the period; the lag in periods."""

    forward_step: float
    backward_step: float
    weight_lag: float

    @property
    def name(self) -> str:
        return f"template {self.forward_step:g}, {self.backward_step:g}, lag {self.weight_lag:g}"


def templates(problem: OrderProblem) -> Iterator[Template]:
    """The most promising first: equal steps, then unequal ones."""
    lags = [share * problem.num_groups for share in _LAGS]
    pairs = sorted(product(_STEPS, _STEPS), key=lambda pair: pair[0] != pair[1])
    for (forward, backward), lag in product(pairs, lags):
        yield Template(forward, backward, lag)


def template_keys(engine: Engine, template: Template) -> Integers:
    """Urgency of every instruction, least first."""
    problem = engine.problem
    period_ns = max(bound.period_ns for bound in period_bounds(problem))
    share_ns = period_ns * problem.num_groups / (3 * problem.num_stages)
    first = np.zeros((problem.num_stages, len(OPERATIONS)))
    for route in problem.routes:
        for place, stage in enumerate(route):
            back = len(route) * template.forward_step + (len(route) - 1 - place) * template.backward_step
            first[stage] = place * template.forward_step * share_ns, back * share_ns, back * share_ns
            first[stage, 2] += template.weight_lag * period_ns
    keys = np.rint(first.ravel())[engine.lane] + engine.number * period_ns
    return np.asarray(keys, np.int64)


def plain_keys(engine: Engine) -> Iterator[tuple[str, Integers]]:
    """Operations by urgency whatever the micro-batch, earlier micro-batches first."""
    for ranking in _PLAIN:
        rank = np.array([ranking.index(operation) for operation in OPERATIONS])
        yield f"{ranking[0]} > {ranking[1]} > {ranking[2]}", rank[engine.lane % 3] * (1 << 40) + engine.number
