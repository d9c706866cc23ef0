"""Views of a whole run, as the server works them out: once for all of them, and no more sent than is asked for."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from flask import Flask
from sites import MakeSite, Site

from tests.conftest import SAMPLES
from visualprof.server import heap
from visualprof.views.measure.ranks import run_analysis

RUN = sorted((SAMPLES / "synthetic-4gpu").glob("*.json.gz"))
# A thread holds one of a hundred blocks, between which 200 MB are free.
FREED = """
import threading
from visualprof.reader.allocator import trim_heap

def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) / 1e3

kept = []
def work():
    blocks = [bytearray(100_000) for _ in range(2000)]
    kept.extend(blocks[::100])

thread = threading.Thread(target=work)
thread.start()
thread.join()
before = resident()
trim_heap()
print(before - resident())
"""


def site_of(make_site: MakeSite) -> Site:
    site = make_site()
    for path in RUN:
        site.write(f"run/{path.name}", path.read_bytes())
    return site


def test_the_calls_of_a_run_are_matched_once_for_all_its_views(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, looked = site_of(make_site), list[int]()
    match = run_analysis.call_transfers
    monkeypatch.setattr(run_analysis, "call_transfers", lambda ranks: looked.append(len(ranks)) or match(ranks))
    for asked in ("distributed", "heatmap", "collectives", "distributed?step=2", "heatmap?by=value"):
        name, _, query = asked.partition("?")
        assert site.client.get(f"/api/v1/view/{name}?run=run&{query}").status_code == 200
    assert looked == [len(RUN)]


def test_tables_of_a_run_are_cut_and_its_summary_is_whole(make_site: MakeSite) -> None:
    site = site_of(make_site)
    answer = site.client.get("/api/v1/view/distributed?run=run&limit=1").get_json()
    tables = {name: answer[name] for name in ("ranks", "collectives", "waits", "devices")}
    assert {len(table["columns"]["rank"]) for table in tables.values()} == {1}
    assert (tables["devices"]["total_rows"], tables["ranks"]["total_rows"]) == (len(RUN), len(RUN))
    means = site.client.get("/api/v1/view/distributed?run=run&table=ranks").get_json()["columns"]
    computed, summary = means["computation_ns"], answer["summary"]
    assert (summary["ranks"], sum(device["count"] for device in summary["devices"])) == (len(RUN), len(RUN))
    assert summary["computation_ns"] == round(sum(computed) / len(computed))
    assert (summary["longest_ns"], summary["shortest_ns"]) == (round(max(computed)), round(min(computed)))
    assert summary["longest_rank"] == means["rank"][computed.index(max(computed))]


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_memory_that_a_thread_has_freed_is_given_back() -> None:
    process = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True, timeout=60)
    assert float(process.stdout) > 100  # MB, of 198 that are free


def test_only_requests_that_compute_for_long_return_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    app, trims = Flask("test"), list[int]()
    monkeypatch.setattr(heap, "trim_heap", lambda: trims.append(1))
    heap.install(app)

    @app.get("/<int:milliseconds>")
    def compute(milliseconds: int) -> str:  # pyright: ignore[reportUnusedFunction]
        end = time.thread_time() + milliseconds / 1e3
        while time.thread_time() < end:
            pass
        return ""

    for milliseconds, total in ((1, 0), (150, 1), (1, 1)):
        assert app.test_client().get(f"/{milliseconds}").status_code == 200
        assert len(trims) == total


def test_ranks_known_by_their_names_have_the_views_of_a_run_without_communication(make_site: MakeSite) -> None:
    site = make_site()
    recording = (SAMPLES / "pytorch-cpu" / "gpt.pt.trace.json.gz").read_bytes()
    for rank in (0, 1):
        site.write(f"run/rank{rank}.pt.trace.json.gz", recording)
    answer = site.client.get("/api/v1/view/distributed?run=run")
    assert answer.status_code == 200
    assert sorted(set(answer.get_json()["columns"]["rank"])) == [0, 1]
    (run,) = site.client.get("/api/v1/runs").get_json()["runs"]
    assert all({"distributed", "heatmap"} <= set(worker["spans"][0]["views"]) for worker in run["workers"])


def test_findings_of_a_rank_name_the_late_rank_of_its_run(make_site: MakeSite) -> None:
    site = site_of(make_site)
    for worker in ("", "rank3"):
        findings = site.client.get(f"/api/v1/view/findings?run=run&worker={worker}").get_json()["findings"]
        late = next(finding for finding in findings if finding["id"] == "straggler")
        assert (late["evidence"]["rank"], late["evidence"]["steps_late"]) == (2, 4)
    stragglers = site.client.get("/api/v1/view/distributed?run=run").get_json()["stragglers"]
    assert [straggler["rank"] for straggler in stragglers] == [2]
