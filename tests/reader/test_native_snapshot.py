"""The native reader of memory snapshots and its pure-Python fallback have the same results."""

from __future__ import annotations

import gzip
import random
import time

import msgspec
import numpy as np
import pytest

from benchmarks.snapshot_file import snapshot_parts
from tests.conftest import FIXTURES
from tests.recordings import LOCAL_COPY
from visualprof.reader import native
from visualprof.reader.memory_snapshot.history import Snapshot, to_columns
from visualprof.reader.memory_snapshot.native_history import read_columns
from visualprof.reader.memory_snapshot.pickle_values import PickleError, decode

pytestmark = pytest.mark.skipif(native.library() is None, reason="the native reader is not compiled")
FOLDER = FIXTURES / "memory_snapshots"
HOSTILE = LOCAL_COPY / "traces" / "memory_snapshots" / "hostile"
OLD_FORM = "torch_2_0_history.pickle"  # a history per block: read by Python only
FILES = sorted(path.name for path in FOLDER.glob("*.pickle*"))


def content(name: str) -> bytes:
    data = (FOLDER / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def plain(value: object) -> object:
    """A snapshot as built-in values, arrays with their types."""
    if isinstance(value, np.ndarray):
        return value.dtype.name, value.tolist()
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return [plain(item) for item in value] if isinstance(value, list) else value


def by_python(data: bytes) -> Snapshot | None:
    try:
        return to_columns(decode(data))
    except PickleError:
        return None


@pytest.mark.parametrize("name", FILES)
def test_both_readers_return_the_same_columns(name: str) -> None:
    data = content(name)
    snapshot = read_columns(data)
    assert (snapshot is None) == (name == OLD_FORM)
    assert snapshot is None or plain(snapshot) == plain(by_python(data))


def test_large_memo_indices_and_many_stacks() -> None:
    data = b"".join(snapshot_parts(3000, 12))
    snapshot = read_columns(data)
    assert snapshot is not None
    assert len(snapshot.stacks.offsets) == 402
    assert plain(snapshot) == plain(by_python(data))


@pytest.mark.parametrize("name", ["cuda_graph_pool.pickle", "rank0_snapshot.pickle"])
def test_damaged_files_are_read_alike_or_left_to_python(name: str) -> None:
    data, chance = content(name), random.Random(name)
    read = 0
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 1, 3))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        cut = bytes(damaged[: chance.choice((len(damaged), chance.randrange(len(damaged))))])
        snapshot = read_columns(cut)
        if snapshot is not None:
            read += 1
            assert plain(snapshot) == plain(by_python(cut))
    assert read  # some damage only changes a number


@pytest.mark.skipif(not HOSTILE.is_dir(), reason="shared samples are missing")
def test_hostile_files_are_left_at_once() -> None:
    for path in sorted(HOSTILE.iterdir()):
        start = time.process_time()
        assert read_columns(path.read_bytes()) is None
        assert by_python(path.read_bytes()) is None, path.name
        assert time.process_time() - start < 0.5, path.name
