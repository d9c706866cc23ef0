"""Answers of the tools, checked on hand-computed traces."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from assistant import ADDRESS, Assistant, columns
from mcp import Client

from tests.conftest import ROOT, SAMPLES, computed
from tests.server.sites import kineto, stepped
from tests.step_ranges import ranged_trace
from visualprof.mcp.answers import MAX_BYTES, MAX_ROWS
from visualprof.mcp.catalog import tools
from visualprof.mcp.evidence import PAGES
from visualprof.views import all_views


def test_a_view_has_rows_with_units_and_definitions(assistant: Assistant) -> None:
    assistant.write("run/trace.json", kineto())
    answer = assistant.ask("view", view="kernel", run="run")
    table = answer["tables"]["rows"]
    cells = columns(table)
    assert cells["name"] == ["kernel2", "kernel1", "kernel0"]
    assert cells["total_ns"] == [13_500, 8_500, 7_000]  # half of 27 and 17 us; twice half of 7 us
    assert cells["calls"] == [1, 1, 2]
    assert {"name": "total_ns", "unit": "ns", "meaning": "Sum of the durations of all launches."} in table["columns"]
    assert (table["first_row"], table["total_rows"]) == (0, 3)
    assert "blocks_per_sm" in table["unknown"]
    assert "left_out" not in answer


def test_rows_are_cut_and_the_rest_can_be_had(assistant: Assistant) -> None:
    assistant.write("run/trace.json", kineto(30))
    first = assistant.ask("view", view="operator", run="run", limit=7)
    assert first["tables"]["rows"]["total_rows"] == 30
    assert first["left_out"][0].startswith(
        "table 'rows' has rows 1 to 7 of 30; get more with arguments that the tool accepts: limit"
    )
    assert first["evidence"]["rows"]["rows"] == "1 to 7 of 30"
    names = columns(first["tables"]["rows"])["name"]
    while len(names) < 30:
        rest = assistant.ask("view", view="operator", run="run", limit=7, offset=len(names))
        names += columns(rest["tables"]["rows"])["name"]
    assert sorted(names) == sorted(f"op{number}" for number in range(30))


def test_rows_are_sorted_searched_and_filtered(assistant: Assistant) -> None:
    assistant.write("run/trace.json", kineto(30))

    def names(**arguments: Any) -> list[str]:
        return columns(assistant.ask("view", view="kernel", run="run", **arguments)["tables"]["rows"])["name"]

    assert names(sort="name", order="asc", limit=2) == ["kernel0", "kernel1"]
    assert names(search="KERNEL29") == ["kernel29"]
    assert names(filters={"min.total_ns": 143_000}) == ["kernel29", "kernel28"]
    assert names(filters={"is.name": "kernel3"}) == ["kernel3"]


def test_a_single_selected_table_keeps_its_name_and_definitions(assistant: Assistant) -> None:
    assistant.write("run/trace.json", (SAMPLES / "pytorch-h200" / "transformer.pt.trace.json.gz").read_bytes())
    whole = assistant.ask("view", view="kernel", run="run")["tables"]["memory_operations"]
    alone = assistant.ask("view", view="kernel", run="run", table="memory_operations")["tables"]
    assert alone == {"memory_operations": whole}
    assert columns(whole)["name"] == ["Memset (Device)", "Memcpy DtoD (Device -> Device)"]
    assert whole["columns"][2]["meaning"] == "Sum of the durations of all operations."


def test_parameters_of_a_view_reach_it(assistant: Assistant) -> None:
    assistant.write("run/trace.json", kineto())
    grouped = assistant.ask("view", view="kernel", run="run", parameters={"group": "launch"})
    assert columns(grouped["tables"]["rows"])["block"] == ["[32, 1, 1]"] * 3
    assert "group=launch" in grouped["evidence"]["page"]


def test_chosen_ranges_are_steps(assistant: Assistant) -> None:
    assistant.write("run/trace.json", ranged_trace())
    assistant.write("slow/trace.json", ranged_trace(slowdown_us=10))
    view = assistant.ask("view", view="overview", run="run", step_range="work")
    assert columns(view["tables"]["steps"])["total_ns"] == [80_000, 70_000]
    assert "step_range=work" in view["evidence"]["page"]
    diff = assistant.ask("diff", run="slow", base="run", step_range="work")
    assert (diff["values"]["step.base_ns"], diff["values"]["step.new_ns"]) == (75_000, 85_000)


def test_numbers_equal_those_of_the_view(assistant: Assistant) -> None:
    file = SAMPLES / "pytorch-h200" / "transformer.pt.trace.json.gz"
    assistant.write("run/trace.json", file.read_bytes())
    cells = columns(assistant.ask("view", view="operator", run="run", limit=MAX_ROWS)["tables"]["rows"])
    whole = computed("operator", file).columns
    for name in ("calls", "device_self_ns", "device_total_ns", "host_self_ns", "host_total_ns"):
        assert cells[name] == list(getattr(whole, name))[: len(cells[name])]
    assert len(cells["name"]) > 50


def test_two_runs_are_compared(assistant: Assistant) -> None:
    assistant.write("old/trace.json", stepped(1, [[("gemm", 20), ("copy", 5)]] * 2))
    assistant.write("new/trace.json", stepped(1, [[("gemm", 30), ("copy", 5)]] * 2))
    answer = assistant.ask("diff", base="old", run="new", view="kernel")
    cells = columns(answer["tables"]["rows"])
    assert cells["name"][0] == "gemm"
    assert (cells["base_ns"][0], cells["new_ns"][0], cells["delta_ns"][0]) == (20_000, 30_000, 10_000)
    assert answer["evidence"]["file"] == "new/trace.json"
    assert answer["evidence"]["base_file"] == "old/trace.json"
    page = urlsplit(urlsplit(answer["evidence"]["page"]).fragment)
    assert (page.path, parse_qs(page.query)) == ("/kernel", {"run": ["new"], "base": ["old"]})


def test_a_forecast_takes_several_changes(assistant: Assistant) -> None:
    assistant.write("run/trace.json", (SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz").read_bytes())
    finding = columns(assistant.ask("findings", run="run")["tables"]["findings"])
    place = finding["id"].index("dataloader_bound")
    share = f"{finding['evidence'][place]['dataloader_ratio']:.1%}"
    sentence = f"Data loading stalls the step. The step waits for the next batch {share} of the time. Load it in"
    assert finding["says"][place].startswith(sentence)
    (change,) = (change for change in finding["change"] if change.startswith("dataloader"))
    answer = assistant.ask("whatif", run="run", changes=[change, "host[name~conv]*0.5"])
    alone = assistant.ask("whatif", run="run", changes=[change])
    assert alone["values"]["step.gain_ns"] == finding["gain_ns_per_step"][place]
    assert answer["values"]["step.predicted_ns"] < alone["values"]["step.predicted_ns"]
    assert assistant.refusal("whatif", run="run", changes=["rank[0]=median"])["error"]


def test_a_plan_is_that_of_the_command_line_and_names_its_changes(assistant: Assistant) -> None:
    file = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
    assistant.write("run/trace.json", file.read_bytes())
    answer = assistant.ask("plan", run="run")
    cells, whole = columns(answer["tables"]["rungs"]), computed("plan", file)
    assert cells["says"][0] == "Load data in worker processes"
    for name in ("lever", "step_ns", "gain_ns", "most_ns", "code"):
        assert cells[name] == list(getattr(whole.rungs.columns, name))
    assert answer["values"]["baseline_ns"] == whole.baseline_ns
    together = assistant.ask("whatif", run="run", changes=[answer["values"]["change"]])
    assert together["values"]["step.predicted_ns"] == pytest.approx(answer["values"]["planned_ns"], abs=2)


def test_events_are_found_by_name_and_lead_to_the_timeline(assistant: Assistant) -> None:
    assistant.write("run/trace.json", kineto())
    hits = assistant.ask("search_events", run="run", text="kernel0")
    assert hits["values"]["total"] == 2
    cells = columns(hits["tables"]["events"])
    assert cells["duration_ns"] == [3_500, 3_500]
    assert assistant.ask("search_events", run="run", text="kernel", exact=True)["values"]["total"] == 0
    assert hits["evidence"]["page_of_event"] == f"{ADDRESS}/#/trace?run=run&sel=0.EVENT"
    event = assistant.ask("event", run="run", event=cells["event"][0])
    assert event["values"]["name"] == "kernel0"
    start = cells["start_ns"][0]
    assert event["evidence"]["page"].endswith(f"&win={start - 3_500}~{start + 7_000}&sel=0.{cells['event'][0]}")


def test_runs_are_listed_newest_first_with_the_files_of_a_run(assistant: Assistant) -> None:
    for name in ("a/trace.json", "b/rank0.json", "b/rank1.json"):
        assistant.write(name, kineto())
    assistant.write("broken/trace.json", '{"schemaVersion": 1, "traceEvents": [{"ph": "X", ')
    runs = columns(assistant.ask("list_runs")["tables"]["runs"])
    assert sorted(runs["run"]) == ["a", "b", "broken"]
    assert runs["workers"][runs["run"].index("b")] == 2
    files = columns(assistant.ask("list_runs", run="b")["tables"]["files"])
    assert files["file"] == ["b/rank0.json", "b/rank1.json"]
    assert assistant.refusal("list_runs", run="c") == {
        "error": "there is no run called 'c'",
        "hint": "call list_runs without `run` to list all runs",
    }


def test_every_view_is_listed_and_described(assistant: Assistant) -> None:
    listed = columns(assistant.ask("list_views", limit=MAX_ROWS)["tables"]["views"])
    assert listed["view"] == [view.name for view in all_views()]
    assert all(listed["tells"])
    described = assistant.ask("list_views", view="idle")["values"]
    assert "HTA" in described["how"]
    assert set(tools()["view"].schema()["properties"]["view"]["enum"]) == set(listed["view"])


@pytest.mark.slow
def test_every_view_of_every_sample_is_bounded_and_defines_its_numbers(assistant: Assistant) -> None:
    for file in sorted(SAMPLES.rglob("*.json*")):
        if file.is_file():
            assistant.write(f"{file.relative_to(SAMPLES)}", file.read_bytes())

    async def talk(client: Client) -> list[tuple[str, str]]:
        answers: list[tuple[str, str, dict[str, Any], int]] = []
        runs = (await client.call_tool("list_runs", {"limit": MAX_ROWS})).structured_content["tables"]["runs"]
        for run, views in zip(columns(runs)["run"], columns(runs)["views"], strict=True):
            for view in views or ():
                result = await client.call_tool("view", {"view": view, "run": run, "limit": MAX_ROWS})
                assert not result.is_error, (run, view, result.content)
                size = len(result.content[0].model_dump_json())
                answers.append((run, view, result.structured_content, size))
        assert len(answers) > 100
        assert max(size for *_, size in answers) < MAX_BYTES * 1.4  # with the quotes of JSON in JSON
        return [
            (view, column["name"])
            for _, view, answer, _ in answers
            for table in answer["tables"].values()
            for column in table["columns"]
            if column["name"].endswith(("_ns", "_bytes", "_ratio")) and not column.get("unit")
        ]

    assert assistant.session(talk) == []


def test_tools_only_read() -> None:
    assert {tool.route.method for tool in tools().values()} == {"GET"}


def test_tool_descriptions_of_views_are_true() -> None:
    catalog = (ROOT / "visualprof/frontend/src/state/catalog.ts").read_text(encoding="utf-8")
    (embedded,) = re.findall(r"EMBEDDED_VIEWS = new Set\(\[(.*?)\]\)", catalog, re.DOTALL)
    assert set(PAGES) == set(re.findall(r'"(\w+)"', embedded))
    pages = {path.parent.name for path in (ROOT / "visualprof/frontend/src/pages").glob("*/page.vue")}
    named = {tool.page for tool in tools().values()} | set(PAGES.values())  # other views have the page of their name
    assert named - {""} <= pages


def test_warnings_about_the_file_come_with_the_numbers(assistant: Assistant) -> None:
    assistant.write("good/trace.json", kineto())
    assistant.write("cut/trace.json", kineto()[:-40])
    assert "warnings" not in assistant.ask("view", view="kernel", run="good")
    answer = assistant.ask("view", view="kernel", run="cut")
    assert answer["warnings"] == ["the file ends in the middle, after event 11"]
