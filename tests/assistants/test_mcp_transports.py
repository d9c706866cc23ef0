"""The command as processes: over standard input and output, over HTTP, without the package, without paths."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest
from assistant import columns, run_in_thread
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.server.sites import kineto
from visualprof.cli import main

COMMAND = [sys.executable, "-m", "visualprof", "mcp"]
TOKEN = "secret-of-the-test"
HEADERS = {"Accept": "application/json, text/event-stream"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "runs" / "run").mkdir(parents=True)
    (tmp_path / "runs" / "run" / "trace.json").write_text(kineto())
    return tmp_path / "runs"


async def calls_of_kernels(client: Client) -> list[int]:
    result = await client.call_tool("view", {"view": "kernel", "run": "run"})
    assert not result.is_error, result.content
    return columns(result.structured_content["tables"]["rows"])["calls"]


@pytest.mark.slow
def test_a_client_starts_the_command_and_asks(runs: Path) -> None:
    async def talk() -> list[int]:
        server = StdioServerParameters(
            command=COMMAND[0], args=[*COMMAND[1:], "--logdir", str(runs)], env={**os.environ}
        )
        async with Client(server) as client:
            assert len((await client.list_tools()).tools) == 18
            return await calls_of_kernels(client)

    assert run_in_thread(talk) == [1, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(("end", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (None, 0)])
def test_standard_output_has_the_protocol_alone_and_the_command_ends(
    runs: Path, end: signal.Signals | None, status: int
) -> None:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*COMMAND, str(runs)], **pipes, text=True) as process:
        assert process.stdin
        assert process.stdout
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        for message in (
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_runs", "arguments": {}}},
        ):
            print(json.dumps(message), file=process.stdin, flush=True)
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        if end:
            process.send_signal(end)
        else:
            process.stdin.close()
        assert process.wait(20) == status
        assert process.stdout.read() == ""
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["structuredContent"]["tables"]["runs"]["total_rows"] == 1


@contextlib.contextmanager
def served(runs: Path, *options: str) -> Iterator[tuple[str, str]]:
    """Start a server over HTTP; yield its address and its first line of output."""
    command = [*COMMAND, str(runs), "--http", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr
        line = process.stderr.readline()
        threading.Thread(target=process.stderr.read, daemon=True).start()
        (address,) = re.findall(r"http://\S+/mcp", line)
        try:
            yield address, line
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130


@pytest.mark.slow
def test_over_http_the_token_is_asked_for_and_strangers_are_refused(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUALPROF_TOKEN", TOKEN)
    bearer = {"Authorization": f"Bearer {TOKEN}"}

    async def talk(address: str) -> list[int]:
        http = httpx2.AsyncClient(headers=bearer)
        async with http, Client(streamable_http_client(address, http_client=http)) as client:
            return await calls_of_kernels(client)

    with served(runs) as (address, first_line):
        assert TOKEN in first_line
        assert run_in_thread(talk, address) == [1, 1, 2]
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": TOKEN}, 401),
            ({"X-Visualprof-Token": TOKEN, "Host": "evil.example"}, 421),
            ({**bearer, "Origin": "https://evil.example"}, 403),
            ({**bearer, "Origin": "http://localhost.evil.example"}, 403),
        ):
            answer = httpx2.post(address, json=LIST, headers={**HEADERS, **headers})
            assert (answer.status_code, headers) == (status, headers)
        assert httpx2.post(address, content=b"x" * (2 << 20), headers={**HEADERS, **bearer}).status_code == 413


@pytest.mark.slow
def test_without_a_token_only_configured_host_names_are_answered(runs: Path) -> None:
    async def talk(address: str) -> list[int]:
        async with Client(address) as client:
            return await calls_of_kernels(client)

    with served(runs, "--no-token", "--allow-host", "profiles.example") as (address, first_line):
        assert "Bearer" not in first_line
        assert run_in_thread(talk, address) == [1, 1, 2]
        answer = httpx2.post(address, json=LIST, headers={**HEADERS, "Host": "profiles.example"})
        assert answer.status_code != 421


@pytest.mark.parametrize(
    ("module", "state"), [(None, "not installed"), (ModuleType("mcp.server"), "of another version")]
)
def test_without_the_package_the_command_names_what_to_install(
    module: ModuleType | None,
    state: str,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", module)
    for name in ("visualprof.mcp.transports", "visualprof.mcp.protocol"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert main(["mcp", str(runs)]) == 2
    assert capfd.readouterr() == (
        "",
        f"visualprof: The package 'mcp' is {state}\nHint: pip install 'visualprof[mcp]'\n",
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "Which profiles?"),
        (["gone"], "There is no folder or file 'gone'"),
        ([".", "--server", "localhost:8040"], "--server 'localhost:8040' is no address"),
        ([".", "--http", "--port", "70000"], "--port 70000 is no port"),
        ([".", "--http", "--host", "192.0.2.1", "--port", "0"], "Cannot listen on 192.0.2.1:0"),
    ],
)
def test_wrong_options_are_explained(
    words: list[str], error: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs)
    assert main(["mcp", *words]) == 2
    assert capfd.readouterr().err.startswith(f"visualprof: {error}")


def test_the_package_is_imported_by_this_command_alone() -> None:
    script = (
        "import sys; from visualprof.cli import commands, _command; [_command(name) for name in commands()]; "
        "import visualprof.server.app; print(sorted({'mcp', 'pydantic', 'starlette'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
