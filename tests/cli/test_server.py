"""The HTTP client against a server that answers as it is told."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from planner.cli.exit_codes import INVALID, SERVER, exit_code
from planner.cli.server import Server
from planner.errors import DocumentError, PlannerError, ServerError


@contextmanager
def answering(status: int, body: bytes, headers: dict[str, str] | None = None) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    service = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=service.serve_forever)
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{service.server_port}", timeout_s=10)
    finally:
        service.shutdown()
        thread.join()
        service.server_close()


def test_an_accepted_request_gives_status_headers_and_value() -> None:
    with answering(202, b'{"id": "ab"}', {"Location": "/v1/searches/ab"}) as server:
        reply = server.post("/v1/plans", b"{}", wait_s=1)
    assert (reply.status, reply.headers["Location"], reply.text("id")) == (202, "/v1/searches/ab", "ab")
    with pytest.raises(ServerError, match="lacks 'plan'"):
        reply.text("plan")


ERRORS = b'{"code":"invalid","title":"x","errors":[{"code":"range","pointer":"/seed","message":"too large"}]}'


@pytest.mark.parametrize(
    ("status", "body", "kind", "code", "exit_status"),
    [
        (422, ERRORS, DocumentError, "range", INVALID),
        (409, b'{"code":"immutable","detail":"stored already"}', DocumentError, "immutable", INVALID),
        (503, b'{"code":"draining","title":"stopping"}', ServerError, "draining", SERVER),
        (404, b"<html>", ServerError, "server_reply", SERVER),
        (302, b"", ServerError, "server_reply", SERVER),
        (501, b"<html>Unsupported method</html>", ServerError, "server_reply", SERVER),
        (200, b"not json", ServerError, "server_reply", SERVER),
        (422, b'{"errors":"nonsense"}', ServerError, "server_reply", SERVER),
        (422, b'{"code":"range","errors":"nonsense"}', DocumentError, "range", INVALID),
    ],
)
def test_a_refusal_is_the_error_that_the_server_names(
    status: int, body: bytes, kind: type[PlannerError], code: str, exit_status: int
) -> None:
    with (
        answering(status, body, {"Location": "http://127.0.0.1:9/"}) as server,
        pytest.raises(PlannerError) as found,
    ):
        server.get("/v1/plans")
    assert isinstance(found.value, kind)
    assert found.value.code == code
    assert exit_code(found.value) == exit_status


def test_a_server_that_is_not_there_is_named() -> None:
    with answering(200, b"{}") as server:
        pass
    with pytest.raises(ServerError, match="cannot be reached") as found:
        server.get("/healthz")
    assert found.value.code == "server_unreachable"
    with pytest.raises(ServerError):
        server.wait_ready(deadline_s=0.2)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "127.0.0.1:8000", "http://", "ftp://a/", "http://a/?q=1"])
def test_only_plain_http_urls_are_taken(url: str) -> None:
    with pytest.raises(ServerError, match="expected a URL"):
        Server(url)
