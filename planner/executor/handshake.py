"""Before step 0 all ranks must agree on everything that they will do; otherwise all of them refuse, within seconds.

Each rank writes its facts into the store that the ranks share, rank 0 compares them and writes the verdict, all read
it. No message or sum is used: with different shapes or sizes those hang, abort the process or lie.
"""

import json
import time
from collections import defaultdict
from collections.abc import Mapping

from planner.errors import Fault, HandshakeError, PlannerError
from planner.executor.team import SharedStore, Team

__all__ = ["Handshake", "differences"]

_POLL_SECONDS = 0.02
_VERDICT = "verdict"


class Handshake:
    """One comparison between all ranks of a team. ``name`` is the same on all of them and used once."""

    def __init__(self, team: Team, name: str) -> None:
        self._team = team
        self._store = team.store(name) if team.group is not None else None

    def refuse(self, error: PlannerError) -> None:
        """This rank cannot go on; the others shall hear it instead of waiting."""
        if self._store is None:
            return
        refusal = Fault(error.code, error.pointer, f"rank {self._team.rank} refused: {error.message}")
        if self._team.rank == 0:
            self._store.set(_VERDICT, json.dumps([refusal]))
        else:
            self._store.set(_facts_key(self._team.rank), json.dumps({"refusal": refusal}))

    def agree(self, facts: Mapping[str, str]) -> None:
        """Raises ``HandshakeError`` on every rank, naming each fact on which two ranks differ and both values."""
        if self._store is None:
            return
        if self._team.rank == 0:
            faults = self._compared(self._store, dict(facts))
            self._store.set(_VERDICT, json.dumps(faults))
        else:
            self._store.set(_facts_key(self._team.rank), json.dumps({"facts": dict(facts)}))
            faults = self._verdict(self._store)
        if faults:
            message = "; ".join(fault.message for fault in faults)
            raise HandshakeError(message, code=faults[0].code, pointer=faults[0].pointer)

    def _verdict(self, store: SharedStore) -> list[Fault]:
        try:
            store.wait([_VERDICT], store.timeout)
        except RuntimeError as error:
            raise HandshakeError(f"no word from rank 0: {error}", code="missing_rank") from error
        return [Fault(*fault) for fault in json.loads(store.get(_VERDICT))]

    def _compared(self, store: SharedStore, own: dict[str, str]) -> list[Fault]:
        found = {0: own}
        missing = set(range(1, self._team.num_ranks))
        deadline = time.monotonic() + store.timeout.total_seconds()
        while missing:
            for rank in sorted(missing):
                if not store.check([_facts_key(rank)]):
                    continue
                said = json.loads(store.get(_facts_key(rank)))
                if "refusal" in said:
                    return [Fault(*said["refusal"])]
                found[rank] = said["facts"]
                missing.discard(rank)
            if missing and time.monotonic() > deadline:
                return [Fault("missing_rank", "", f"ranks {sorted(missing)[:20]} did not arrive in time")]
            time.sleep(_POLL_SECONDS)
        return differences(found)


def _facts_key(rank: int) -> str:
    return f"facts/{rank}"


def differences(facts: Mapping[int, Mapping[str, str]]) -> list[Fault]:
    """A fault for each fact that differs, with every value and the ranks that have it."""
    faults = []
    for name in dict.fromkeys(name for said in facts.values() for name in said):
        ranks: dict[str, list[int]] = defaultdict(list)
        for rank, said in sorted(facts.items()):
            ranks[said.get(name, "nothing")].append(rank)
        if len(ranks) > 1:
            values = ", ".join(f"{value} on {_ranks_text(held)}" for value, held in ranks.items())
            faults.append(Fault(_code(name), "", f"the ranks differ in {name}: {values}"))
    return faults


def _code(name: str) -> str:
    return name.partition(" ")[0].replace("-", "_") + "_mismatch"


def _ranks_text(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:4]))
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{' ..' if len(ranks) > 4 else ''}"
