"""Large files of run data: read by a child process, kept in the cache, continued while they grow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from visualprof.capture.log.fields import record
from visualprof.capture.log.messages import double_scalar, event, file_head, session_start, text
from visualprof.capture.log.scalars import ScalarEncoder
from visualprof.reader.cache import Cache
from visualprof.reader.child import Failure
from visualprof.reader.logdir import data_pool
from visualprof.reader.logdir.data_pool import PoolReader, growth_path
from visualprof.reader.run_data.event_file import EventFile
from visualprof.reader.run_data.folders import DataFile
from visualprof.reader.run_data.run import RunData

WAIT_S = 60.0


def records(steps: range, tags: int = 3) -> bytes:
    encoder = ScalarEncoder()
    return b"".join(
        encoder.encode(f"tag{i}", step * (i + 1), step, 1.8e9 + step) for step in steps for i in range(tags)
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of 100 steps with every state that a child passes on: a restart, a double, a text, damage."""
    path = tmp_path / "a.tfevents.1"
    more = [double_scalar("double", 0.1), text("note", "words")]
    bad = bytearray(record(event(1.8e9, 7, [double_scalar("double", 9.0)])))
    bad[-1] ^= 1
    head = record(file_head(1.8e9)) + record(session_start(1.8e9, 5)) + record(event(1.8e9, 3, more)) + bytes(bad)
    path.write_bytes(head + records(range(100)))
    return path


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PoolReader]:
    monkeypatch.setattr(data_pool, "MAX_LOCAL_BYTES", 100)
    reader = PoolReader(Cache(tmp_path / "cache"))
    yield reader
    reader.close()


def content(data: RunData, tag: str) -> list[list[float]]:
    (part,) = data.points("", tag)
    return [column.tolist() for column in part.points]


def expected(path: Path) -> RunData:
    data = RunData()
    assert data.update([DataFile("", str(path))])
    return data


def equal(data: RunData, other: RunData) -> None:
    assert data.scalar_tags() == other.scalar_tags()
    assert data.warnings() == other.warnings()
    for row in data.scalar_tags():
        assert content(data, row.tag) == content(other, row.tag)
        assert data.points("", row.tag)[0].points.value.dtype == other.points("", row.tag)[0].points.value.dtype


def test_a_child_reads_the_same_as_this_process_and_a_restart_reads_the_cache(
    path: Path, reader: PoolReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [DataFile("", str(path))]
    data = RunData(reader)
    assert not data.update(files, 0.0)
    assert data.update(files, WAIT_S)
    equal(data, expected(path))
    with path.open("ab") as file:
        file.write(records(range(100, 200)))
    assert data.update(files, WAIT_S)
    equal(data, expected(path))
    assert len(list((tmp_path / "cache").glob("*.vpdata"))) == 2

    monkeypatch.setattr(EventFile, "update", lambda *_: pytest.fail("read again"))  # pyright: ignore[reportUnknownLambdaType]
    again = RunData(PoolReader(Cache(tmp_path / "cache")))
    assert again.update(files, 0.0)
    assert again.scalar_tags() == data.scalar_tags()
    assert again.update(files, 0.0)  # which releases the mapped values
    assert content(again, "tag1") == content(data, "tag1")
    assert again.warnings() == data.warnings()


def stored(path: Path, tmp_path: Path) -> tuple[EventFile, Cache]:
    """Return a file that is not read yet, and a cache with its values."""
    cache = Cache(tmp_path / "cache")
    state = EventFile(str(path)).state()
    request = data_pool._Request(str(path), state)  # pyright: ignore[reportPrivateUsage]
    target = data_pool.read_growth(request, lambda _: None, cache=cache)
    assert target == str(growth_path(cache, str(path), 0))
    return EventFile(str(path)), cache


def test_a_replaced_file_and_a_damaged_cache_are_not_used(path: Path, tmp_path: Path) -> None:
    file, cache = stored(path, tmp_path)
    (target,) = (tmp_path / "cache").glob("*.vpdata")
    growth = data_pool.load_growth(target)
    assert growth
    assert file.can_absorb(growth)
    whole = path.read_bytes()
    path.write_bytes(b"\1" + whole[1:])
    assert not file.can_absorb(growth)
    path.write_bytes(whole[:50])
    assert not file.can_absorb(growth)
    raw = target.read_bytes()
    for damaged in (b"", raw[:20], raw[:-8], raw[:40] + b"\xff" + raw[41:]):
        target.unlink()  # the columns of the other content are mapped
        target.write_bytes(damaged)
        assert data_pool.load_growth(target) is None
    assert growth_path(cache, str(path), 0) == target


def test_values_that_cannot_be_stored_are_passed_on(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    request = data_pool._Request(str(path), EventFile(str(path)).state())  # pyright: ignore[reportPrivateUsage]
    growth = data_pool.read_growth(request, lambda _: None, cache=Cache(tmp_path / "file"))
    assert not isinstance(growth, str)
    file = EventFile(str(path))
    file.absorb(growth)
    np.testing.assert_array_equal(file.series["tag1"].points.value, np.arange(100) * 2)


def test_a_failure_is_reported_until_the_file_changes(path: Path, reader: PoolReader) -> None:
    files, data = [DataFile("", str(path))], RunData(reader)
    reader.on_finished(str(path), Failure("a.tfevents.1: the process that read it was ended by SIGSEGV", "hint"))
    for _ in range(2):
        data.update(files, 0.0)
        assert data.warnings() == ["a.tfevents.1: the process that read it was ended by SIGSEGV"]
    with path.open("ab") as file:
        file.write(b"\0")
    end_s = time.monotonic() + WAIT_S
    while not data.scalar_tags() and time.monotonic() < end_s:
        data.update(files, 1.0)
    assert len(content(data, "tag0")[0]) == 100
