"""The whole server, with real parsing processes."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from sites import kineto

from tests.server_settings import server_settings
from visualprof.errors import VisualprofError
from visualprof.server.serve import Server

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str) -> Any:
    with _DIRECT.open(url, timeout=10) as response:
        return json.loads(response.read())


@pytest.mark.slow
def test_a_file_becomes_a_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "runs" / "run").mkdir(parents=True)
    with Server([tmp_path / "runs"], 0) as server:
        server.start()
        (tmp_path / "runs" / "run" / "trace.json").write_text(kineto())
        assert ready(server.url)
        assert get(f"{server.url}api/v1/view/operator?run=run")["total_rows"] == 3


def ready(url: str) -> bool:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            runs = get(f"{url}api/v1/runs")["runs"]
        except urllib.error.URLError:
            runs = []
        if runs and runs[0]["workers"][0]["spans"][0]["state"] == "ready":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_without_a_cache_folder_a_temporary_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "file" / "cache"))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "trace.json").write_text(kineto())
    with Server([tmp_path / "runs"], 0) as server:
        server.start()
        assert ready(server.url)
        assert get(f"{server.url}api/v1/view/operator?run=.")["total_rows"] == 3


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with Server([tmp_path], 0) as server, pytest.raises(VisualprofError, match="in use"):
        Server([tmp_path], server.port)


def test_the_next_free_port_is_taken(tmp_path: Path) -> None:
    with Server([tmp_path], 0) as first, Server([tmp_path], first.port, ports=100) as second:
        assert first.port < second.port < first.port + 100


@pytest.mark.parametrize("host", ["203.0.113.7", "no such name"])
def test_a_foreign_host_is_reported(tmp_path: Path, host: str) -> None:
    with pytest.raises(VisualprofError, match="cannot listen"):
        Server([tmp_path], 0, server_settings(host=host))


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: ", b"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: 9\r\n\r\n"]
)
def test_half_open_connections_do_not_deafen_it(tmp_path: Path, sent: bytes) -> None:
    resource = pytest.importorskip("resource")
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096:
        pytest.skip("needs 4,096 open files")
    with Server([tmp_path], 0) as server, contextlib.ExitStack() as stack:
        server.start()
        for _ in range(1500):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            connection.sendall(sent)
        began = time.monotonic()
        for _ in range(20):
            assert get(f"{server.url}api/v1/status")["version"]
        assert time.monotonic() - began < 60


GIB = 1 << 30
UPLOAD, JOBS, PART = "/api/v1/uploads?name=a.onnx", "/api/v1/jobs", "/api/v1/agent/files/blobs/x"


@pytest.mark.parametrize(
    ("path", "length", "token", "status"),
    [
        (UPLOAD, GIB, "right", None),  # it waits for the body
        (UPLOAD, 8 * GIB + 1, "right", 413),
        (UPLOAD, GIB, "wrong", 413),
        (UPLOAD, GIB, "", 413),
        ("/api/v1/models?name=a.onnx", GIB, "", 413),
        (JOBS, 2 << 20, "right", 413),
        (PART, 8 << 20, "", None),
        (PART, GIB, "right", 413),
        (JOBS, 100, "", None),
    ],
)
def test_an_unexpected_body_is_not_read(tmp_path: Path, path: str, length: int, token: str, status: int | None) -> None:
    with Server([tmp_path], 0, server_settings(token="right")) as server:
        server.start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sender:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Visualprof-Token: {token}\r\nContent-Length: {length}"
            sender.sendall(f"{head}\r\n\r\n".encode() + b"GET /api/v1/status HTTP/1.1\r\n\r\n")
            sender.settimeout(0.3 if status is None else 10)
            answer = b""
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while piece := sender.recv(1 << 16):
                    answer += piece
    if status is None:
        assert answer == b""
        return
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert json.loads(body)["error"].startswith("the body is over "), "one answer: what follows is no request"


def test_a_body_without_a_length_is_cut_off(tmp_path: Path) -> None:
    with Server([tmp_path], 0) as server:
        server.start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sender:
            sender.sendall(f"POST {JOBS} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for _ in range(20):
                    sender.sendall(b"20000\r\n" + bytes(1 << 17) + b"\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert sender.recv(100).startswith(b"HTTP/1.1 413 ")
