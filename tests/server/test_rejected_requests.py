"""Malformed requests: an answer in JSON, a closed connection, and one bounded line of the log."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from visualprof.log_lines import MAX_MESSAGE_CHARS, LineFormatter, escape_text
from visualprof.server.serve import Server

HOST = b"Host: localhost\r\n"
GET = b"GET /api/v1/status HTTP/1.1\r\n"
SMUGGLED = b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n"
MALFORMED = {
    "no address": b"GET\r\n\r\n",
    "binary": b"\x00\xff\xfe\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 40 + b"\r\n\r\n",
    "small letters": b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
    "two blanks": b"GET  /  HTTP/1.1\r\n" + HOST + b"\r\n",
    "an invalid address": b"GET http://[ HTTP/1.1\r\n" + HOST + b"\r\n",
    "an address in Latin-1": b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    "no colon": GET + b"X\r\n\r\n",
    "a NUL in a value": GET + HOST + b"Cookie: \x00\r\n\r\n",
    "a NUL in a name": GET + HOST + b"X\x00Y: a\r\n\r\n",
    "a folded header": GET + HOST + b"X: a\r\n folded\r\n\r\n",
    "a header folded by a tab": GET + HOST + b"X: a\r\n\tfolded\r\n\r\n",
    "a length that is no number": GET + HOST + b"Content-Length: x\r\n\r\n",
    "two lengths": GET + HOST + b"Content-Length: 5, 5\r\n\r\nhello",
    "a negative length": GET + HOST + b"Content-Length: -1\r\n\r\n",
    "a length of 5,000 digits": GET + HOST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "chunks and a length": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "a length and chunks": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another encoding": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n",
    "a damaged chunk": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "two headers with lengths": GET + HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "a length with a sign": GET + HOST + b"Content-Length: +3\r\n\r\nabc",
    "a length in hex": GET + HOST + b"Content-Length: 0x3\r\n\r\nabc",
    "a length in other digits": GET + HOST + "Content-Length: \u0663\r\n\r\nabc".encode(),
    "chunks twice": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunks after another encoding": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "a space before the colon": GET + HOST + b"Content-Length : 3\r\n\r\nabc",
    "a carriage return in a value": GET + HOST + b"X: a\rb\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a negative chunk": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
    "a header of 300 KB": GET + HOST + b"X: " + b"a" * 300_000 + b"\r\n\r\n",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server([tmp_path_factory.mktemp("runs")], 0) as running:
        running.start()
        yield running


def answer(server: Server, request: bytes) -> bytes:
    """Send bytes and return everything until the connection is closed, however it is."""
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        try:
            connection.sendall(request)
            while piece := connection.recv(65536):
                received += piece
        except ConnectionError:  # closed before all was sent
            pass
    return received


@pytest.mark.slow
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_answered_and_fills_one_line(
    server: Server, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    received = answer(server, MALFORMED[name] + SMUGGLED)
    assert received.count(b"\r\nContent-Length: ") == 1, "what follows is no request"
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] in (b"400", b"431", b"501")
    assert b"\r\nConnection: close" in head
    assert set(json.loads(body)) >= {"error", "hint"}
    (record,) = caplog.records
    line = LineFormatter("%(message)s").format(record)
    assert len(line) < 300
    assert line.isprintable()
    assert "rejected a request of 127.0.0.1: " in line


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [b"/x" * 100_000, b"/" + b"x" * 256, b"/%1b%0a" * 1000, b"/api/v1/runs?x=" + b"a" * 200_000]
)
def test_a_long_path_of_a_stranger_leaves_the_log_alone(
    server: Server, caplog: pytest.LogCaptureFixture, path: bytes
) -> None:
    received = answer(server, b"GET " + path + b" HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n")
    assert received[9:10] in (b"2", b"4")
    assert sum(len(LineFormatter("%(message)s").format(record)) for record in caplog.records) < 300


def test_the_log_escapes_control_characters_and_is_bounded() -> None:
    formatter = LineFormatter("visualprof: %(message)s")
    forged = logging.LogRecord(
        "a", logging.WARNING, "", 0, "looking at %s", ("a\nvisualprof: all is well\x1b[31m",), None
    )
    assert formatter.format(forged) == r"visualprof: looking at a\nvisualprof: all is well\x1b[31m"
    long = logging.LogRecord("a", logging.WARNING, "", 0, "x" * 250_000, (), None)
    assert len(formatter.format(long)) < MAX_MESSAGE_CHARS + 50
    assert escape_text("\u202etxt.exe \udc80 é \t") == r"\u202etxt.exe \udc80 é \t"


def test_a_traceback_cannot_look_like_a_line_of_the_log(tmp_path: Path) -> None:
    try:
        raise ValueError("x\nvisualprof: forged\r\x1b[2J" + "y" * 10_000)
    except ValueError as error:
        record = logging.LogRecord("a", logging.ERROR, "", 0, "failed", (), (ValueError, error, error.__traceback__))
    record.exc_text = "cached by another handler\nvisualprof: forged"
    first, *others = LineFormatter("visualprof: %(message)s").format(record).split("\n")
    assert first == "visualprof: failed"
    assert all(line.startswith("  ") and line.isprintable() and len(line) < 400 for line in others)
    assert any("ValueError: x" in line for line in others)
