"""Bytes that are no HTTP, over a real socket: even they are answered with an error document."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from api.app import create_app
from api.protocol import LARGEST_HEADER_BYTES, deadline_protocol
from api.service import open_service
from api.settings import read_settings

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    service = open_service(read_settings(store=tmp_path_factory.mktemp("raw") / "store.sqlite3", num_runners=0))
    config = uvicorn.Config(
        create_app(service),
        http=deadline_protocol(30.0),
        ws="none",
        log_config=None,
        h11_max_incomplete_event_size=LARGEST_HEADER_BYTES,
    )
    server = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


def answer_to(port: int, data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body; the connection must end by itself."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        received = b""
        while part := connection.recv(65_536):
            received += part
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "http"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "http"),  # the begin of TLS
        (b"GET / HTTP/1.1\r\n\r\n", 400, "http"),  # no Host
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "http"),
        (b"GET /\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "http"),
        (GET + b"bad header\r\n\r\n", 400, "http"),
        (GET + b"Content-Length: ten\r\n\r\n", 400, "http"),
        (GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "http"),
        (GET + b"X: " + b"x" * 2 * LARGEST_HEADER_BYTES, 431, "too_large_header"),
        (GET + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 99) for n in range(2000)), 431, "too_large_header"),
    ],
    ids=lambda value: value[:24].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_what_is_no_http_is_answered_with_an_error_document(port: int, data: bytes, status: int, code: str) -> None:
    found, headers, body = answer_to(port, data)
    assert (found, headers["content-type"], headers["connection"]) == (status, "application/problem+json", "close")
    document = json.loads(body)
    assert (document["code"], document["status"]) == (code, status)
    assert document["instance"] == f"urn:request:{headers['x-request-id']}"
    assert len(body) == int(headers["content-length"])


def test_a_broken_body_ends_the_connection_and_the_service_goes_on(port: int) -> None:
    head = b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    status, headers, _ = answer_to(port, head + b"Transfer-Encoding: chunked\r\n\r\nnot-a-size\r\n")
    assert (status, headers["content-type"]) == (400, "application/problem+json")
    status, _, body = answer_to(port, GET + b"Connection: close\r\n\r\n")
    assert (status, json.loads(body)) == (200, {"status": "ok"})


def test_a_header_just_under_the_limit_is_read(port: int, tmp_path: Path) -> None:
    padding = b"X: " + b"x" * (LARGEST_HEADER_BYTES - len(GET) - 200)
    assert answer_to(port, GET + padding + b"\r\nConnection: close\r\n\r\n")[0] == 200
