"""A rank that dies, raises, hangs or gets a wrong batch stops all ranks, and each says in which instruction."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.executor.guard import EXIT_PEER_LOST
from tests.helpers.ranks import RankAnswer, Ranks

CASE = "tests.helpers.executor_cases:sabotaged"


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Ranks]:
    found = Ranks(4, logs=tmp_path)
    yield found
    found.close()


def require_report(answer: RankAnswer, text: str) -> None:
    """The rank raised ``PeerLostError``, or its guard ended a process that was stuck; both say ``text``."""
    expected = {"PeerLostError": "peer_lost", "ended": str(EXIT_PEER_LOST)}
    assert answer.code == expected.get(str(answer.error)), answer
    assert text in answer.message


def test_a_killed_rank_stops_the_others_with_its_name(mortal: Ranks) -> None:
    """Rank 1 dies in 1F2: its neighbours lose their connection, rank 3 hears of it."""
    mortal.send(CASE, 4, {"how": "kill", "rank": 1})
    answers = {rank: mortal.answer(rank) for rank in (0, 2, 3, 1)}
    assert (answers[1].error, answers[1].code) == ("ended", "-9")
    # the instruction that somebody waited for: a forward of stage 1 downstream, a backward upstream
    named = {text for rank in (0, 2, 3) for text in re.findall("rank 1 failed in 1[FB][0-9]", answers[rank].message)}
    assert len(named) == 1
    for rank in (0, 2, 3):
        require_report(answers[rank], named.copy().pop())


def test_a_rank_killed_between_steps_is_a_lost_peer(mortal: Ranks) -> None:
    """The others still wait for the times of the step before, or are in the next one: never a bare socket error."""
    mortal.send(CASE, 4, {"how": "kill between steps", "rank": 1})
    for rank in (0, 2, 3):
        require_report(mortal.answer(rank), "")


def test_a_failing_layer_is_named_on_every_rank(mortal: Ranks) -> None:
    """Rank 2 raises and keeps its process: the others are stuck in a receive and are ended."""
    mortal.send(CASE, 4, {"how": "raise", "rank": 2})
    failed = mortal.answer(2)
    assert (failed.error, failed.code) == ("ExecutorError", "instruction_failed")
    assert "ValueError in 2F2 on rank 2: sabotage" in failed.message
    for rank in (0, 1, 3):
        require_report(mortal.answer(rank), "rank 2 failed in 2F2 of call 1: ValueError: sabotage")


def test_a_rank_told_to_stop_twice_leaves_at_once_and_is_named(mortal: Ranks) -> None:
    mortal.send(CASE, 4, {"how": "terminate", "rank": 1})
    told = mortal.answer(1)
    assert (told.error, told.code) == ("ExecutorError", "terminated")
    for rank in (0, 2, 3):
        require_report(mortal.answer(rank), "rank 1 failed in 1F2 of call 1: ExecutorError: told to stop twice")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_told_to_stop_finishes_the_step_with_the_others(rank: int, ranks: Ranks) -> None:
    found = ranks.results("tests.helpers.executor_cases:told_to_stop", 2, rank=rank)
    assert found == [[False, True, True, "terminated"]] * 2


def test_a_rank_that_fails_in_its_update_stops_those_that_have_finished_the_step(mortal: Ranks) -> None:
    """The others wait for its notes of the step, in no instruction; its process stays and closes nothing."""
    mortal.send(CASE, 4, {"how": "raise in the update", "rank": 2})
    failed = mortal.answer(2)
    assert (failed.error, failed.code) == ("ExecutorError", "instruction_failed")
    answers = [mortal.answer(rank) for rank in (0, 1, 3)]
    for answer in answers:
        require_report(answer, "rank 2 failed in 2U0 of call 1: ValueError: sabotage")
    assert "ended" in [answer.error for answer in answers]  # by its guard, not by the group's timeout


def test_a_hanging_rank_is_ended_by_its_deadline(mortal: Ranks) -> None:
    mortal.send(CASE, 4, {"how": "hang", "rank": 3})
    for rank in range(4):
        require_report(mortal.answer(rank), "rank 3 failed in 3F2 of call 1: TimeoutError")


def test_a_wrong_batch_on_all_ranks_is_refused_before_anything_is_sent(ranks: Ranks) -> None:
    losses = ranks.results("tests.helpers.executor_cases:refused_then_right", 2)
    assert losses[0] == losses[1]
    assert losses[0] > 0


@pytest.mark.parametrize(("size", "odd_rank"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("what", ["inputs", "labels", "counted"])
def test_different_batches_are_refused_on_all_ranks(what: str, size: int, odd_rank: int, ranks: Ranks) -> None:
    answers = ranks.run("tests.helpers.executor_cases:odd_batch", size, what=what, odd_rank=odd_rank, num_ranks=size)
    assert [(answer.error, answer.code) for answer in answers] == [("ExecutorError", "batch_differs")] * size
    for answer in answers:
        assert f"the ranks differ in {what}: " in answer.message
        assert f" on rank {odd_rank}" in answer.message
        assert answer.message.count("differ in") == 1


def test_all_ranks_skip_a_step_that_is_not_finite_on_one(ranks: Ranks) -> None:
    assert ranks.results("tests.helpers.executor_cases:not_finite", 2) == [[True, True]] * 2


def test_a_file_that_cannot_be_written_is_refused_on_all_ranks(ranks: Ranks, tmp_path: Path) -> None:
    case = "tests.helpers.executor_cases:save_where_it_cannot"
    assert ranks.results(case, 2, folder=str(tmp_path)) == ["refused"] * 2
    assert [file.name for file in tmp_path.iterdir()] == ["weights"]
