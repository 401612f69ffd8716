"""planner simulate: noisy steps, and messages that share the adapters of nodes."""

from pathlib import Path
from typing import Any

import pytest

from planner.cli.simulate import _drawn_steps, _DrawnSteps
from planner.costs.prices import VisitPrice
from planner.problem.canonical import document_bytes
from planner.simulate.links import node_adapters, simulate_on_links
from planner.simulate.simulate import simulate
from tests.helpers.command import planner, two_stage_plan, write_problem
from tests.helpers.plans import line_plan, make_prices


def simulated(folder: Path, *options: str) -> dict[str, Any]:
    (folder / "plan.json").write_bytes(document_bytes(two_stage_plan()))
    done = planner("simulate", folder / "plan.json", *write_problem(folder), *options, "--json")
    assert done.code == 0, done.err
    assert isinstance(done.json, dict)
    return done.json


def test_noisy_steps_lie_around_the_step(tmp_path: Path) -> None:
    """The plan's step is 72 ms; 5 % of noise moves the median by less than that, and the 95th of 100 upwards."""
    found = simulated(tmp_path, "--draws", "400")
    drawn, step_ns = found["drawn"], found["step_ns"]
    assert (drawn["num_draws"], drawn["spread"]) == (400, 0.05)
    assert abs(drawn["median_ns"] / step_ns - 1) < 0.05
    assert step_ns < drawn["percentile_95_ns"] <= drawn["longest_ns"] < 1.3 * step_ns
    assert simulated(tmp_path, "--draws", "400") == found
    assert "drawn" not in simulated(tmp_path)


def test_without_spread_every_draw_is_the_step() -> None:
    plan = line_plan("1f1b", 3, 6)
    prices = make_prices(plan, lambda stage: VisitPrice(1000 + stage, 2000, 0, 0), message_ns=lambda a, b: 70)
    step_ns = simulate(plan, prices).step_ns
    assert _drawn_steps(plan, prices, 7, 0.0) == _DrawnSteps(7, 0.0, step_ns, step_ns, step_ns)


def test_many_draws_are_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """42 instructions, 84 durations at once: two draws a part, each part with a seed of its own."""
    plan = line_plan("1f1b", 3, 6)
    prices = make_prices(plan, lambda stage: VisitPrice(1000 + stage, 2000, 0, 0))
    whole = _drawn_steps(plan, prices, 60, 0.2)
    monkeypatch.setattr("planner.cli.simulate._DURATIONS_AT_ONCE", 84)
    parts = _drawn_steps(plan, prices, 60, 0.2)
    assert parts.median_ns != whole.median_ns
    assert abs(parts.median_ns / whole.median_ns - 1) < 0.05


def test_noisy_steps_in_the_table(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(document_bytes(two_stage_plan()))
    done = planner("simulate", tmp_path / "plan.json", *write_problem(tmp_path), "--draws", "20", "--spread", "0.1")
    assert done.code == 0, done.err
    assert "20 noisy steps" in done.out


def test_inside_one_node_adapters_change_nothing(tmp_path: Path) -> None:
    assert simulated(tmp_path, "--shared-adapters") == simulated(tmp_path)
    plan = two_stage_plan()
    prices = make_prices(plan, lambda stage: VisitPrice(1, 2, 0, 0), message_ns=lambda a, b: 5)
    assert simulate_on_links(plan, prices, node_adapters(plan)) == simulate(plan, prices)
