"""The timeline over HTTP: every route, its errors, the layout of tiles, caching, exact numbers."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sites import MakeSite, Site, kineto, stepped
from werkzeug.test import TestResponse

from visualprof.server.api import chrome_export

MEGENGINE = Path(__file__).parents[2] / "visualprof" / "samples" / "megengine-train"

Column = NDArray[Any]
LAYOUT = [
    ("start", "<f4"),
    ("end", "<f4"),
    ("event", "<u4"),
    ("name", "<u4"),
    ("count", "<u4"),
    ("lane", "<u2"),
    ("category", "u1"),
]
JSON_ROUTES = ["meta", "strings", "event", "search", "longest", "occurrence", "window", "alignment"]


def ask(site: Site, route: str, **query: object) -> TestResponse:
    return site.client.get(f"/api/v1/timeline/{route}", query_string={"run": "run", **query})


def body(answer: TestResponse) -> dict[str, Any]:
    assert answer.status_code == 200, answer.get_json()
    found = answer.get_json()
    assert isinstance(found, dict)
    return found


def columns(data: bytes) -> dict[str, Column]:
    """A slice tile, read by the layout that docs/http-api.md gives."""
    magic, n = struct.unpack_from("<II", data)
    assert magic == 0x31545056
    at = 8
    out: dict[str, Column] = {}
    for name, kind in LAYOUT:
        out[name] = np.frombuffer(data, kind, n, at)
        at += -(-out[name].nbytes // 4) * 4
    assert at == len(data)
    return out


def whole(site: Site, **query: object) -> dict[str, Column]:
    """A tile that holds everything."""
    return columns(ask(site, "tile", group=0, level=20, index=0, **query).data)


def test_meta_contains_tracks_and_time(site: Site) -> None:
    meta = body(ask(site, "meta"))
    assert [(t["kind"], t["lanes"], t["events"], t["device"]) for t in meta["tracks"]] == [
        ("thread", 2, 8, None),
        ("stream", 1, 4, 0),
    ]
    # Four operators of 7, 7, 17 and 27 us, 5 us apart.
    assert meta["duration_ns"] == 73_000
    assert meta["tile_buckets"] == 256
    assert meta["categories"][1] == "op"
    assert {name: len(shares) for name, shares in meta["minimap"].items()} == {"host": 512, "device": 512}
    assert all(0 <= share <= 1 for shares in meta["minimap"].values() for share in shares)


def test_meta_comes_without_the_profile_when_asked(site: Site) -> None:
    assert body(ask(site, "meta", minimap=0)) == body(ask(site, "meta")) | {"minimap": {}}


def test_meta_comes_without_the_counters_when_asked(site: Site) -> None:
    everything = body(ask(site, "meta"))
    assert everything["counters"]
    assert body(ask(site, "meta", counters=0)) == everything | {"counters": []}


def test_a_tile_holds_every_event_once(site: Site) -> None:
    tile = whole(site)
    assert tile["count"].sum() == 12
    assert (tile["start"] < tile["end"]).all()
    order = np.lexsort((tile["start"], tile["lane"]))
    assert (order == np.arange(len(order))).all()
    meta = body(ask(site, "meta"))
    stream = next(t for t in meta["tracks"] if t["kind"] == "stream")
    kernels = tile["lane"] == stream["group_lane"]
    assert {meta["categories"][c] for c in tile["category"][kernels]} == {"kernel"}


def test_at_the_finest_level_a_bucket_is_a_nanosecond(site: Site) -> None:
    first = columns(ask(site, "tile", group=0, level=0, index=0).data)
    assert (first["start"][0], first["end"][0], first["count"][0]) == (0, 257, 1)
    later = columns(ask(site, "tile", group=0, level=0, index=3).data)
    # What began before the tile counts for nothing and starts before its edge.
    assert (later["start"][0], later["count"][0]) == (-1, 0)


def test_names_of_tiles_are_found_in_the_dictionary(site: Site) -> None:
    everything = body(ask(site, "strings"))
    names = {everything["strings"][i] for i in whole(site)["name"]}
    assert "op2" in names
    part = body(ask(site, "strings", offset=1, limit=2))
    assert part["strings"] == everything["strings"][1:3]
    assert part["total"] == everything["total"] == len(everything["strings"])
    assert body(ask(site, "strings", offset=10**6))["strings"] == []


def test_tiles_with_a_version_never_change(site: Site) -> None:
    version = body(ask(site, "meta"))["version"]
    answer = ask(site, "tile", v=version, group=0, level=5, index=0)
    assert answer.headers["Cache-Control"] == "private, max-age=31536000, immutable"
    assert answer.mimetype == "application/octet-stream"
    plain = ask(site, "tile", group=0, level=5, index=0)
    assert plain.headers["Cache-Control"] == "no-cache"
    assert plain.data == answer.data
    again = site.client.get(
        "/api/v1/timeline/tile?run=run&group=0&level=5&index=0", headers={"If-None-Match": plain.headers["ETag"]}
    )
    assert again.status_code == 304


@pytest.mark.parametrize(
    ("route", "query"),
    [
        ("tile", {"level": 0}),
        ("tile", {"index": 0}),
        ("tile", {"level": 63, "index": 0}),
        ("tile", {"level": 0, "index": -1}),
        ("tile", {"level": 0, "index": 0, "group": 99}),
        ("counter", {"track": 99, "level": 0, "index": 0}),
        ("counter", {"level": 0, "index": 0}),
        ("strings", {"limit": 10**6}),
        ("strings", {"offset": "many"}),
        ("event", {}),
        ("event", {"event": 12}),
        ("search", {}),
        ("search", {"text": "op", "limit": 0}),
        ("longest", {}),
        ("longest", {"name": "op0", "where": "moon"}),
        ("window", {"start_ns": 5, "end_ns": 5}),
        ("window", {"tracks": "0,x"}),
        ("window", {"tracks": "99"}),
        ("export", {"start_ns": 9, "end_ns": 1}),
    ],
)
def test_invalid_parameters_are_reported(site: Site, route: str, query: dict[str, object]) -> None:
    answer = ask(site, route, **query)
    assert answer.status_code == 400
    assert answer.get_json()["error"]


@pytest.mark.parametrize("route", [*JSON_ROUTES, "tile", "counter", "export"])
def test_every_route_needs_a_run(site: Site, route: str) -> None:
    assert site.client.get(f"/api/v1/timeline/{route}").status_code == 400
    query = "run=gone&event=0&text=x&name=x&kind=thread&level=0&index=0&track=0"
    answer = site.client.get(f"/api/v1/timeline/{route}?{query}")
    assert answer.status_code == 404


def test_a_file_that_is_read_is_waited_for(make_site: MakeSite) -> None:
    site = make_site()
    site.parser.asleep = True
    site.write("run/trace.json", kineto())
    answer = ask(site, "meta")
    assert (answer.status_code, answer.get_json()["state"]) == (503, "parsing")


def test_an_event_in_full(site: Site) -> None:
    place = body(ask(site, "longest", name="kernel2"))
    event = body(ask(site, "event", event=place["event"]))
    assert {key: event[key] for key in place} == place
    assert (event["duration_ns"], event["self_ns"]) == (13_500, 13_500)
    assert event["arguments"] == {
        "device": 0,
        "stream": 7,
        "correlation": 4,
        "grid": [1, 1, 1],
        "block": [32, 1, 1],
    }
    launch = event["links"][0]
    assert (launch["kind"], launch["direction"], launch["name"]) == ("launch", "from", "cudaLaunchKernel")
    parent = body(ask(site, "event", event=launch["event"]))["parent"]
    assert parent["name"] == "op2"
    assert body(ask(site, "event", event=parent["event"]))["self_ns"] == 25_000


def test_arguments_are_left_in_the_file_when_not_asked_for(site: Site) -> None:
    quick = body(ask(site, "event", event=0, arguments=0))
    assert quick["arguments"] is None
    assert quick == body(ask(site, "event", event=0)) | {"arguments": None, "slack_ns": None}


def test_numbers_are_exact(make_site: MakeSite) -> None:
    """Times beyond 2**53 ns since the epoch, and raw arguments as the file writes them."""
    site = make_site()
    odd = {"address": 18_446_744_073_709_551_615, "share": 0.1, "text": "ü\u202e\x00"}
    # As text: a float of this size would have steps of a quarter.
    head = '{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, '
    first = head + '"ts": 1700000000000000.125, "dur": 0.001}'
    second = head + f'"ts": 1700000000000000.375, "dur": 7.003, "args": {json.dumps(odd)}}}'
    site.write("run/trace.json", f'{{"schemaVersion": 1, "traceEvents": [{first}, {second}]}}')
    last = body(ask(site, "longest", name="op"))
    assert (last["start_ns"], last["duration_ns"]) == (250, 7_003)
    assert body(ask(site, "event", event=last["event"]))["arguments"] == odd
    meta = body(ask(site, "meta"))
    assert meta["duration_ns"] == 7_253
    assert meta["epoch_ns"] == "1700000000000000125"


def test_search_finds_parts_of_names_in_order_of_time(site: Site) -> None:
    answer = body(ask(site, "search", text="OP"))
    assert (answer["total"], [p["name"] for p in answer["events"]]) == (4, ["op0", "op0", "op1", "op2"])
    assert sum(answer["ticks"]) == 4
    assert len(answer["ticks"]) == 512
    assert body(ask(site, "search", text="op", exact=1))["total"] == 0
    cut = body(ask(site, "search", text="op", limit=1))
    assert (cut["total"], len(cut["events"])) == (4, 1)


def test_the_longest_of_a_name(site: Site) -> None:
    assert body(ask(site, "longest", name="op2", where="host"))["duration_ns"] == 27_000
    assert ask(site, "longest", name="op2", where="device").status_code == 404
    assert ask(site, "longest", name="op").status_code == 404


def test_the_same_event_of_another_run_is_found_by_its_name_and_place(make_site: MakeSite) -> None:
    site = make_site()
    # The second step of both: a, b, a; the base has one a less, and its steps count from 6.
    site.write("run/trace.json", stepped(5, [[("a", 4)], [("a", 5), ("b", 6), ("a", 7)]]))
    site.write("base/trace.json", stepped(6, [[("a", 14), ("a", 15)], [("b", 16), ("a", 17)]]))

    def nth(run: str, dur_us: int) -> int:
        ran = body(ask(site, "search", run=run, text="a", exact=1))["events"]
        event = next(row["event"] for row in ran if row["duration_ns"] == 1000 * dur_us)
        return body(ask(site, "event", run=run, event=event, arguments=0))["nth"]

    assert [nth("run", dur) for dur in (4, 5, 7)] == [0, 0, 1]
    assert [nth("base", dur) for dur in (14, 15, 17)] == [0, 1, 0]

    def beside(step: str, nth: int, kind: str = "stream") -> tuple[int | None, int]:
        answer = body(ask(site, "occurrence", run="base", name="a", kind=kind, step=step, nth=nth))
        return answer["place"] and answer["place"]["duration_ns"], answer["calls"]

    assert beside("7", 0) == (17_000, 1)
    assert beside("7", 1) == (None, 1)
    assert beside("6", 1) == (15_000, 2)
    assert beside("", 2) == (17_000, 3)
    assert beside("99", 0) == (None, 0)
    assert beside("7", 0, "thread") == (None, 0)


def test_every_event_is_found_by_its_index_among_equal_names(make_site: MakeSite) -> None:
    site = make_site()
    document = json.loads(stepped(5, [[("a", 4), ("a", 4), ("b", 3)], [("a", 4), ("a", 6)]]))
    events = document["traceEvents"]
    events += [{**event, "tid": 8, "args": {"stream": 8}} for event in events if event["tid"] == 7]  # at one instant
    site.write("run/trace.json", json.dumps(document))
    meta = body(ask(site, "meta"))
    kinds = {track["id"]: track["kind"] for track in meta["tracks"]}
    seen: set[tuple[str, str | None, int]] = set()
    for row in range(sum(track["events"] for track in meta["tracks"])):
        event = body(ask(site, "event", event=row, arguments=0))
        place = {"name": event["name"], "step": event["step"] or "", "nth": event["nth"]}
        assert body(ask(site, "occurrence", kind=kinds[event["track"]], **place))["place"]["event"] == row
        seen.add((event["name"], event["step"], event["nth"]))
    assert {nth for name, step, nth in seen if (name, step) == ("a", "5")} == {0, 1, 2, 3}


def test_a_window_counts_the_events_inside(site: Site) -> None:
    window = body(ask(site, "window", start_ns=0, end_ns=10_000))
    rows = dict(zip(window["columns"]["name"], window["columns"]["total_ns"], strict=True))
    assert rows == {"op0": 7_000, "kernel0": 3_500, "cudaLaunchKernel": 2_000}
    assert window["columns"]["share_ratio"][0] == 0.7
    assert window["utilization"] == [{"device": 0, "utilization": 0.35}]
    thread = body(ask(site, "meta"))["tracks"][0]["id"]
    chosen = body(ask(site, "window", start_ns=0, end_ns=10_000, tracks=thread, sort="name", order="asc"))
    assert chosen["columns"]["name"] == ["cudaLaunchKernel", "op0"]
    assert body(ask(site, "window", limit=1))["total_rows"] == 7


def test_an_exported_window_reads_like_the_file(site: Site) -> None:
    answer = ask(site, "export", start_ns=46_000)
    assert "attachment" in answer.headers["Content-Disposition"]
    events = json.loads(answer.data)["traceEvents"]
    assert {e["name"] for e in events} == {"op2", "cudaLaunchKernel", "kernel2"}
    assert next(e for e in events if e["name"] == "kernel2")["args"]["correlation"] == 4
    again = site
    again.write("copy/trace.json", json.dumps({"schemaVersion": 1, "traceEvents": events}))
    found = again.client.get("/api/v1/timeline/longest?run=copy&name=kernel2").get_json()
    assert found["duration_ns"] == 13_500


def test_a_too_large_export_is_rejected(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome_export, "MAX_EXPORTED_EVENTS", 3)
    answer = ask(site, "export")
    assert answer.status_code == 400
    assert "12 events" in answer.get_json()["error"]


def test_counters_have_tiles(make_site: MakeSite) -> None:
    site = make_site()
    file = next(path for path in sorted(MEGENGINE.iterdir()) if path.suffix == ".gz")
    site.write(f"run/{file.name}", file.read_bytes())
    counter = max(body(ask(site, "meta"))["counters"], key=lambda one: one["samples"])
    data = ask(site, "counter", track=counter["id"], level=30, index=0).data
    magic, n, before, zero = struct.unpack_from("<IIfI", data)
    assert (magic, zero, np.isnan(before)) == (0x31435056, 0, True)
    bucket, low, high, last = np.frombuffer(data, "<f4", offset=16).reshape(4, n)
    assert (low.min(), high.max()) == (counter["min"], counter["max"])
    assert ((low <= last) & (last <= high) & (bucket >= 0) & (bucket < 256)).all()
    later = ask(site, "counter", track=counter["id"], level=0, index=10**9).data
    assert struct.unpack_from("<IIf", later)[1:] == (0, float(last[-1]))


def test_alignment_compares_clocks_and_collectives(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site()
    for rank, late in (0, 0), (1, 30):
        kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7, "dur": 10}
        events = [kernel | {"ts": 100 + 50 * i + late, "args": {"stream": 7, "device": 0}} for i in range(3)]
        trace = {"schemaVersion": 1, "baseTimeNanoseconds": 10**18, "distributedInfo": {"rank": rank, "world_size": 2}}
        site.write(f"run/rank{rank}.json", json.dumps(trace | {"traceEvents": events}))
    workers = body(ask(site, "alignment"))["workers"]
    assert [w["collectives"] for w in workers] == [0, 3]
    # Each trace counts from its first event: the clocks tell that the second begins, and so ends, 30 us later.
    assert (workers[1]["clock_offset_ns"], workers[1]["collective_residual_ns"]) == (30_000, 30_000)
    assert site.client.get("/api/v1/view/ranks?run=run").status_code == 200  # keeps parts, which have clocks
    monkeypatch.setattr(site.logdir, "open", lambda span: pytest.fail("opened"))
    assert body(ask(site, "alignment"))["workers"] == workers


def test_ranks_without_a_shared_collective_are_aligned_through_a_third(make_site: MakeSite) -> None:
    """Ranks 0 and 1 meet in group a, 1 and 2 in group b; calls of rank 1 end 20 us later, of 2 another 5 us."""
    site = make_site()
    for rank, met, late in (0, "a", 0), (1, "ab", 20), (2, "b", 25):
        events = [
            event
            for step in (0, 1)
            for event in (
                {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1}
                | {"ts": 1000 * step, "dur": 900},
                *(
                    {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": ord(name)}
                    | {"ts": 1000 * step + 100 + ord(name) + late * (1 + step), "dur": 10}
                    | {"args": {"stream": ord(name), "device": 0, "Process Group Name": name, "Group size": 2}}
                    for name in met
                ),
            )
        ]
        trace = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 3}, "traceEvents": events}
        site.write(f"run/rank{rank}.json", json.dumps(trace))

    def residuals(**query: str) -> dict[str, int | None]:
        workers = body(ask(site, "alignment", **query))["workers"]
        return {worker["worker"]: worker["collective_residual_ns"] for worker in workers}

    assert residuals(step="0") == {"rank0": 0, "rank1": 20_000, "rank2": 25_000}
    assert residuals(workers="rank1,rank0", step="1") == {"rank1": 0, "rank0": -40_000}
    assert residuals(workers="rank0,rank2", step="0") == {"rank0": 0, "rank2": None}
    assert ask(site, "alignment", workers="rank0,none").status_code == 404


def test_ranks_with_files_named_by_different_times_are_aligned(make_site: MakeSite) -> None:
    site = make_site()
    for rank in range(3):
        kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7, "dur": 10}
        events = [kernel | {"ts": 100 + 50 * i, "args": {"stream": 7, "device": 0}} for i in range(3)]
        trace = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 3}, "traceEvents": events}
        site.write(f"run/node_{rank}.178295040000{rank}.pt.trace.json", json.dumps(trace))
    own = site.client.get("/api/v1/runs").get_json()["runs"][0]["workers"][1]["spans"][0]["id"]
    workers = body(ask(site, "alignment", workers="node_1,node_2", span=own))["workers"]
    assert [worker["worker"] for worker in workers] == ["node_1", "node_2"]
