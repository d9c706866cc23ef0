"""A client of the protocol and a server in the same process, over log directories that are read immediately."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import CallToolResult

from tests.server.sites import InlineParser
from visualprof.mcp.dashboard import Dashboard
from visualprof.mcp.protocol import make_server
from visualprof.reader.cache import Cache

ADDRESS = "http://localhost:8040"


def run_in_thread(talk: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Run a coroutine in an event loop of another thread: that of this one is in use after a test of a page."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, talk, *args).result()


class Assistant:
    """Puts files into a log directory and calls tools about them."""

    def __init__(self, folder: Path, cache: Cache) -> None:
        self.folder, self.parser = folder, InlineParser(cache)
        self.dashboard = Dashboard([folder], cache, self.parser)

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        then = time.time() - 100
        os.utime(path, (then, then))
        return path

    def session(self, talk: Callable[[Client], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with Client(make_server(self.dashboard, ADDRESS)) as client:
                return await talk(client)

        return run_in_thread(run)

    def call(self, tool: str, **arguments: object) -> CallToolResult:
        return self.session(lambda client: client.call_tool(tool, arguments))

    def ask(self, tool: str, **arguments: object) -> dict[str, Any]:
        result = self.call(tool, **arguments)
        assert not result.is_error, text_of(result)
        assert json.loads(text_of(result)) == result.structured_content
        return result.structured_content

    def refusal(self, tool: str, **arguments: object) -> dict[str, str]:
        result = self.call(tool, **arguments)
        assert result.is_error
        return json.loads(text_of(result))


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text


def columns(table: dict[str, Any]) -> dict[str, list[Any]]:
    """The cells of a table by the names of its columns."""
    names = [column["name"] for column in table["columns"]]
    return {name: [row[place] for row in table["rows"]] for place, name in enumerate(names)}


@pytest.fixture
def assistant(tmp_path: Path) -> Iterator[Assistant]:
    folder = tmp_path / "runs"
    folder.mkdir()
    new_assistant = Assistant(folder, Cache(tmp_path / "cache"))
    yield new_assistant
    new_assistant.dashboard.close()
