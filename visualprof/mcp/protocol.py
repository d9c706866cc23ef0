"""Serve the tools over the Model Context Protocol with the official package: lists, calls, progress, cancellation."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache, partial
from itertools import chain, repeat
from typing import Any, cast

import anyio
import msgspec
from anyio.to_thread import run_sync
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcp_types import Tool as ToolDeclaration

from visualprof import __version__
from visualprof.errors import VisualprofError
from visualprof.mcp.answers import ToolAnswer, shape_answer
from visualprof.mcp.catalog import INSTRUCTIONS, tools
from visualprof.mcp.dashboard import Dashboard, StillReading
from visualprof.mcp.evidence import build_evidence, recording_warnings, timeline_link
from visualprof.mcp.tools import ApiRequest, Tool
from visualprof.query.reference import full_schema_text

_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)  # between requests while a file is being read; the last pause repeats
_MAX_CONCURRENT = 6  # answers that are computed concurrently
SCHEMA_URI = "visualprof://schema"
SCHEMA_RESOURCE = Resource(
    name="schema",
    title="Tables for SQL",
    uri=SCHEMA_URI,
    description="Tables, columns with units and definitions, and functions for the tool `query`.",
    mime_type="text/plain",
)
_log = logging.getLogger(__name__)
_ENCODER = msgspec.json.Encoder()


def make_server(dashboard: Dashboard, address: str = "") -> Server[Any]:
    """Return the server of the protocol.

    Args:
        dashboard: Answers the requests.
        address: Address of a dashboard of the same log directories, for links in a browser; "" if unknown.
    """
    calls = ToolCalls(dashboard, address)

    async def list_tools(_: ServerRequestContext, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tool_declarations())

    async def call_tool(context: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
        tool = tools().get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:100]!r}; there are: {', '.join(tools())}")
        return await calls.answered(context, tool, params.arguments or {})

    async def list_resources(_: ServerRequestContext, __: PaginatedRequestParams | None) -> ListResourcesResult:
        return ListResourcesResult(resources=[SCHEMA_RESOURCE])

    async def read_resource(_: ServerRequestContext, params: ReadResourceRequestParams) -> ReadResourceResult:
        if str(params.uri) != SCHEMA_URI:
            raise MCPError(INVALID_PARAMS, f"there is no resource {str(params.uri)[:100]!r}; there is: {SCHEMA_URI}")
        contents = TextResourceContents(uri=SCHEMA_URI, mime_type="text/plain", text=full_schema_text())
        return ReadResourceResult(contents=[contents])

    return Server(
        "visualprof",
        version=__version__,
        title="visualprof: profiles of deep-learning models",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


@cache
def tool_declarations() -> list[ToolDeclaration]:
    """Return the tools as clients see them."""
    (reference,), components = msgspec.json.schema_components([ToolAnswer])
    answer = {"type": "object", **components.pop(reference["$ref"].rpartition("/")[2]), "$defs": components}
    output = msgspec.json.decode(msgspec.json.encode(answer).replace(b"#/components/schemas/", b"#/$defs/"))
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    return [
        ToolDeclaration(
            name=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.schema(),
            output_schema=output,
            annotations=reads,
        )
        for tool in tools().values()
    ]


class ToolCalls:
    """A concurrent executor of tool calls. A call that waits for a file does not block other calls."""

    def __init__(self, dashboard: Dashboard, address: str) -> None:
        self._dashboard, self._address = dashboard, address.rstrip("/")
        self._limiter: anyio.CapacityLimiter | None = None

    async def answered(self, context: ServerRequestContext, tool: Tool, arguments: Mapping[str, Any]) -> CallToolResult:
        """Return the answer, or the error with its hint."""
        try:
            question, further = tool.question(arguments)
            body = await self._request(context, question)
            answer = await self._run_in_thread(partial(self._shape, tool, question, further, body))
        except VisualprofError as error:
            return _result({"error": error.error, "hint": error.hint}, is_error=True)
        except Exception:  # noqa: BLE001 - last handler of a request: an error must not stop the server
            _log.exception("the tool %s failed", tool.name)
            return _result({"error": "the server met an unexpected error", "hint": "its log says more"}, is_error=True)
        return _result(msgspec.to_builtins(answer))

    async def _request(self, context: ServerRequestContext, question: ApiRequest) -> dict[str, Any]:
        """Return the API's answer as soon as the file is read, and report progress until then."""
        reported = -1.0  # the protocol requires progress to increase
        for pause in chain(_PAUSES_S, repeat(_PAUSES_S[-1])):
            try:
                return await self._run_in_thread(partial(self._dashboard.ask, question.path, question.query))
            except StillReading as waiting:
                if waiting.progress > reported:
                    reported = waiting.progress
                    await context.session.report_progress(reported, 1.0, waiting.error)
            await anyio.sleep(pause)
        raise AssertionError("the pauses never end")

    async def _run_in_thread(self, work: Any) -> Any:
        """Run a function in a separate thread and return its result. A canceled call does not wait for the thread."""
        self._limiter = self._limiter or anyio.CapacityLimiter(_MAX_CONCURRENT)
        return await run_sync(work, abandon_on_cancel=True, limiter=self._limiter)

    def _shape(self, tool: Tool, question: ApiRequest, further: Mapping[str, str], body: dict[str, Any]) -> ToolAnswer:
        listing = self._dashboard.listing()
        query = {name: text if name != "limit" else str(question.limit) for name, text in question.query.items()}
        sources = build_evidence(self._address, question.path, query, listing, question.page)
        shown = tool.listing(body, further) if tool.listing else body
        answer = shape_answer(
            shown,
            question.kind,
            question.scope,
            question.limit,
            sources,
            query.get("table", ""),
            warnings=recording_warnings(query, listing),
        )
        if "run" in question.query:
            if isinstance(event := body.get("event"), int):
                start, duration = body["start_ns"], body["duration_ns"]
                sources["page"] = timeline_link(self._address, question.query, listing, str(event), start, duration)
            elif any(column.name == "event" for table in answer.tables.values() for column in table.columns):
                sources["page_of_event"] = timeline_link(self._address, question.query, listing, "EVENT")
        return answer


def _result(body: dict[str, Any], *, is_error: bool = False) -> CallToolResult:
    """Return a body in both forms: structured, and as text for clients that read only text."""
    text = _ENCODER.encode(_encodable(body)).decode()
    structure = None if is_error else msgspec.json.decode(text)
    return CallToolResult(content=[TextContent(text=text)], structured_content=structure, is_error=is_error)


def _encodable(value: Any) -> Any:
    """Return a value with texts that UTF-8 can encode: half of a surrogate pair becomes "?"."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(member) for key, member in cast("dict[str, Any]", value).items()}
    return [_encodable(member) for member in cast("list[Any]", value)] if isinstance(value, list) else value
