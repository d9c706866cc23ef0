"""msgspec prepares a type on its first use, and two threads that do so at once end the process with SIGSEGV.

So every type that a server decodes is prepared while its module is imported, by a `Decoder` that is made there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import visualprof

SOURCES = sorted(Path(visualprof.__file__).parent.rglob("*.py"))
SAFE = {"Any", "Raw"}


def unprepared(code: str) -> Iterator[str]:
    """Calls that decode into a class which the module does not prepare."""
    tree = ast.parse(code)
    made = [
        node for statement in tree.body if isinstance(statement, (ast.Expr, ast.Assign)) for node in calls(statement)
    ]
    prepared = {name for node in made if is_typed_decoder(node) for name in classes(node.args[0])}
    for node in calls(tree):
        function = ast.unparse(node.func)
        if function in ("msgspec.json.decode", "msgspec.msgpack.decode"):
            kinds = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
        else:
            kinds = node.args[1:2] if function == "msgspec.convert" else []
        if any(classes(kind) - prepared for kind in kinds):
            yield ast.unparse(node)


def is_typed_decoder(node: ast.Call) -> bool:
    return ast.unparse(node.func).endswith(".Decoder") and bool(node.args)


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def classes(kind: ast.AST) -> set[str]:
    """The names of classes, which begin with a capital."""
    nodes = list(ast.walk(kind))
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    named |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return {name for name in named if name.lstrip("_")[:1].isupper()} - SAFE


@pytest.mark.slow
def test_every_type_is_prepared_while_its_module_is_imported() -> None:
    values_by_name = {path.name: calls for path in SOURCES if (calls := list(unprepared(path.read_text("utf-8"))))}
    assert values_by_name == {}


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("msgspec.json.decode(text, type=Request)", False),
        ("msgspec.json.decode(text, type=list[Request])", False),
        ("msgspec.convert(value, remote.Row)", False),
        ("msgspec.json.Decoder(Row)\ndef f(): msgspec.convert(value, Row)", True),
        ("def f():\n  msgspec.json.Decoder(Row)\n  msgspec.convert(value, Row)", False),
        ("msgspec.json.decode(text, type=dict[str, Any])", True),
        ("DECODER = msgspec.json.Decoder(Request)\nDECODER.decode(text)", True),
    ],
)
def test_expected_messages_are_prepared(code: str, right: bool) -> None:
    assert (list(unprepared(code)) == []) == right
