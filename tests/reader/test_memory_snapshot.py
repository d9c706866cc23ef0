"""Memory snapshots of PyTorch: decoding, the state after each entry, and what memory is for.

The fixtures come from a model of the allocator that wrote its own truth (`expected.json`): totals, and a digest of all
segments and blocks after eight entries of each file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES
from visualprof.errors import FormatError, UnknownFormat
from visualprof.reader import read_trace
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.memory_snapshot.history import Snapshot, to_columns
from visualprof.reader.memory_snapshot.pickle_values import PickleError, decode
from visualprof.reader.memory_snapshot.roles import ROLES
from visualprof.reader.memory_snapshot.rounding import Rounding, choose_rounding
from visualprof.reader.trace import Trace
from visualprof.reader.trace.heap import Heap, is_at

FOLDER = FIXTURES / "memory_snapshots"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
FILES = sorted(EXPECTED)


def content(name: str) -> bytes:
    data = (FOLDER / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def heap_of(trace: Trace) -> Heap:
    assert trace.heap is not None
    return trace.heap


def layout(heap: Heap, entry: int) -> list[Any]:
    """Segments and blocks after an entry, as the model of the allocator lists them."""
    ranges, blocks = heap.ranges, heap.blocks
    held = np.flatnonzero(is_at(ranges.born, ranges.died, entry))
    live = np.flatnonzero(is_at(blocks.born, blocks.died, entry))
    rows: list[Any] = []
    for row in held[np.argsort(ranges.addr[held])].tolist():
        start = at = int(ranges.addr[row])
        end, pieces = start + int(ranges.size[row]), list[Any]()
        for block in live[np.argsort(blocks.addr[live])].tolist():
            addr = int(blocks.addr[block])
            if not start <= addr < end:
                continue
            if addr > at:
                pieces.append((at, addr - at, 0, "inactive"))
            state = "active_pending_free" if blocks.freed[block] <= entry else "active_allocated"
            pieces.append((addr, int(blocks.size[block]), int(blocks.requested[block]), state))
            at = addr + int(blocks.size[block])
        if at < end:
            pieces.append((at, end - at, 0, "inactive"))
        rows.append((start, end - start, pieces))
    return rows


@pytest.mark.parametrize("name", FILES)
def test_decoding_equals_unpickling(name: str) -> None:
    assert decode(content(name)) == pickle.loads(content(name))


@pytest.mark.parametrize("name", FILES)
def test_the_state_after_each_entry_is_exact(name: str) -> None:
    heap = heap_of(read_trace(FOLDER / name))
    for state in EXPECTED[name]["states"]:
        entry = state["event"]
        live = is_at(heap.blocks.born, heap.blocks.died, entry)
        held = is_at(heap.ranges.born, heap.ranges.died, entry)
        assert int(heap.blocks.requested[live].sum()) == state["requested_bytes"]
        assert int(heap.blocks.size[live].sum()) == state["block_bytes"]
        assert int(heap.ranges.size[held].sum()) == state["reserved_bytes"]
        assert hashlib.sha256(json.dumps(layout(heap, entry)).encode()).hexdigest()[:16] == state["layout"]


@pytest.mark.parametrize("name", FILES)
def test_the_rebuilt_final_state_equals_that_of_the_file(name: str) -> None:
    snapshot = to_columns(decode(content(name)))
    heap = heap_of(read_trace(FOLDER / name))
    (device,) = snapshot.devices
    live = is_at(heap.blocks.born, heap.blocks.died, len(heap.entries) - 1)
    used = device.blocks.state != 0
    rebuilt = sorted(
        zip(*(c[live].tolist() for c in (heap.blocks.addr, heap.blocks.size, heap.blocks.requested)), strict=True)
    )
    recorded = zip(
        *(c[used].tolist() for c in (device.blocks.addr, device.blocks.size, device.blocks.requested)), strict=True
    )
    assert rebuilt == list(recorded)


@pytest.mark.parametrize("name", FILES)
def test_roles_at_the_peak_are_those_of_the_program(name: str) -> None:
    trace = read_trace(FOLDER / name)
    heap, peak = heap_of(trace), EXPECTED[name]["peak"]
    live = is_at(heap.blocks.born, heap.blocks.died, peak["event"])
    for role in ("parameter", "optimizer_state", "activation", "gradient", "input", "graph"):
        is_role = np.array([trace.strings[i] == role for i in heap.blocks.role.tolist()])
        assert int(heap.blocks.requested[live & is_role].sum()) == peak["by_category"].get(role, 0), role


def test_totals_over_time_are_memory_events() -> None:
    trace = read_trace(FOLDER / "train_oom.pickle")
    assert int(trace.allocs.reserved.max()) == 122 << 20
    assert trace.allocs.allocated[-1] == EXPECTED["train_oom.pickle"]["final"]["allocated_bytes"]
    assert [trace.strings[i] for i in trace.steps.name.tolist()] == [f"ProfilerStep#{i}" for i in range(3)]
    assert set(trace.allocs.category.tolist()) <= {trace.strings.index(role) for role in ROLES if role in trace.strings}


def test_memory_older_than_the_history_is_marked() -> None:
    trace = read_trace(FOLDER / "train_ring_buffer.pickle.gz")
    blocks = heap_of(trace).blocks
    assert int((blocks.born < 0).sum()) == 128
    assert int((blocks.exact == 0).sum()) == 10  # released within the history before a neighbor showed their ends
    assert (blocks.born[blocks.exact == 0] < 0).all()


def test_a_snapshot_survives_the_cache(tmp_path: Path) -> None:
    path = FOLDER / "expandable_segments.pickle"
    first, again = (open_trace(path, cache=Cache(tmp_path)) for _ in range(2))
    for part in ("entries", "ranges", "blocks", "stacks", "tables"):
        before, after = getattr(heap_of(first), part), getattr(heap_of(again), part)
        assert all(np.array_equal(getattr(before, name), getattr(after, name)) for name in before.__struct_fields__)


def hostile(text: bytes) -> bytes:
    """A pickle whose first bytes name the keys of a snapshot."""
    keys = b"".join(b"\x8c" + bytes([len(key)]) + key for key in (b"segments", b"device_traces", b"total_size"))
    return b"\x80\x04" + keys + text


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (b"cos\nsystem\n\x8c\x02id\x85R.", "os.system"),
        (b"\x8c\x02os\x8c\x06system\x93.", "no memory snapshot has"),
        (b"Pfile\n.", "no memory snapshot has"),
        (b"]r\xff\xff\xff\x7f.", "of the memo"),
        (b"\x8d" + struct.pack("<Q", 1 << 40) + b"x.", "cut before its end"),
        (b"\x8a\xff" + bytes(255) + b".", "an integer of 255 bytes"),
        (b"]\x94h\x00a.", "no memory snapshot of PyTorch"),
        (b"]" * 100_000 + b"a" * 99_999 + b".", "lists in lists"),
        (b"}.", "no memory snapshot of PyTorch"),
        (b"", "cut before its end"),
        (b"e.", "damaged"),
        (b"000\x87.", "no memory snapshot has"),
        (b"}(K\x01u.", "damaged"),
    ],
)
def test_hostile_pickles_are_refused(tmp_path: Path, steps: bytes, reason: str) -> None:
    path = tmp_path / "hostile.pickle"
    path.write_bytes(hostile(steps))
    with pytest.raises(FormatError, match=reason) as error:
        read_trace(path)
    assert "hostile.pickle" in error.value.error


def test_other_pickles_are_named_and_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "data.pickle"
    path.write_bytes(pickle.dumps({"weights": [1.0]}))
    with pytest.raises(UnknownFormat, match="a Python pickle"):
        read_trace(path)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_of_torch_is_read(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(pickle.loads(content("cuda_graph_pool.pickle")), protocol=protocol))
    assert len(heap_of(read_trace(path)).blocks.addr) == 5


def test_type_tags_of_torch_npu_are_ignored() -> None:
    tagged = b"\x80\x02ctorch.jit._pickle\nrestore_type_tag\n](K\x01K\x02eX\x09\x00\x00\x00List[int]\x86R."
    assert decode(tagged) == [1, 2]


@pytest.mark.parametrize("cut", [1, 100, 5000, 50_000, 103_000])
def test_truncated_snapshots_name_the_file(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.pickle"
    path.write_bytes(content("train_oom.pickle")[:cut])
    with pytest.raises(FormatError, match=r"cut\.pickle"):
        read_trace(path)


def without(entries: list[dict[str, Any]], *actions: str) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["action"] not in actions]


def snapshot_file(folder: Path, **changes: Any) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(pickle.loads(content("rank0_snapshot.pickle")) | changes))
    return path


def test_a_history_without_completed_releases_ends_blocks_at_their_requests(tmp_path: Path) -> None:
    traces = pickle.loads(content("rank0_snapshot.pickle"))["device_traces"]
    heap = heap_of(read_trace(snapshot_file(tmp_path, device_traces=[without(traces[0], "free_completed")])))
    assert int((heap.blocks.died < len(heap.entries)).sum()) == 55


def test_missing_entries_are_counted_and_warned_of(tmp_path: Path) -> None:
    traces = pickle.loads(content("rank0_snapshot.pickle"))["device_traces"]
    trace = read_trace(snapshot_file(tmp_path, device_traces=[without(traces[0], "alloc")]))
    assert any("others are missing" in warning for warning in trace.meta.warnings)


def test_unknown_actions_are_counted(tmp_path: Path) -> None:
    traces = pickle.loads(content("rank0_snapshot.pickle"))["device_traces"]
    traces[0][5:5] = [{"action": "workspace_snapshot", "addr": 0, "size": 0}]
    trace = read_trace(snapshot_file(tmp_path, device_traces=traces))
    assert any("unknown action" in warning for warning in trace.meta.warnings)


def test_a_snapshot_without_history_says_how_to_record_one(tmp_path: Path) -> None:
    trace = read_trace(snapshot_file(tmp_path, device_traces=[[]]))
    assert any("_record_memory_history" in warning for warning in trace.meta.warnings)
    assert len(heap_of(trace).blocks.addr) == 42  # the active blocks of the final state


def test_a_list_of_segments_is_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "segments.pickle"
    path.write_bytes(pickle.dumps(pickle.loads(content("rank0_snapshot.pickle"))["segments"]))
    assert len(heap_of(read_trace(path)).ranges.addr) == 13


def npu_snapshot() -> Snapshot:
    """Blocks of torch_npu: 32 more bytes are rounded."""
    blocks = [
        {"address": 512 * 2 * i, "size": 1024, "requested_size": 500, "state": "active_allocated", "frames": []}
        for i in range(3)
    ]
    segment = {"device": 0, "address": 0, "total_size": 3072, "stream": 0, "segment_type": "small", "blocks": blocks}
    return to_columns({"segments": [segment], "device_traces": []})


def test_the_rounding_of_torch_npu_is_told_by_the_blocks() -> None:
    assert choose_rounding(npu_snapshot().devices[0], {}).block_size(480) == 512
    assert choose_rounding(npu_snapshot().devices[0], {}).block_size(481) == 1024


def test_sizes_are_rounded_to_divisions_of_powers_of_two() -> None:
    rounding = Rounding({"roundup_power2_divisions": {"1": 4, "256": 0}})
    assert rounding.block_size((1 << 20) + 1) == (1 << 20) + (1 << 18)
    assert rounding.block_size(1 << 20) == 1 << 20
    assert Rounding({}).block_size(1) == 512


def test_pickles_of_python_lists_alone_stay_unopened(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pickle.dump([1, 2], buffer)
    with pytest.raises(PickleError):
        to_columns(decode(buffer.getvalue()))
