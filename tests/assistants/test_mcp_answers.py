"""How answers are bounded, and where the words in them come from."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from visualprof.mcp.answers import MAX_BYTES, ToolAnswer, shape_answer
from visualprof.mcp.definitions import define, explain, field_definitions, unit
from visualprof.views import view
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Answer, Columns, Table


class WordColumns(Columns):
    """Words. calls, total_ns: of one word. gap_ns: between two."""

    name: kinds.NameColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn
    gap_ns: kinds.DurationColumn


class WordsAnswer(Answer):
    """Words of a text; long: no field. share: of them that are rare."""

    share: kinds.Ratio
    words: Table[WordColumns]
    pairs: list[WordColumns]


class ListedAnswer(Answer):
    """Words of a text.

    Attributes:
        share: Share of rare words.
        words: Table of words.
    """

    share: kinds.Ratio
    words: Table[WordColumns]


def test_the_package_of_the_protocol_is_installed() -> None:
    pytest.importorskip("mcp", reason="the other tests of assistants need the extra mcp")


def shaped(body: dict[str, Any], limit: int = 20, kind: Any = None) -> ToolAnswer:
    return shape_answer(body, kind, "", limit, {})


def test_definitions_come_from_the_documentation_of_fields() -> None:
    definitions = field_definitions(WordsAnswer)
    assert definitions["", "share"] == "of them that are rare."
    assert definitions["words", "calls"] == definitions["words", "total_ns"] == "of one word."
    assert definitions["words", "gap_ns"] == "between two."
    assert ("pairs", "gap_ns") in field_definitions(WordsAnswer)
    assert ("", "long") not in field_definitions(WordsAnswer)


def test_definitions_come_from_a_list_of_attributes() -> None:
    definitions = field_definitions(ListedAnswer)
    assert definitions["", "share"] == "Share of rare words."
    assert definitions["", "words"] == "Table of words."


def test_column_descriptions_equal_those_of_the_web_ui() -> None:
    of_kernels = field_definitions(view("kernel").answer_type)
    assert define("kernel", "", "total_ns", "ns", of_kernels) == "Sum of the durations of all launches."
    assert define("operator", "", "calls", "count", {}) == "Number of calls in the selected steps."
    assert define("findings", "findings", "id", None, {}) == ""  # and not that of an operator's number in a graph
    assert [unit(name, None) for name in ("start_ns", "size_bytes", "idle_ratio", "name")] == [
        "ns",
        "bytes",
        "share, 0 to 1",
        "",
    ]


@pytest.mark.parametrize(
    ("scope", "word", "facts", "text"),
    [
        ("findings", "layout_changes", {"layout_ratio": 0.25}, "NCHW and NHWC take 25.0% of the step."),
        ("findings", "dataloader_bound", {}, "The step waits for the next batch. Load it in DataLoader worker"),
        ("diff", "few_steps", {"base": "1", "new": "3"}, "Too few steps (1 and 3) to distinguish a change from noise."),
        ("whatif", "error", {"error_ratio": 0.031}, "the replay without changes differs from the recording by 3.1%"),
        ("evaluation", "first_run_slow", {"first_ns": 2_500_000, "p50_ns": None}, "takes 2.5 ms, later runs take"),
        ("critical", "no_steps", {}, "The recording has no step annotations"),
        ("critical", "no_such_word", {}, ""),
    ],
)
def test_words_are_spelt_out_with_their_numbers(scope: str, word: str, facts: dict[str, Any], text: str) -> None:
    plan = explain(scope, word, facts)
    assert text in plan
    assert bool(plan) == bool(text)


def test_every_finding_and_verdict_can_be_spelt_out() -> None:
    from visualprof.views.rules import all_rules

    assert [name for name in all_rules() if not explain("findings", name, {})] == []


def test_columns_become_rows_and_unknown_ones_are_named() -> None:
    body = {"columns": {"name": ["a", "b"], "x_ns": [1, 2], "y": [None, None]}, "kinds": {}, "total_rows": 9}
    rows = shaped(body | {"matching_rows": 5, "offset": 3}).tables["rows"]
    assert ([column.name for column in rows.columns], rows.rows) == (["name", "x_ns"], [["a", 1], ["b", 2]])
    assert (rows.unknown, rows.first_row, rows.total_rows, rows.extent) == (["y"], 3, 5, "4 to 5 of 5")


def test_single_values_are_named_by_their_path() -> None:
    answer = shaped({"step": {"mean_ns": 1.23456789, "name": None}, "notes": [], "list": [1, 2], "charts": {"a": {}}})
    assert answer.values == {"step.mean_ns": 1.234568, "step.name": None, "notes": [], "list": [1, 2]}
    assert answer.definitions["step.mean_ns"] == "ns"


@pytest.mark.parametrize(
    "body",
    [
        {"columns": {"name": ["x" * 1000] * 10_000, "n": list(range(10_000))}, "total_rows": 10_000},
        {f"table{i}": {"name": ["x" * 290] * 200} for i in range(30)},
        {f"value{i}": ["y" * 290] * 200 for i in range(5)},
        {"arguments": {f"a{i}": "z" * 400 for i in range(1000)}},
        {"environment": {f"{i} " + "k" * 200: i for i in range(10_000)}},
    ],
    ids=["long table", "many tables", "long values", "long arguments", "many values"],
)
def test_answers_are_limited_in_size_and_report_what_is_missing(body: dict[str, Any]) -> None:
    answer = shaped(body, limit=200)
    assert len(msgspec.json.encode(answer)) < MAX_BYTES
    assert answer.left_out


def test_long_texts_keep_both_ends() -> None:
    (text,) = shaped({"name": "start" + "x" * 1000 + "end"}).values.values()
    assert len(text) == 301
    assert text.startswith("startx")
    assert text.endswith("xend")


def test_many_warnings_are_cut_and_counted() -> None:
    answer = shape_answer({}, None, "", 20, {}, warnings=[f"warning {i}" for i in range(25)])
    assert len(answer.warnings) == 20
    assert answer.left_out == ["5 further warnings"]
