"""All ranks do a piece of work on files, or all of them refuse with the first rank's reason.

What they say to each other is JSON over the process group: no object is pickled, and a rank that dies breaks the
transfer at once, as in a step.
"""

import errno
import json
from collections.abc import Callable

import torch
import torch.distributed as dist

from planner.errors import CheckpointError, Fault, PlannerError
from planner.executor.messages import ConnectionLostError
from planner.executor.team import Team, finish

__all__ = ["Council", "file_error"]

_CODES = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
    errno.EROFS: "read_only",
    errno.ENOTDIR: "not_a_folder",
    errno.EEXIST: "not_a_folder",
    errno.ELOOP: "symbolic_link",
}


def file_error(error: OSError) -> CheckpointError:
    """What the operating system refused, with the file's name."""
    code = _CODES.get(error.errno or 0, "checkpoint_files")
    place = str(error.filename or "a file of the checkpoint")
    return CheckpointError(f"{place}: {error.strerror or error}", code=code, pointer=place)


class Council:
    """Every rank calls the same methods in the same order."""

    def __init__(self, team: Team) -> None:
        self._team = team

    def lead(self, work: Callable[[], str]) -> str:
        """Rank 0 does ``work``; every rank gets what it says, or raises ``CheckpointError``."""
        said = _attempt(work) if self._team.rank == 0 else ""
        return _answer(self._announce(said))

    def agree(self, work: Callable[[], str]) -> list[str]:
        """Every rank does ``work``. Rank 0 gets all that was said, in the order of the ranks; the others nothing.

        Raises ``CheckpointError`` on all ranks where one of them did.
        """
        said = self._collect(_attempt(work))
        faults = [(rank, json.loads(text).get("fault")) for rank, text in enumerate(said)]
        refused = [(rank, Fault(*fault)) for rank, fault in faults if fault is not None]
        verdict = json.dumps({"said": ""})
        if refused:
            rank, fault = refused[0]
            message = f"rank {rank}: {fault.message}" if self._team.num_ranks > 1 else fault.message
            verdict = json.dumps({"fault": Fault(fault.code, fault.pointer, message)})
        _answer(self._announce(verdict))
        return [_answer(text) for text in said]

    def _collect(self, text: str) -> list[str]:
        """On rank 0 what all ranks say, elsewhere nothing."""
        if self._team.rank != 0:
            self._send(text, 0)
            return []
        return [text, *(self._receive(rank) for rank in range(1, self._team.num_ranks))]

    def _announce(self, text: str) -> str:
        """What rank 0 says, on every rank. One by one: whoever loses its connection knows to whom."""
        if self._team.rank != 0:
            return self._receive(0)
        for rank in range(1, self._team.num_ranks):
            self._send(text, rank)
        return text

    def _send(self, text: str, rank: int) -> None:
        data = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).to(self._team.device)
        size = torch.tensor([len(data)], device=self._team.device)
        try:
            for tensor in (size, data):
                finish(dist.isend(tensor, self._team.global_ranks[rank], group=self._team.group))
        except RuntimeError as error:
            raise ConnectionLostError(None, error, suspect=rank) from error

    def _receive(self, rank: int) -> str:
        size = torch.zeros(1, dtype=torch.int64, device=self._team.device)
        try:
            finish(dist.irecv(size, self._team.global_ranks[rank], group=self._team.group))
            data = torch.empty(int(size.item()), dtype=torch.uint8, device=self._team.device)
            finish(dist.irecv(data, self._team.global_ranks[rank], group=self._team.group))
        except RuntimeError as error:
            raise ConnectionLostError(None, error, suspect=rank) from error
        return data.cpu().numpy().tobytes().decode()


def _attempt(work: Callable[[], str]) -> str:
    """What ``work`` says, or why it could not."""
    try:
        return json.dumps({"said": work()})
    except OSError as error:
        refusal: PlannerError = file_error(error)
    except PlannerError as error:
        refusal = error
    return json.dumps({"fault": Fault(refusal.code, refusal.pointer, refusal.message)})


def _answer(text: str) -> str:
    answer = json.loads(text)
    if "fault" in answer:
        fault = Fault(*answer["fault"])
        raise CheckpointError(fault.message, code=fault.code, pointer=fault.pointer)
    said: str = answer["said"]
    return said
