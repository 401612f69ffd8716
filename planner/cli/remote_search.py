"""A search at a service: upload the documents, ask, follow the search, fetch the plan and check its digest.

Unknown fields of the service's answers are ignored: inside ``/v1`` the service may add some.
"""

import threading
from collections.abc import Mapping

from pydantic import ValidationError

from planner.attempts.attempt import Watch
from planner.cli.live import LiveLine
from planner.cli.local_search import Found, stop_on_interrupt
from planner.cli.server import Reply, Server
from planner.errors import DocumentError, ServerError, SolverError
from planner.plan.answer import Answer, Progress, Reason, Relaxation
from planner.plan.plan import Plan
from planner.problem.canonical import canonical_bytes, document_bytes
from planner.problem.contract import Contract
from planner.problem.reading import read_document
from planner.problem.request import Request

__all__ = ["search_remotely"]

_WAIT_S = 5  # the service holds the answer back that long (Prefer: wait)
_POLL_S = 0.25


def search_remotely(request: Request, server: Server) -> Found:
    """The answer of the service. Raises ``ServerError``, ``DocumentError``, ``SolverError``."""
    body = canonical_bytes(request.model_dump(mode="json") | _uploaded(request, server))
    line = LiveLine()
    watch = Watch(on_progress=line.show)
    with stop_on_interrupt(watch.stop):
        try:
            reply = server.post("/v1/plans", body, wait_s=_WAIT_S)
            if reply.status == 202:
                reply = _followed(reply.text("id"), server, watch)
        finally:
            line.close()
    if reply.document.get("state") == "cancelled":
        return Found(None, interrupted=watch.stop.is_set())
    return Found(_answer(reply.document, server), interrupted=watch.stop.is_set())


def _uploaded(request: Request, server: Server) -> dict[str, object]:
    """Profiles and cluster by digest: stored once at the service, however often they are asked about."""
    profiles = [server.post("/v1/profiles", _bytes(profile)).text("id") for profile in request.profiles]
    return {"profiles": profiles, "cluster": server.post("/v1/clusters", _bytes(request.cluster)).text("id")}


def _bytes(document: Contract | str) -> bytes:
    assert isinstance(document, Contract), "the command line sends documents inline"
    return document_bytes(document)


def _followed(search_id: str, server: Server, watch: Watch) -> Reply:
    """The search's state when it is done; an interrupt cancels it."""
    pause, cancelled = threading.Event(), False
    while True:
        reply = server.get(f"/v1/searches/{search_id}")
        state = reply.text("state")
        watch.on_progress(_progress(reply.document, state))
        if state not in ("queued", "running"):
            return reply
        if watch.stop.is_set() and not cancelled:
            server.post(f"/v1/searches/{search_id}:cancel")
            cancelled = True
        pause.wait(_POLL_S)


def _progress(found: Mapping[str, object], state: str) -> Progress:
    def number(name: str) -> int | None:
        value = found.get(name)
        return value if isinstance(value, int) and value >= 0 else None

    phase = found.get("phase")
    return Progress(
        phase=phase if isinstance(phase, str) else state,
        incumbent_ns=number("incumbent_ns"),
        bound_ns=number("bound_ns"),
        candidates_done=number("candidates_done") or 0,
        candidates_total=number("candidates_total") or 0,
    )


def _answer(found: Mapping[str, object], server: Server) -> Answer:
    """Of a stored answer or a search that is done; both have status, limit, plan, reasons and warnings."""
    if found.get("state") == "failed":
        error = found.get("error")
        details: Mapping[str, object] = error if isinstance(error, dict) else {}
        raise SolverError(str(details.get("message", "no reason given")), code=str(details.get("code", "internal")))
    link = found.get("plan")
    try:
        return Answer.model_validate(
            {
                "status": found.get("status"),
                "limit": found.get("limit"),
                "plan": _plan(link, server) if isinstance(link, str) else None,
                "reasons": _reasons(found.get("reasons")),
                "relaxations": _relaxations(found.get("relaxations")),
                "warnings": _reasons(found.get("warnings")),
            }
        )
    except (ValidationError, DocumentError) as error:
        raise ServerError(f"the service's answer cannot be read: {error}", code="server_reply") from None


def _plan(link: str, server: Server) -> Plan:
    plan = read_document(server.get(link).body, Plan)
    if plan.digest != link.rpartition("/")[2]:
        raise ServerError(f"asked for {link}, got the plan {plan.digest}", code="digest")
    return plan


def _reasons(listed: object) -> tuple[Reason, ...]:
    return tuple(Reason.model_validate(entry) for entry in _known(listed, Reason))


def _relaxations(listed: object) -> tuple[Relaxation, ...]:
    return tuple(Relaxation.model_validate(entry) for entry in _known(listed, Relaxation))


def _known(listed: object, contract: type[Contract]) -> list[dict[str, object]]:
    """The fields of each entry that this version knows."""
    known = contract.model_fields.keys()
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return [{name: entry[name] for name in known & entry.keys()} for entry in entries]
