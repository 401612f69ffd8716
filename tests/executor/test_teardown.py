"""An executor ends once: closed, dropped, or forgotten until the interpreter ends."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from planner.executor.measure import Measurement
from planner.executor.teardown import at_end, end_all
from tests.helpers.executor_cases import make_line, make_plan
from tests.helpers.ranks import Ranks

ROOT = Path(__file__).parents[2]


class Owner:
    pass


def test_the_end_comes_once_when_called_or_when_the_owner_is_gone() -> None:
    ends: list[str] = []
    called, dropped = Owner(), Owner()
    end = at_end(called, lambda: ends.append("called"))
    at_end(dropped, lambda: ends.append("dropped"))
    end()
    end()
    del called
    assert ends == ["called"]
    del dropped
    assert ends == ["called", "dropped"]


def test_all_that_live_are_ended_the_newest_first() -> None:
    ends: list[int] = []
    owners = [Owner() for _ in range(3)]
    for number, owner in enumerate(owners):
        at_end(owner, lambda number=number: ends.append(number))
    end_all()
    end_all()
    assert ends == [2, 1, 0]


def test_what_is_forgotten_ends_before_the_interpreter() -> None:
    code = """
import atexit, sys
from planner.executor.teardown import at_end
class Owner: pass
kept = Owner()
at_end(kept, lambda: sys.stdout.write(f"ended, finalizing {sys.is_finalizing()}"))
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "ended, finalizing False"


class _Work:
    def __init__(self, error: str | None) -> None:
        self.error, self.limits = error, list[timedelta]()

    def wait(self, limit: timedelta) -> None:
        self.limits.append(limit)
        if self.error is not None:
            raise RuntimeError(self.error)


@pytest.mark.parametrize("error", [None, "Operation timed out!"])
def test_the_last_times_are_waited_for_but_not_for_ever(error: str | None, caplog: pytest.LogCaptureFixture) -> None:
    model = make_line()
    batches, stages = [(0, 2)], [(0, 0, 4, 1)]
    plan = make_plan(model, family="gpipe", groups=[[0]], stages=stages, routes=[[0]], batches=batches, tokens=3)
    work: Any = _Work(error)
    Measurement(plan, torch.zeros(1), work).settle()
    assert work.limits == [timedelta(seconds=5)]
    assert [record.message for record in caplog.records] == (
        [] if error is None else [f"the times of the last step did not come: {error}"]
    )


def test_a_dropped_executor_leaves_no_thread(ranks: Ranks) -> None:
    assert ranks.results("tests.helpers.executor_cases:forgetful", 2) == [0, 0]
