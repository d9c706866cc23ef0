"""The tool `query` and the resource with its tables are bounded like the Query page."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from assistant import Assistant, columns, text_of
from mcp import Client, MCPError

from tests.server.sites import kineto
from visualprof.mcp.answers import MAX_BYTES, MAX_ROWS
from visualprof.query.schema import FUNCTIONS, TABLES

SCHEMA = "visualprof://schema"

needs_duckdb = pytest.mark.usefixtures("_duckdb")


@pytest.fixture
def _duckdb() -> None:
    pytest.importorskip("duckdb")


@needs_duckdb
def test_a_statement_is_answered_with_units_and_a_link_to_its_page(assistant: Assistant) -> None:
    assistant.write("run/trace.json", kineto())
    answer = assistant.ask("query", run="run", sql="SELECT id, name, dur FROM kernel ORDER BY dur DESC LIMIT 2")
    (table,) = [table for table in answer["tables"].values() if "dur" in columns(table)]
    assert columns(table)["name"] == ["kernel2", "kernel1"]
    assert columns(table)["dur"] == [13_500, 8_500]
    assert next(column["unit"] for column in table["columns"] if column["name"] == "dur") == "ns"
    page = urlsplit(urlsplit(answer["evidence"]["page"]).fragment)
    assert page.path == "/query"
    assert parse_qs(page.query)["sql"] == ["SELECT id, name, dur FROM kernel ORDER BY dur DESC LIMIT 2"]


@needs_duckdb
def test_an_answer_has_as_many_rows_and_bytes_as_every_other(assistant: Assistant) -> None:
    assistant.write("run/trace.json", kineto())
    result = assistant.call("query", run="run", sql="SELECT range AS n, repeat('x', 500) AS text FROM range(50000)")
    assert len(text_of(result).encode()) <= MAX_BYTES
    answer = result.structured_content
    assert answer is not None
    (table,) = [table for table in answer["tables"].values() if "n" in columns(table)]
    assert 0 < len(table["rows"]) <= MAX_ROWS
    assert answer["left_out"]


@needs_duckdb
@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT nme FROM kernel", 'Referenced column "nme" not found'),
        ("SELECT * FROM read_text('/etc/passwd')", "disabled"),
    ],
)
def test_statements_are_confined(assistant: Assistant, sql: str, error: str) -> None:
    assistant.write("run/trace.json", kineto())
    assert error in assistant.refusal("query", run="run", sql=sql)["error"]


def test_the_resource_lists_every_table_and_function(assistant: Assistant) -> None:
    listed = assistant.session(lambda client: client.list_resources()).resources
    assert [str(resource.uri) for resource in listed] == [SCHEMA]
    (content,) = assistant.session(lambda client: client.read_resource(SCHEMA)).contents
    for name in (*TABLES, *FUNCTIONS):
        assert name in content.text
    assert len(content.text.encode()) <= MAX_BYTES


def test_there_is_no_other_resource(assistant: Assistant) -> None:
    async def read(client: Client) -> str:
        with pytest.raises(MCPError) as caught:
            await client.read_resource("file:///etc/passwd")
        return str(caught.value)

    assert "there is no resource" in assistant.session(read)
