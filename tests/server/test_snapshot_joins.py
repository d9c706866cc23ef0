"""From a recording to the memory snapshot of the same process: its link, and moments by the recording's time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sites import MakeSite, Site, kineto

from tests.heap_programs import FIRST_US, FORWARD, Program
from tests.reader.test_snapshot_origins import ADDRESSES, BLOCKS, SIZES, memory, recorded_allocations, write_recording
from visualprof.reader.memory_snapshot.recordings import find_snapshots

FILE = "host_1.step4.pt.trace.json"
SNAPSHOT = "host_1.memory_snapshot.pickle"
MAPPED_US = 9  # the first entry maps the segment, after the start
ENTRY_US = [10, 20, 30, 40, 50]  # of the allocations
CLOCK_US = 3  # the clock of the recording is ahead
FIRST_EVENT_US = 5  # of the recording


def recorded_ns(entry_us: float) -> int:
    """A time of the snapshot on the timeline of the recording."""
    return round((entry_us + CLOCK_US - FIRST_EVENT_US) * 1000)


@pytest.fixture
def site(make_site: MakeSite, tmp_path: Path) -> Site:
    """The snapshot has five allocations; the first block is released 5 us after the fifth allocation."""
    site, program = make_site(), Program()
    addresses = [program.alloc(size, FORWARD) for size in SIZES]
    assert addresses == ADDRESSES
    program.free(addresses[0])
    for row in program.entries[len(SIZES) :]:
        row["time_us"] = FIRST_US + 55
    assert [row["time_us"] - FIRST_US for row in program.entries[: len(SIZES)]] == ENTRY_US
    site.write(f"job/{SNAPSHOT}", program.write(tmp_path / SNAPSHOT).read_bytes())
    site.write(f"job/{FILE}", write_recording(tmp_path / FILE, recorded_allocations(CLOCK_US)).read_bytes())
    return site


def ask(site: Site, path: str, **query: object) -> Any:
    return site.client.get(f"/api/v1/{path}", query_string=query)


def joined(site: Site, name: str) -> list[dict[str, Any]]:
    """The snapshots of a recording, given by its path."""
    (span,) = [
        {"run": run["id"], "worker": worker["id"], "span": span["id"]}
        for run in ask(site, "runs").get_json()["runs"]
        for worker in run["workers"]
        for span in worker["spans"]
        if span["file"] == name
    ]
    return ask(site, "snapshot/joined", **span).get_json()["snapshots"]


def test_a_recording_has_the_link_to_its_snapshot(site: Site) -> None:
    (snapshot,) = joined(site, f"job/{FILE}")
    assert (snapshot["file"], snapshot["recording"], snapshot["device"]) == (SNAPSHOT, FILE, 0)
    assert (snapshot["start_ns"], snapshot["end_ns"]) == (recorded_ns(MAPPED_US), recorded_ns(55))
    link = {key: snapshot[key] for key in ("run", "worker", "span")}
    (recording,) = ask(site, "snapshot/meta", **link).get_json()["recordings"]
    assert {key: recording[key] for key in ("start_ns", "end_ns")} == {
        key: snapshot[key] for key in ("start_ns", "end_ns")
    }


@pytest.mark.parametrize(
    ("ns", "entry", "bytes_then"),
    [
        (recorded_ns(MAPPED_US), 0, 0),
        (recorded_ns(10), 1, sum(SIZES[:1])),
        (recorded_ns(20) - 1, 1, sum(SIZES[:1])),
        (recorded_ns(20), 2, sum(SIZES[:2])),
        (recorded_ns(54), 5, sum(SIZES)),
        (recorded_ns(55), 7, sum(SIZES[1:])),
    ],
)
def test_a_time_of_the_recording_is_a_moment_of_the_snapshot(site: Site, ns: int, entry: int, bytes_then: int) -> None:
    (snapshot,) = joined(site, f"job/{FILE}")
    link = {key: snapshot[key] for key in ("run", "worker", "span")}
    answer = ask(site, "snapshot/map", **link, at=f"{ns}@{FILE}").get_json()
    assert (answer["entry"], answer["requested_bytes"]) == (entry, bytes_then)


@pytest.mark.parametrize(
    "at", [f"{recorded_ns(MAPPED_US) - 1}@{FILE}", f"{recorded_ns(55) + 1}@{FILE}", "9000@other.json"]
)
def test_a_time_outside_of_the_history_is_no_moment(site: Site, at: str) -> None:
    (snapshot,) = joined(site, f"job/{FILE}")
    answer = ask(site, "snapshot/map", run=snapshot["run"], at=at)
    assert answer.status_code == 400
    assert "does not contain" in answer.get_json()["error"]


def test_other_recordings_have_no_link(site: Site) -> None:
    site.write("other/trace.json", kineto())
    site.write("other/weights.pickle", b"\x80\x04]\x94.")
    site.write("job/host_2.step4.pt.trace.json", kineto())
    assert joined(site, "other/trace.json") == []
    assert joined(site, "job/host_2.step4.pt.trace.json") == []


def test_a_refused_pair_has_no_link(make_site: MakeSite, tmp_path: Path) -> None:
    site, program = make_site(), Program()
    program.alloc(SIZES[0], FORWARD)
    site.write(f"job/{SNAPSHOT}", program.write(tmp_path / SNAPSHOT).read_bytes())
    recording = write_recording(tmp_path / FILE, [memory(13, ADDRESSES[0], BLOCKS[0])])  # fewer than can prove it
    site.write(f"job/{FILE}", recording.read_bytes())
    assert joined(site, f"job/{FILE}") == []


@pytest.mark.parametrize(
    ("recording", "others", "found"),
    [
        (FILE, [SNAPSHOT, "host_1.oom.memory_snapshot.pickle", "host_12.memory_snapshot.pickle"], [0, 1]),
        ("rank1_trace.json", ["rank0_snapshot.pickle", "rank1_snapshot.pickle", "rank01.pkl.gz"], [1, 2]),
        ("trace.json", ["snapshot.pickle"], [0]),
        ("trace.json", ["snapshot.pickle", "weights.pkl"], []),
        ("trace.json", ["snapshot.pickle", "other.json"], []),
    ],
)
def test_snapshots_are_found_by_their_names(recording: str, others: list[str], found: list[int]) -> None:
    names = find_snapshots(f"run/{recording}", sorted([recording, *others]))
    assert sorted(names) == sorted(others[row] for row in found)
