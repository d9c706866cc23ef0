"""Parsed traces on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import platformdirs
import pytest
from msgspec.structs import replace

from tests.conftest import ROOT
from visualprof.reader import Trace, read_trace
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.source import Source
from visualprof.reader.trace.codec import Strings

EVENTS = [
    {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 1,
        "tid": 1,
        "ts": 10,
        "dur": 5,
        "args": {"External id": 1},
    },
    {"ph": "X", "cat": "cpu_op", "name": "卷积 ✓", "pid": 1, "tid": 1, "ts": 20, "dur": 5, "args": {"External id": 2}},
    {
        "ph": "X",
        "cat": "kernel",
        "name": "gemm",
        "pid": 0,
        "tid": 7,
        "ts": 30,
        "dur": 5,
        "args": {"stream": 7, "device": 0},
    },
]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def assert_same(one: msgspec.Struct, other: msgspec.Struct) -> None:
    for field in one.__struct_fields__:
        left, right = getattr(one, field), getattr(other, field)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            assert np.array_equal(left, right, equal_nan=left.dtype.kind == "f"), field
        elif isinstance(left, msgspec.Struct):
            assert_same(left, right)
        elif field == "args":
            assert left.keys() == right.keys()
            for name in left:
                assert_same(left[name], right[name])
        elif field == "strings":
            assert tuple(left) == tuple(right)
        else:
            assert left == right, field


def test_a_stored_trace_comes_back_the_same(profile: Path, cache: Cache) -> None:
    trace = read_trace(profile)
    assert cache.store(trace, "f")
    loaded = cache.load("f")
    assert loaded is not None
    assert_same(trace, loaded)


def test_the_columns_of_a_loaded_trace_cannot_be_changed(profile: Path, cache: Cache) -> None:
    cache.store(read_trace(profile), "f")
    loaded = cache.load("f")
    assert loaded is not None
    with pytest.raises(ValueError, match="read-only"):
        loaded.events.ts[0] = 0


def test_strings_behave_like_a_tuple(profile: Path, cache: Cache) -> None:
    trace = with_strings(read_trace(profile), ("", "a", "卷积", "\ud800 half a pair", "z"))
    cache.store(trace, "f")
    loaded = cache.load("f")
    assert loaded is not None
    strings = loaded.strings
    assert isinstance(strings, Strings)
    assert len(strings) == 5
    assert [strings[0], strings[2], strings[-1]] == ["", "卷积", "z"]
    assert strings[1:3] == ("a", "卷积")
    assert list(strings) == list(trace.strings)
    assert strings == trace.strings
    assert "a" in strings
    with pytest.raises(IndexError):
        _ = strings[5]


def with_strings(trace: Trace, strings: tuple[str, ...]) -> Trace:
    return replace(trace, strings=strings)


def test_a_missing_entry_gives_none(cache: Cache) -> None:
    assert cache.load("nothing") is None


@pytest.mark.parametrize("part", [0.0, 0.001, 0.3, 0.9, 0.9999])
def test_half_a_file_counts_as_absent(profile: Path, cache: Cache, part: float) -> None:
    cache.store(read_trace(profile), "f")
    path = cache.path("f")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
    assert cache.load("f") is None


def test_a_file_of_another_content_counts_as_absent(profile: Path, cache: Cache) -> None:
    cache.store(read_trace(profile), "f")
    cache.path("f").rename(cache.path("g"))
    assert cache.load("g") is None


def test_a_foreign_file_counts_as_absent(cache: Cache) -> None:
    cache.folder.mkdir()
    cache.path("f").write_bytes(os.urandom(10_000))
    assert cache.load("f") is None


def test_the_least_recently_used_go_beyond_the_cap(profile: Path, cache: Cache) -> None:
    trace = read_trace(profile)
    cache.store(trace, "old")
    size = cache.path("old").stat().st_size
    small = Cache(cache.folder, max_bytes=size * 5 // 2)
    small.store(trace, "older")
    age(small.path("old"), 100)
    age(small.path("older"), 200)
    assert small.load("older") is not None  # used: now "old" is the oldest
    small.store(trace, "new")
    assert [small.load(name) is not None for name in ("old", "older", "new")] == [False, True, True]


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_the_newest_entry_stays_even_if_it_exceeds_the_limit(profile: Path, cache: Cache) -> None:
    tiny = Cache(cache.folder, max_bytes=1)
    tiny.store(read_trace(profile), "f")
    assert tiny.load("f") is not None


def test_leftovers_of_a_crashed_writer_are_removed_after_an_hour(profile: Path, cache: Cache) -> None:
    cache.folder.mkdir()
    (fresh, stale) = (cache.folder / ".a.1.tmp", cache.folder / ".b.2.tmp")
    fresh.touch()
    stale.touch()
    age(stale, 4000)
    cache.store(read_trace(profile), "f")
    assert fresh.exists()
    assert not stale.exists()


def test_a_folder_that_cannot_be_written_is_not_an_error(profile: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = Cache(tmp_path / "file" / "cache")
    assert not cache.is_writable()
    assert not cache.store(read_trace(profile), "f")
    assert len(open_trace(profile, cache=cache).events) == 3


def test_no_temporary_file_remains(profile: Path, cache: Cache) -> None:
    cache.store(read_trace(profile), "f")
    assert [path.suffix for path in cache.folder.iterdir()] == [".vptrace"]


def test_the_second_opening_does_not_read_the_file_again(profile: Path, cache: Cache) -> None:
    assert not isinstance(open_trace(profile, cache=cache).strings, Strings)
    assert isinstance(open_trace(profile, cache=cache).strings, Strings)


def test_a_changed_file_is_read_again(profile: Path, cache: Cache) -> None:
    open_trace(profile, cache=cache)
    profile.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS[:1]}))
    assert len(open_trace(profile, cache=cache).events) == 1


def test_the_environment_names_folder_and_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("VISUALPROF_CACHE_MAX_BYTES", "1000")
    assert Cache.default() == Cache(tmp_path, 1000)


@pytest.mark.slow
def test_the_first_openings_of_a_process_may_come_at_the_same_moment(profile: Path, cache: Cache) -> None:
    """Each in a process of its own, as the first opening is what counts; a page asks for view and charts at once."""
    cache.store(read_trace(profile), "f")
    program = """
import pathlib, sys, threading
from visualprof.reader.cache import Cache
from visualprof.views import all_views
sys.setswitchinterval(1e-6)
views = all_views()
start = threading.Barrier(8)
def work():
    start.wait()
    assert Cache(pathlib.Path(sys.argv[1])).load("f") is not None
    for view in views:
        view.parse({})
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    for _ in range(3):
        subprocess.run([sys.executable, "-c", program, str(cache.folder)], check=True, cwd=ROOT, timeout=60)


def test_a_file_with_a_wrong_bit_counts_as_missing(profile: Path, cache: Cache) -> None:
    """Every tenth byte, so header, columns and what stands between them."""
    open_trace(profile, cache=cache)
    fingerprint = Source(profile).fingerprint()
    path = cache.path(fingerprint)
    data = path.read_bytes()
    assert cache.load(fingerprint)
    for at in range(0, len(data), 10):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        assert cache.load(fingerprint) is None, at
    assert_same(open_trace(profile, cache=cache), read_trace(profile))
    assert path.read_bytes() == data


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it asks platformdirs")
@pytest.mark.parametrize("xdg", [None, "", " ", "/somewhere/else"])
def test_the_users_folder_is_that_of_the_system(xdg: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUALPROF_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if xdg is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert Cache.default().folder == Path(platformdirs.user_cache_dir("visualprof", appauthor=False))
