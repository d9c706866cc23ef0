"""Memory snapshots over HTTP: tiles, the map of segments, totals and blocks, against the truth of the fixtures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sites import MakeSite, Site, kineto
from werkzeug.test import TestResponse

from tests.conftest import FIXTURES
from tests.reader.test_snapshot_origins import recorded_allocations, write_recording, write_snapshot
from visualprof.errors import BadParameter
from visualprof.reader import read_trace
from visualprof.reader.trace import Trace
from visualprof.server.api import snapshot
from visualprof.views.answers.encoding import encode

FOLDER = FIXTURES / "memory_snapshots"
TRUTH: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())["train_oom.pickle"]
PEAK, OOM = TRUTH["peak"]["event"], TRUTH["oom"]["event"]


QUERIES: dict[str, tuple[Any, Any]] = {
    "tile": (snapshot.compute_tile, snapshot.HeapTileQuery),
    "map": (snapshot.compute_map, snapshot.MapQuery),
    "totals": (snapshot.compute_totals, snapshot.TotalsQuery),
    "blocks": (snapshot.compute_blocks, snapshot.BlockRowsQuery),
}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return read_trace(FOLDER / "train_oom.pickle")


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    site = make_site()
    site.write("train_oom.pickle", (FOLDER / "train_oom.pickle").read_bytes())
    return site


def body(trace: Trace, route: str, **query: object) -> dict[str, Any]:
    """The answer of a route as its client decodes it."""
    if route == "meta":
        return msgspec.json.decode(encode(snapshot.compute_meta(trace, "", "1")))
    compute, kind = QUERIES[route]
    return msgspec.json.decode(encode(compute(trace, msgspec.convert({"run": "run", **query}, kind))))


def ask(site: Site, route: str, **query: object) -> TestResponse:
    return site.client.get(f"/api/v1/snapshot/{route}", query_string={"run": "train_oom.pickle", **query})


def test_meta_describes_the_history(trace: Trace) -> None:
    meta = body(trace, "meta")
    assert (meta["entries"], meta["device"], meta["devices"]) == (TRUTH["entries"], 0, [0])
    assert (meta["peak_entry"], meta["peak_bytes"]) == (PEAK, TRUTH["peak"]["requested_bytes"])
    assert meta["failures"] == [OOM]
    assert [step["name"] for step in meta["steps"]] == [f"ProfilerStep#{i}" for i in range(3)]
    assert {"forward"} <= {annotation["name"] for annotation in meta["annotations"]}
    assert meta["max_level"] == 2  # 4 entries per bucket
    assert meta["max_reserved_bytes"] == 122 << 20


def test_one_tile_shows_the_whole_history_with_its_peak(trace: Trace) -> None:
    tile = body(trace, "tile", level=2, index=0)
    assert len(tile["entry"]) == 253
    totals = [sum(values) for values in zip(*tile["bands"], strict=True)]
    assert max(totals) == TRUTH["peak"]["requested_bytes"]
    assert tile["entry"][totals.index(max(totals))] == PEAK
    last = body(trace, "map", at=str(tile["entry"][-1]))
    assert tile["reserved_bytes"][-1] == last["reserved_bytes"]
    assert tile["allocated_bytes"][-1] == last["allocated_bytes"]
    assert tile["time_ns"] == sorted(tile["time_ns"])


def test_blocks_of_a_tile_fit_into_the_bands(trace: Trace) -> None:
    tile = body(trace, "tile", level=2, index=0, min_bytes=0)
    blocks = tile["blocks"]["columns"]
    used = [[0] * len(tile["entry"]) for _ in tile["categories"]]
    rows = zip(*(blocks[key] for key in ("category", "bytes", "first_bucket", "last_bucket")), strict=True)
    for category, size, first, last in rows:
        for bucket in range(first, last + 1):
            used[category][bucket] += size
    assert used == tile["bands"]  # every block is shown
    assert blocks["born"] == sorted(blocks["born"])
    names = {tile["names"][name] for name in blocks["name"]}
    assert "/job/metrics.py:22 remember" in names


def test_neighboring_tiles_show_the_same_blocks(trace: Trace) -> None:
    whole = body(trace, "tile", level=2, index=0)["blocks"]["columns"]["block"]
    parts = [body(trace, "tile", level=1, index=index)["blocks"]["columns"]["block"] for index in (0, 1)]
    shared = set(parts[0]) & set(parts[1])
    assert shared
    assert shared <= set(whole)


def test_a_filter_applies_to_tiles(trace: Trace) -> None:
    tile = body(trace, "tile", level=2, index=0, line="/job/metrics.py:22 remember")
    leak = sum(TRUTH["leak"]["bytes_per_step"])
    assert max(sum(values) for values in zip(*tile["bands"], strict=True)) == leak
    assert max(tile["allocated_bytes"]) > leak  # the curves are those of the device


def test_the_map_marks_the_blocks_that_match(trace: Trace) -> None:
    pieces = body(trace, "map", at="end", line="/job/metrics.py:22 remember")["pieces"]["columns"]
    matching = [size for size, matches in zip(pieces["requested_bytes"], pieces["matches"], strict=True) if matches]
    assert sum(matching) == sum(TRUTH["leak"]["bytes_per_step"])
    assert not any(matches for matches, block in zip(pieces["matches"], pieces["block"], strict=True) if block < 0)


def test_a_tile_with_a_version_never_changes(site: Site, trace: Trace) -> None:
    version = ask(site, "meta").get_json()["version"]
    answer = ask(site, "tile", level=2, index=0, v=version)
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.get_json() == ask(site, "tile", level=2, index=0).get_json() == body(trace, "tile", level=2, index=0)


def test_every_route_answers(site: Site, trace: Trace) -> None:
    for route in ("map", "totals", "blocks"):
        assert ask(site, route).get_json() == body(trace, route), route
    text = ask(site, "blocks", at="all", format="csv").get_data(as_text=True)
    assert len(text.splitlines()) == TRUTH["actions"]["alloc"] + 1
    assert ask(site, "blocks", at="all", format="tsv").get_data(as_text=True).startswith("block\taddress")


def test_a_tile_after_the_history_is_empty(trace: Trace) -> None:
    tile = body(trace, "tile", level=2, index=5)
    assert (tile["entry"], tile["blocks"]["total_rows"]) == ([], 0)


@pytest.mark.parametrize("event", [0, 144, 433, 722, OOM])
def test_the_pieces_of_the_map_add_up(trace: Trace, event: int) -> None:
    answer = body(trace, "map", at=str(event))
    truth = next(state for state in TRUTH["states"] if state["event"] == event)
    segments, pieces = answer["segments"]["columns"], answer["pieces"]["columns"]
    assert sum(pieces["bytes"]) == sum(segments["bytes"]) == truth["reserved_bytes"]
    assert sum(pieces["used_bytes"]) == truth["block_bytes"]
    assert sum(pieces["requested_bytes"]) == truth["requested_bytes"]
    assert answer["merged_below_bytes"] == 0
    end = [0] * len(segments["bytes"])
    for segment, offset, size in zip(pieces["segment"], pieces["offset_bytes"], pieces["bytes"], strict=True):
        assert offset == end[segment]  # no gap and no overlap
        end[segment] += size
    assert end == segments["bytes"]


def test_small_pieces_are_merged(trace: Trace) -> None:
    whole, merged = body(trace, "map", at="433"), body(trace, "map", at="433", max_pieces=100)
    assert merged["pieces"]["total_rows"] <= 100 < whole["pieces"]["total_rows"]
    assert merged["merged_below_bytes"] > 0
    for key in ("bytes", "used_bytes", "requested_bytes"):
        assert sum(merged["pieces"]["columns"][key]) == sum(whole["pieces"]["columns"][key])


def test_totals_of_a_moment(trace: Trace) -> None:
    answer = body(trace, "totals", by="category")
    groups = answer["groups"]["columns"]
    by_name = dict(zip(groups["name"], groups["bytes"], strict=True))
    assert sum(groups["bytes"]) == answer["bytes"] == TRUTH["peak"]["requested_bytes"]
    assert by_name["parameter"] == TRUTH["peak"]["by_category"]["parameter"]
    assert groups["bytes"] == groups["peak_bytes"]  # this moment is the peak


def test_totals_of_a_range_count_what_was_allocated_in_it(trace: Trace) -> None:
    answer = body(trace, "totals", first=0, last=OOM, by="function")
    assert answer["blocks"] == TRUTH["actions"]["alloc"]
    groups = answer["groups"]["columns"]
    assert groups["bytes"] == groups["history_bytes"]
    half = body(trace, "totals", last=499)["blocks"] + body(trace, "totals", first=500)["blocks"]
    assert half == answer["blocks"]


@pytest.mark.parametrize("inverted", [0, 1])
def test_the_tree_of_calls_adds_up(trace: Trace, inverted: int) -> None:
    answer = body(trace, "totals", inverted=bool(inverted))
    calls = answer["calls"]["columns"]
    roots = [row for row, parent in enumerate(calls["parent"]) if parent < 0]
    assert sum(calls["bytes"][row] for row in roots) == sum(calls["own_bytes"]) == answer["bytes"]
    assert all(parent < row for row, parent in enumerate(calls["parent"]))
    depths = calls["depth"]
    assert all(parent < 0 or depths[parent] + 1 == depths[row] for row, parent in enumerate(calls["parent"]))


def test_a_frame_of_the_tree_is_a_filter(trace: Trace) -> None:
    calls = body(trace, "totals", inverted=True, at="end")["calls"]["columns"]
    row = next(i for i, name in enumerate(calls["name"]) if "metrics.py(22)" in name)
    answer = body(trace, "totals", at="end", frame=calls["frame"][row])
    assert answer["bytes"] == sum(TRUTH["leak"]["bytes_per_step"])


def test_text_is_searched_in_call_stacks_and_addresses(trace: Trace) -> None:
    answer = body(trace, "blocks", text="METRICS.py", at="end")
    assert answer["total_rows"] == 3
    columns = answer["columns"]
    assert sum(columns["bytes"]) == sum(TRUTH["leak"]["bytes_per_step"])
    assert columns["died"] == [None] * 3
    address = body(trace, "blocks", text=columns["address"][0], at="end")
    assert address["columns"]["block"] == columns["block"][:1]
    assert body(trace, "blocks", text="0xzz")["total_rows"] == 0
    assert body(trace, "blocks", block=columns["block"][1], at="all")["total_rows"] == 1


def test_blocks_are_sorted_and_paged(trace: Trace) -> None:
    every = body(trace, "blocks", at="all", limit=10_000)
    assert every["total_rows"] == TRUTH["actions"]["alloc"]
    assert every["columns"]["bytes"] == sorted(every["columns"]["bytes"], reverse=True)
    shortest = body(trace, "blocks", at="all", sort="lifetime_entries", order="asc", limit=5)["columns"]
    assert len(shortest["block"]) == 5
    assert shortest["lifetime_entries"][0] == min(filter(None, every["columns"]["lifetime_entries"]))


def test_a_step_names_its_peak(trace: Trace) -> None:
    steps = body(trace, "meta")["steps"]
    answer = body(trace, "map", at="ProfilerStep#1")
    assert steps[1]["first"] <= answer["entry"] <= steps[1]["last"]


@pytest.mark.parametrize(
    ("route", "query"),
    [
        ("map", {"at": "later"}),
        ("map", {"device": "7"}),
        ("totals", {"first": 10, "last": 5}),
        ("blocks", {"sort": "nothing"}),
    ],
)
def test_wrong_parameters_are_refused(trace: Trace, route: str, query: dict[str, object]) -> None:
    with pytest.raises(BadParameter):
        body(trace, route, **query)


def test_other_recordings_have_no_snapshot(make_site: MakeSite) -> None:
    site = make_site()
    site.write("run/trace.json", kineto())
    answer = ask(site, "meta", run="run")
    assert answer.status_code == 409
    assert "not a memory snapshot" in answer.get_json()["error"]


def test_the_recording_of_a_snapshot_has_a_link_and_operators(make_site: MakeSite, tmp_path: Path) -> None:
    site, snapshot_path = make_site(), write_snapshot(tmp_path / "snapshot.pickle")
    site.write("job/snapshot.pickle", snapshot_path.read_bytes())
    site.write("job/a.json", write_recording(tmp_path / "a.json", recorded_allocations()).read_bytes())
    site.write("alone/snapshot.pickle", snapshot_path.read_bytes())
    run = "job/snapshot.pickle"
    (recording,) = ask(site, "meta", run=run).get_json()["recordings"]
    assert (recording["file"], recording["allocations"]) == ("a.json", 5)
    link = {key: recording[key] for key in ("run", "worker", "span")}
    assert site.client.get("/api/v1/timeline/meta", query_string=link).status_code == 200
    answer = ask(site, "totals", run=run, at="end", by="operator", operator="aten::relu").get_json()
    assert answer["groups"]["columns"]["name"] == ["aten::relu"]
    assert ask(site, "meta", run="alone/snapshot.pickle").get_json()["recordings"] == []
    refused = ask(site, "totals", run="alone/snapshot.pickle", by="operator")
    assert refused.status_code == 400
    assert "not joined" in refused.get_json()["error"]
