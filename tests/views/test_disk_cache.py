"""Answers on disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import SAMPLES, trace_of
from visualprof.cli import main
from visualprof.cli import view as command
from visualprof.cli._terminal import render
from visualprof.reader.cache import Cache
from visualprof.views import Params, RunView, View, all_views
from visualprof.views.answers import disk_cache
from visualprof.views.answers.disk_cache import CachedAnswer
from visualprof.views.answers.encoding import encode
from visualprof.views.answers.table import Answer, Selection, Table, select_rows

PROFILES = (
    "pytorch-h200/cnn.pt.trace.json.gz",
    "pytorch-ddp-cpu/rank0.pt.trace.json.gz",
    "megengine-train/1890.chrome_timeline.json.gz",
    "onnxruntime-cpu/if_loop.json.gz",
    "synthetic-4gpu/rank0.pt.trace.json.gz",
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """Where every answer is kept, however soon it was there."""
    monkeypatch.setattr(disk_cache, "_MIN_COMPUTE_S", -1.0)
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    return Cache.default()


def shown(answer: Answer, by: View) -> list[object]:
    """All that anybody sees of an answer."""
    tables = answer.tables()
    sorted_by = [(name, key) for name, table in tables.items() for key in list(table.columns_by_name())[:3]]
    return [
        encode(answer),
        encode(by.charts(answer, by.parse({}), 10)) if by.charts else b"",
        render(answer, "", 160),
        *(table.to_csv() for table in tables.values()),
        *(
            encode(select_rows(tables[name], Selection(sort=((key, True),), offset=1, limit=5)))
            for name, key in sorted_by
        ),
        *(
            encode(select_rows(table, Selection(search={"name": "a"})))
            for table in tables.values()
            if "name" in table.columns_by_name()
        ),
    ]


@pytest.mark.parametrize("name", PROFILES)
def test_a_cached_answer_is_shown_identically(name: str, cache: Cache) -> None:
    trace = trace_of(SAMPLES / name)
    for view in all_views():
        if view.subject in ("trace", "run") and view.needs(trace):
            work_out = partial(view.compute, trace)
            if isinstance(view, RunView):
                work_out = partial(view.compute_from_traces, [("a", trace), ("b", trace)])
            place = CachedAnswer(cache, view, view.parse({}), (name,))
            assert place.load() is None
            answer = place.compute_and_store(partial(work_out, view.parse({})))
            again = place.load()
            # Addresses and sequences are made into text when they are shown.
            assert (again is None) == (view.name in ("memory", "sequences"))
            assert again is None or shown(again, view) == shown(answer, view), view.name


@dataclass(frozen=True)
class Asked(Params):
    top: int = 3


def answer_of(place: CachedAnswer, number: int = 1) -> Answer:
    return place.compute_and_store(lambda: Table(columns={"x": [number]}, kinds={"x": "count"}))


def some(name: str = "some") -> View:
    def compute(subject: object, params: object) -> Table[dict[str, list[int]]]:
        raise AssertionError

    return View(name, 1, bool, Asked, compute)


def test_the_cache_key_covers_view_parameters_and_files(cache: Cache) -> None:
    answer_of(CachedAnswer(cache, some(), Asked(), ("f",)))
    assert CachedAnswer(cache, some(), Asked(), ("f",)).load() is not None
    others = [(some("other"), Asked(), ("f",)), (some(), Asked(top=4), ("f",)), (some(), Asked(step="1"), ("f",))]
    for other in [*others, (some(), Asked(), ("g",)), (some(), Asked(), ("f", "f"))]:
        assert CachedAnswer(cache, *other).load() is None


def test_changed_code_invalidates_cached_answers(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_of(CachedAnswer(cache, some(), Asked(), ("f",)))
    monkeypatch.setattr(disk_cache, "reader_version", lambda *folders: f"changed {folders}")
    assert CachedAnswer(cache, some(), Asked(), ("f",)).load() is None


def test_a_corrupt_entry_counts_as_missing(cache: Cache) -> None:
    place = CachedAnswer(cache, some(), Asked(), ("f",))
    answer_of(place)
    (path,) = cache.folder.glob("*.vpanswer")
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        assert place.load() is None, at
    path.write_bytes(data)
    assert place.load() is not None


def test_fast_and_very_large_answers_are_not_cached(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    place = CachedAnswer(cache, some(), Asked(), ("f",))
    place.compute_and_store(lambda: Table(columns={"x": [2**40] * 10}, kinds={"x": "count"}), store=False)
    monkeypatch.setattr(disk_cache, "_MAX_BYTES", 50)
    place.compute_and_store(lambda: Table(columns={"x": [2**40] * 10}, kinds={"x": "count"}))
    monkeypatch.setattr(disk_cache, "_MIN_COMPUTE_S", 60.0)
    answer_of(place)
    assert place.load() is None


def test_answers_with_invalid_utf8_names_are_not_cached(cache: Cache) -> None:
    place = CachedAnswer(cache, some(), Asked(), ("f",))
    answer = place.compute_and_store(lambda: Table(columns={"x": ["\udc80"]}, kinds={"x": "name"}))
    assert list(answer.tables()[""].columns_by_name()["x"]) == ["\udc80"]
    assert place.load() is None


def test_the_command_opens_columns_once(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "mine.json.gz"
    path.write_bytes((SAMPLES / PROFILES[1]).read_bytes())
    assert main(["view", "operator", str(path)]) == 0
    first = capfdbinary.readouterr().out
    opened: list[object] = []
    actual = command.open_worker
    monkeypatch.setattr(command, "open_worker", lambda file: opened.append(file) or actual(file))
    assert main(["view", "operator", str(path)]) == 0
    assert capfdbinary.readouterr().out == first
    assert opened == []
    assert main(["view", "operator", str(path), "--param", "group=shape"]) == 0
    os.utime(path, (1, 1))  # another file, as far as anybody knows
    assert main(["view", "operator", str(path)]) == 0
    assert len(opened) == 2
