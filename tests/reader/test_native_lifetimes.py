"""Lifetimes of blocks by the native library equal those of the pure-Python passes, also for damaged histories."""

from __future__ import annotations

import gzip
import random

import msgspec
import numpy as np
import pytest

from tests.conftest import FIXTURES
from visualprof.reader import native
from visualprof.reader.formats.torch_snapshot import read_snapshot
from visualprof.reader.memory_snapshot.history import DeviceSnapshot
from visualprof.reader.memory_snapshot.native_state import native_lifetimes
from visualprof.reader.memory_snapshot.rounding import NPU_EXTRA_BYTES, Rounding
from visualprof.reader.memory_snapshot.state import python_lifetimes
from visualprof.reader.trace.heap import Entries

pytestmark = pytest.mark.skipif(native.library() is None, reason="the native reader is not compiled")
FOLDER = FIXTURES / "memory_snapshots"
FILES = sorted(path.name for path in FOLDER.glob("*.pickle*"))
ROUNDINGS = [
    Rounding({}),
    Rounding({"max_split_size": 4 << 20}, NPU_EXTRA_BYTES),
    Rounding({"roundup_power2_divisions": {"1": 4, "2": 8, "16": 2}}),
]


def devices(name: str) -> list[DeviceSnapshot]:
    data = (FOLDER / name).read_bytes()
    return read_snapshot(gzip.decompress(data) if name.endswith(".gz") else data).devices


def assert_equal(device: DeviceSnapshot, rounding: Rounding) -> None:
    expected = python_lifetimes(device, device.entries.action, rounding, 7)
    lifetimes = native_lifetimes(device, device.entries.action, rounding, 7)
    assert lifetimes is not None
    ranges, blocks, lost = lifetimes
    assert lost == expected.lost
    for rows, others in ((ranges, expected.ranges), (blocks, expected.blocks)):
        for field in rows.__struct_fields__:
            column, other = getattr(rows, field), getattr(others, field)
            assert column.dtype == other.dtype
            np.testing.assert_array_equal(column, other, field)


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=["cuda", "npu", "divisions"])
@pytest.mark.parametrize("name", FILES)
def test_lifetimes_are_equal(name: str, rounding: Rounding) -> None:
    for device in devices(name):
        assert_equal(device, rounding)


@pytest.mark.parametrize("name", ["expandable_segments.pickle", "cuda_graph_pool.pickle", "rank1_snapshot.pickle"])
def test_lifetimes_of_damaged_histories_are_equal(name: str) -> None:
    """Entries are left out, repeated, or moved, so that ranges overlap and releases are missing."""
    chance = random.Random(name)
    for device in devices(name):
        count = len(device.entries)
        for share in (0.02, 0.3, 0.9):
            rows = [row for row in range(count) if chance.random() > share]
            rows += chance.choices(range(count), k=int(count * share / 2))
            if share > 0.5:
                chance.shuffle(rows)
            columns = {field: getattr(device.entries, field)[rows] for field in Entries.__struct_fields__}
            assert_equal(msgspec.structs.replace(device, entries=Entries(**columns)), ROUNDINGS[0])


def test_a_history_of_many_live_blocks_is_equal() -> None:
    """Neighboring blocks are allocated and released at random: chunks of the ordered map split and empty."""
    chance = random.Random(41)
    live: list[int] = []
    rows: list[tuple[int, int, int]] = [(4, 1 << 30, 4 << 20)]
    slots = list(range(4096))
    chance.shuffle(slots)
    for _ in range(12_000):
        if slots and (not live or chance.random() < 0.6):
            slot = slots.pop()
            live.append(slot)
            rows.append((1, (1 << 30) + slot * 1024, chance.choice((100, 512, 700, 1024))))
        else:
            slot = live.pop(chance.randrange(len(live)))
            slots.insert(0, slot)
            rows += [(action, (1 << 30) + slot * 1024, 512) for action in (2, 3)]
    action, addr, size = (np.array(column) for column in zip(*rows, strict=True))
    zeros = np.zeros(len(rows), np.int32)
    entries = Entries(action.astype(np.uint8), addr, size, addr, zeros, zeros, zeros + 3)
    (device,) = devices("cuda_graph_pool.pickle")
    assert_equal(msgspec.structs.replace(device, entries=entries), ROUNDINGS[0])


def test_addresses_beyond_the_limit_are_left_to_python() -> None:
    (device,) = devices("cuda_graph_pool.pickle")
    far = msgspec.structs.replace(device.entries, addr=device.entries.addr + 2**61)
    assert native_lifetimes(msgspec.structs.replace(device, entries=far), far.action, ROUNDINGS[0], 0) is None
