"""Kills while a checkpoint is written, and of ranks that train: there is always a checkpoint, and the run goes on."""

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.executor.checkpoints.folder import complete
from planner.executor.guard import EXIT_PEER_LOST
from tests.helpers.nursery import Job, Nursery, RankEnd

CASES = "tests.helpers.kill_cases"


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    found = Nursery("torch._dynamo", CASES)  # which the first optimizer of each rank would import, for half a second
    yield found
    found.close()


def test_a_kill_at_every_file_operation_leaves_the_old_or_the_new_checkpoint(nursery: Nursery, tmp_path: Path) -> None:
    """One after the other, each save of the step behind the newest; keep=1, so the removal of the old one is in it."""
    root = tmp_path / "run"
    [first] = nursery.run(f"{CASES}:save_and_die", 1, tmp_path / "first", root=str(root), event=0)
    assert first.answer["result"] > 5
    event, at = 0, 1
    while True:
        event += 1
        [end] = nursery.run(f"{CASES}:save_and_die", 1, tmp_path / f"event-{event}", root=str(root), event=event)
        found = complete(root)
        assert found[-1].steps in (at, at + 1)  # and the next round loads it
        at = found[-1].steps
        if end.status == 0:
            break
        assert end.status == -9, end
    assert event > 10
    assert sorted(path.name for path in root.iterdir()) == [".lock", f"step-{at:08d}"]


def kill_while_saving(nursery: Nursery, folder: Path, *, num_kills: int, seed: int) -> None:
    """Two ranks train and save; one of them, or both, are killed at any moment; what was saved is there again."""
    chance = random.Random(seed)
    root, least = folder / "run", 0
    for kill in range(num_kills):
        job = nursery.start(f"{CASES}:save_for_ever", 2, folder / f"kill-{kill}", root=str(root))
        job.wait_for(lambda job: len(job.notes(0)) > 1)
        time.sleep(chance.uniform(0.0, 0.1))
        first = chance.randrange(2)
        for rank in (first, 1 - first) if chance.random() < 0.5 else (first,):
            job.kill(rank)
        for end in job.ends():
            assert end.status == -9 or "failed in" in end.said, end.said
        at = int(job.notes(0)[0].removeprefix("at "))
        assert at >= least
        least = int(job.notes(0)[-1].removeprefix("saved "))
        assert complete(root)[-1].steps >= least


def test_a_kill_while_saving_leaves_a_loadable_checkpoint(nursery: Nursery, tmp_path: Path) -> None:
    kill_while_saving(nursery, tmp_path, num_kills=5, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_hundred_kills_while_saving_leave_a_loadable_checkpoint(nursery: Nursery, tmp_path: Path) -> None:
    kill_while_saving(nursery, tmp_path, num_kills=200, seed=2)


class Setting:
    """A run of so many ranks and steps, and where its files are."""

    def __init__(self, nursery: Nursery, folder: Path, *, size: int, num_steps: int) -> None:
        self.nursery, self.folder, self.size, self.num_steps = nursery, folder, size, num_steps

    def start(self, name: str, run: str) -> Job:
        """A life of ``run``, with its files in the folder ``name``."""
        return self.nursery.start(
            f"{CASES}:train_to_the_end",
            self.size,
            self.folder / name,
            root=str(self.folder / run),
            num_steps=self.num_steps,
            save_every=5,
            weights=str(self.folder / f"{run}.safetensors"),
        )


def kill_ranks(setting: Setting, *, num_kills: int, seed: int) -> list[float]:
    """Restarts until the end; how long each survivor needed to end."""
    chance = random.Random(seed)
    moments = sorted(chance.sample(range(1, setting.num_steps - 5), num_kills))
    seconds = []
    for kill, moment in enumerate(moments):
        job = setting.start(f"life-{kill}", "killed")
        victim = chance.randrange(setting.size)
        job.wait_for(lambda job, moment=moment: latest(job) >= moment)  # type: ignore[misc]
        time.sleep(chance.uniform(0.0, 0.02))
        job.kill(victim)
        began = time.monotonic()
        for rank in range(setting.size):
            end = job.end(rank)
            if rank != victim:
                seconds.append(time.monotonic() - began)
                require_report(end, victim)
    ends = setting.start("last life", "killed").ends()
    assert [end.answer.get("result") for end in ends] == [setting.num_steps] * setting.size
    return seconds


def latest(job: Job) -> int:
    """The last step that rank 0 has done."""
    steps = [int(text.removeprefix("step ")) for text in job.notes(0) if text.startswith("step ")]
    return steps[-1] if steps else 0


def require_report(end: RankEnd, victim: int) -> None:
    """The rank ended as one that another may start again, and said who failed and in what."""
    assert end.answer.get("code") == "peer_lost" or end.status == EXIT_PEER_LOST, end
    assert re.search(rf"rank {victim} failed in [\w. ]+", end.said), end.said


def require_same_end(setting: Setting) -> None:
    undisturbed = setting.start("undisturbed", "whole").ends()
    assert [end.status for end in undisturbed] == [0] * setting.size
    weights = [(setting.folder / f"{run}.safetensors").read_bytes() for run in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_a_run_whose_ranks_are_killed_ends_with_the_weights_of_an_undisturbed_one(
    nursery: Nursery, tmp_path: Path
) -> None:
    setting = Setting(nursery, tmp_path, size=2, num_steps=40)
    kill_ranks(setting, num_kills=5, seed=3)
    require_same_end(setting)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_kills_of_four_ranks_end_with_the_weights_of_an_undisturbed_run(nursery: Nursery, tmp_path: Path) -> None:
    setting = Setting(nursery, tmp_path, size=4, num_steps=300)
    seconds = kill_ranks(setting, num_kills=50, seed=4)
    require_same_end(setting)
    assert max(seconds) < 10.0
