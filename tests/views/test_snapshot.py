"""The view of memory snapshots against the truth of the model that wrote the fixtures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conftest import FIXTURES
from visualprof.errors import BadParameter
from visualprof.reader import read_trace
from visualprof.reader.trace import Trace
from visualprof.views.measure.findings.detection import RuleContext
from visualprof.views.measure.heap.growth import find_growth
from visualprof.views.measure.heap.moment import device_entries, peak_entry, requested_curve
from visualprof.views.measure.heap.out_of_memory import explain_failure, failure_cause, segment_bytes
from visualprof.views.rules import activations_at_peak, memory_grows, out_of_memory
from visualprof.views.snapshot import VIEW, SnapshotAnswer, SnapshotParams

FOLDER = FIXTURES / "memory_snapshots"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
FILES = sorted(EXPECTED)
MIB = 1 << 20


@pytest.fixture(scope="module")
def oom() -> Trace:
    return read_trace(FOLDER / "train_oom.pickle")


def answer(trace: Trace, **params: Any) -> SnapshotAnswer:
    result = VIEW.answer(trace, SnapshotParams(**params))
    assert isinstance(result, SnapshotAnswer)
    return result


@pytest.mark.parametrize("name", FILES)
def test_final_totals_are_those_of_the_allocator(name: str) -> None:
    result, final = answer(read_trace(FOLDER / name), at="end"), EXPECTED[name]["final"]
    assert result.requested_bytes == final["requested_bytes"]
    assert result.allocated_bytes == final["allocated_bytes"]
    assert result.active_bytes == final["active_bytes"]
    assert result.reserved_bytes == final["reserved_bytes"]
    assert result.cached_bytes == final["cached_segment_bytes"]
    assert result.inactive_split_bytes == final["inactive_split_bytes"]
    assert result.largest_free_bytes == final["largest_free_block"]
    assert result.rounding_bytes == EXPECTED[name]["rounding_waste_bytes"]
    assert len(result.segments) == final["segments"]


@pytest.mark.parametrize("name", FILES)
def test_the_peak_is_the_first_largest_total(name: str) -> None:
    result, peak = answer(read_trace(FOLDER / name)), EXPECTED[name]["peak"]
    assert (result.entry, result.requested_bytes) == (peak["event"], peak["requested_bytes"])
    assert max(result.curve.columns.requested_bytes) == peak["requested_bytes"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("by", ["line", "function", "stack", "category", "pool"])
def test_groups_add_up_to_the_total(name: str, by: Any) -> None:
    result = answer(read_trace(FOLDER / name), by=by)
    alive = result.alive.columns
    assert sum(alive.bytes) == result.requested_bytes
    assert sum(alive.share) == pytest.approx(1)
    assert sum(result.segments.columns.used_bytes) == result.active_bytes


def test_the_failed_allocation_is_explained(oom: Trace) -> None:
    result, truth = answer(oom, at="oom"), EXPECTED["train_oom.pickle"]["oom"]
    failure = result.failure
    assert failure is not None
    assert failure.cause == truth["cause"] == "fragmentation"
    assert (failure.entry, result.entry) == (truth["event"], truth["event"])
    assert failure.needed_bytes == truth["requested_block_bytes"] == 24 * MIB
    assert failure.segment_bytes == truth["segment_bytes"]
    assert failure.device_free_bytes == truth["device_free_bytes"] == 18 * MIB
    assert (failure.usable_bytes, failure.usable_pieces) == (truth["usable_free_bytes"], truth["usable_free_blocks"])
    assert failure.largest_usable_bytes == truth["largest_usable_block"]
    assert failure.in_the_way_bytes is None  # no segment has 24 MiB
    assert failure.stack[0] == "/job/eval.py(60): concatenate"


def test_blocks_in_the_way_are_the_cheapest_neighbors(oom: Trace) -> None:
    heap = oom.heap
    assert heap is not None
    entries = heap.entries
    smaller = entries.size.copy()
    smaller[1011] = 14 * MIB
    failure = explain_failure(replace(heap, entries=replace(entries, size=smaller)), 0, 1011)
    assert failure.cause == "fragmentation"
    assert 0 < failure.in_the_way_bytes <= 10 * MIB
    rows = failure.in_the_way
    first, last = int(heap.blocks.addr[rows].min()), int((heap.blocks.addr + heap.blocks.size)[rows].max())
    assert last - first + 2 * failure.largest_usable >= 14 * MIB


@pytest.mark.parametrize(
    ("needed", "usable", "largest", "elsewhere", "cause"),
    [
        (10, 20, 10, 0, "not_allocator"),
        (10, 12, 6, 0, "fragmentation"),
        (10, 4, 4, 10, "other_pool"),
        (10, 4, 4, 9, "capacity"),
    ],
)
def test_causes_are_tried_in_the_order_of_the_search(
    needed: int, usable: int, largest: int, elsewhere: int, cause: str
) -> None:
    assert failure_cause(needed, usable, largest, elsewhere) == cause


@pytest.mark.parametrize(
    ("needed", "segment"),
    [(512, 2 * MIB), (MIB, 2 * MIB), (MIB + 512, 20 * MIB), (10 * MIB, 10 * MIB), (24 * MIB + 512, 26 * MIB)],
)
def test_segments_have_the_sizes_of_the_allocator(needed: int, segment: int) -> None:
    assert segment_bytes(needed) == segment


def test_the_line_that_grows_in_every_step_is_named(oom: Trace) -> None:
    growth, truth = answer(oom).growth.columns, EXPECTED["train_oom.pickle"]["leak"]
    assert list(growth.name) == ["/job/metrics.py:22 remember"]
    assert list(growth.bytes) == [sum(truth["bytes_per_step"])]
    assert list(growth.steps) == [3]


def test_remedies_of_a_failure_have_amounts(oom: Trace) -> None:
    failure = answer(oom).failure
    assert failure is not None
    assert failure.missing_bytes == 24 * MIB - 18 * MIB
    remedies = failure.remedies.columns
    rows = dict(zip(remedies.kind, zip(remedies.bytes, remedies.may_fit, strict=True), strict=True))
    truth = EXPECTED["train_oom.pickle"]
    assert remedies.kind[0] == "expandable_segments"
    assert rows["expandable_segments"] == (truth["oom"]["usable_free_bytes"], True)
    assert rows["smaller_optimizer"] == (truth["peak"]["by_category"]["optimizer_state"], True)
    assert rows["fix_growth"] == (sum(truth["leak"]["bytes_per_step"]), False)


def test_holders_of_a_failure_show_what_the_last_step_added(oom: Trace) -> None:
    failure = answer(oom).failure
    assert failure is not None
    columns = failure.holders.columns
    rows = dict(zip(columns.name, zip(columns.bytes, columns.change_bytes, strict=True), strict=True))
    truth = EXPECTED["train_oom.pickle"]
    assert rows["/job/eval.py:40 beam"] == (truth["alive_at_end"]["beam"],) * 2
    assert rows["/job/metrics.py:22 remember"] == (truth["alive_at_end"]["leak"], truth["leak"]["bytes_per_step"][-1])


def test_the_failure_and_the_growth_are_findings(oom: Trace) -> None:
    context = RuleContext(oom)
    (failure,) = out_of_memory.detect(context)
    assert (failure.variant, failure.severity) == ("fragmentation", "high")
    assert failure.evidence["needed_bytes"] == 24 * MIB
    assert failure.evidence["line"] == "/job/eval.py:40 beam"
    (growth,) = memory_grows.detect(context)
    assert growth.evidence["line"] == "/job/metrics.py:22 remember"
    assert growth.evidence["kept_bytes"] == sum(EXPECTED["train_oom.pickle"]["leak"]["bytes_per_step"])


@pytest.mark.parametrize("name", ["cuda_graph_pool.pickle", "rank0_snapshot.pickle"])
def test_snapshots_without_a_failure_or_steps_have_no_such_finding(name: str) -> None:
    context = RuleContext(read_trace(FOLDER / name))
    assert [*out_of_memory.detect(context), *memory_grows.detect(context)] == []


def test_activations_at_the_peak_are_a_finding(oom: Trace) -> None:
    (finding,) = activations_at_peak.detect(RuleContext(read_trace(FOLDER / "train_ring_buffer.pickle.gz")))
    truth = EXPECTED["train_ring_buffer.pickle.gz"]["peak"]["by_category"]["activation"]
    assert finding.evidence["activation_bytes"] == truth
    assert 0 < int(finding.evidence["freed_bytes"]) < truth
    assert list(activations_at_peak.detect(RuleContext(oom))) == []  # beam search makes the peak


def test_two_steps_do_not_prove_growth(oom: Trace) -> None:
    heap = oom.heap
    assert heap is not None
    assert find_growth(heap, 0, [(0, 300), (300, 600)], heap.blocks.stack) == []


def test_the_rank_of_a_file_may_have_any_device_number() -> None:
    trace = read_trace(FOLDER / "rank1_snapshot.pickle")
    result = answer(trace)
    assert (result.device, result.devices) == (1, [1])
    assert result.ts_ns is None  # the file has no times


def test_memory_of_private_pools_is_shown_as_such() -> None:
    result = answer(read_trace(FOLDER / "cuda_graph_pool.pickle"), by="category", at="end")
    assert list(result.alive.columns.name) == ["graph"]
    assert set(result.segments.columns.pool) == {"0:1", "default"}


def test_a_moment_is_named_or_numbered(oom: Trace) -> None:
    heap = oom.heap
    assert heap is not None
    first, end = device_entries(heap, 0)
    assert answer(oom, at="0").entry == 0
    assert answer(oom, at="-1").requested_bytes == 0
    assert answer(oom, at="end").entry == end - first - 1
    assert requested_curve(heap, 0)[peak_entry(heap, 0) + 1] == answer(oom).requested_bytes


@pytest.mark.parametrize("at", ["1012", "-2", "later", "9" * 30, "1.5", ""])
def test_unknown_moments_are_refused(oom: Trace, at: str) -> None:
    with pytest.raises(BadParameter, match="no moment"):
        answer(oom, at=at)


def test_memory_before_the_history_is_told_apart() -> None:
    result = answer(read_trace(FOLDER / "train_ring_buffer.pickle.gz"), at="-1")
    assert result.before_history_bytes == result.requested_bytes > 0


def test_charts_show_the_curve_and_the_groups(oom: Trace) -> None:
    result = answer(oom)
    assert VIEW.charts is not None
    assert set(VIEW.charts(result, SnapshotParams(), 5)) == {"curve", "alive"}
