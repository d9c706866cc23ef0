"""Broken and hostile files: a clear error, or a trace with a warning; never a crash, a hang or a silent loss."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import SAMPLES, answer
from tests.reader.test_formats import check_invariants
from tests.recordings import recording_path
from visualprof.errors import EmptyFile, FormatError, SourceError, UnknownFormat, VisualprofError
from visualprof.reader import read_trace
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.chrome import recovery
from visualprof.reader.source import Source
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.views import all_views

WriteFile = Callable[[str | bytes], Path]
EVENT = '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":%s,"dur":2,"args":{"External id":%s}}'


def document(*events: str) -> str:
    return '{"schemaVersion":1,"traceEvents":[' + ",\n".join(events) + "]}"


def events(n: int) -> list[str]:
    return [EVENT % (10 * i, i) for i in range(n)]


@pytest.fixture
def file(tmp_path: Path) -> WriteFile:
    def _file(content: str | bytes) -> Path:
        path = tmp_path / "broken.json"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return _file


@pytest.mark.parametrize("content", [b"", b"   \n", b"\x00" * 100])
def test_an_empty_file_is_still_being_written(file: WriteFile, content: bytes) -> None:
    with pytest.raises(EmptyFile, match=r"broken\.json is empty"):
        read_trace(file(content))


@pytest.mark.parametrize("content", [b"hello", b"{}", b'{"a": 1}', b"[1, 2]", b"\x89PNG\r\n", b"PK\x03\x04"])
def test_other_content_is_refused_by_name(file: WriteFile, content: bytes) -> None:
    with pytest.raises(UnknownFormat, match=r"broken\.json: no profile format"):
        read_trace(file(content))


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"gone\.json: No such file"):
        read_trace(tmp_path / "gone.json")


@pytest.mark.parametrize("kept", [0.35, 0.5, 0.9, 0.999])
def test_a_cut_file_keeps_its_whole_events_and_warns(file: WriteFile, kept: float) -> None:
    text = document(*events(100))
    cut = text[: int(len(text) * kept)]
    trace = read_trace(file(cut))
    assert len(trace.events) == cut.count("}}")
    assert trace.meta.truncated
    assert "ends in the middle" in trace.meta.warnings[0]


def test_a_truncated_gzip_file_keeps_what_can_be_unpacked(file: WriteFile) -> None:
    packed = gzip.compress(document(*events(5000)).encode())
    trace = read_trace(file(packed[: len(packed) // 2]))
    assert 100 < len(trace.events) < 5000
    assert trace.meta.truncated


def test_a_bare_list_may_stay_open(file: WriteFile) -> None:
    trace = read_trace(file("[" + ",\n".join(events(3)) + ",\n"))
    assert (len(trace.events), trace.meta.truncated) == (3, False)


def test_zero_events_are_a_warning(file: WriteFile) -> None:
    trace = read_trace(file(document()))
    assert (len(trace.events), trace.meta.warnings) == (0, ("the file has no events",))


def test_deep_nesting_is_an_error(file: WriteFile) -> None:
    with pytest.raises(FormatError, match=r"broken\.json: no event can be read: 1 damaged part of"):
        read_trace(file('{"schemaVersion":1,"traceEvents":[{"ph":"X","args":' + "[" * 100_000 + "]" * 100_000 + "}]}"))


def test_bare_nan_is_repaired(file: WriteFile) -> None:
    trace = read_trace(
        file(
            document(
                *events(2),
                '{"ph":"X","cat":"gpu_memcpy","name":"c","pid":0,"tid":7,"ts":5,"dur":1,"args":{"bytes":8,"x":NaN,"y":-Infinity}}',
            )
        )
    )
    assert len(trace.events) == 3
    assert "was repaired" in trace.meta.warnings[0]


def test_commas_after_the_last_element_are_repaired(file: WriteFile) -> None:
    text = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a,]", "ts": 1, "dur": 2, '
    text += b'"args": {"Input Dims": [[1, 2], ], }, }, {"ph": "X", "cat": "cpu_op", "name": "b", "ts": 4, "dur": 3}]}'
    trace = read_trace(file(text))
    assert [trace.strings[i] for i in trace.events.name] == ["a,]", "b"]
    assert trace.events.dur.tolist() == [2000, 3000]
    assert any("a comma too many" in warning for warning in trace.meta.warnings)


def test_a_public_file_with_a_comma_after_the_last_shape_has_all_nodes() -> None:
    trace = read_trace(recording_path("cases/reports/35-ort-trailing-comma/ort.json"))
    named = zip((trace.strings[i] for i in trace.events.name), trace.events.dur.tolist(), strict=True)
    assert {name: ns for name, ns in named if name in "ab"} == {"a": 50_000, "b": 150_000}


def test_wrong_escapes_and_control_characters_are_repaired(file: WriteFile) -> None:
    trace = read_trace(
        file(
            document(*events(1), '{"ph":"X","cat":"cpu_op","name":"C:\\Users\\x\ttab","pid":1,"tid":1,"ts":50,"dur":1}')
        )
    )
    assert "C:\\Users\\x\ttab" in trace.strings


def test_bytes_that_are_not_utf8_are_replaced(file: WriteFile) -> None:
    trace = read_trace(file(document(*events(1)).encode().replace(b'"a"', b'"\xff\xfe"')))
    assert len(trace.events) == 1


@pytest.mark.parametrize("argument", ['"Input Dims": "%s"', '"Input Dims": ["%s"]', '"Input Dims": {"a":\n"%s"}'])
@pytest.mark.parametrize("damage", [b"\xff\xfe", b"\\q"])
def test_a_damaged_argument_is_shown_as_far_as_possible(file: WriteFile, argument: str, damage: bytes) -> None:
    event = '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":10,"dur":5,"args":{%s}}' % (argument % "HERE")
    trace = read_trace(file(document(event, *events(2)).encode().replace(b"HERE", damage)))
    assert len(trace.events) == 3


def test_a_damaged_counter_is_left_out(file: WriteFile) -> None:
    counter = '{"ph":"C","name":"c","pid":1,"ts":%d,"args":{"%s":1}}'
    text = document(counter % (1, "good"), counter % (2, "HERE"), *events(2))
    trace = read_trace(file(text.encode().replace(b"HERE", b"\xff")))
    assert (len(trace.events), len(trace.counters.ts)) == (2, 2)


def test_wrong_types_lose_the_argument_and_not_the_event(file: WriteFile) -> None:
    trace = read_trace(file(document(EVENT % (1, '{"x": 1}'), EVENT % (20, 5))))
    assert len(trace.events) == 2
    assert "1 events have an argument of an unexpected type" in trace.meta.warnings[0]


def test_entries_that_are_not_events_are_counted(file: WriteFile) -> None:
    trace = read_trace(file(document(EVENT % (1, 1), "7", '"x"', EVENT % ('"no number"', 1), "null")))
    assert len(trace.events) == 1
    assert "4 entries are not events" in trace.meta.warnings[0]


def test_numbers_as_text_are_numbers(file: WriteFile) -> None:
    trace = read_trace(file(document(EVENT % ('"10"', '"3"'))))
    assert trace.events.ts.tolist() == [10_000]


def test_missing_fields_are_tolerated(file: WriteFile) -> None:
    trace = read_trace(file(document('{"ph":"X","name":"no times"}', '{"ph":"X","ts":5}', "{}", *events(1))))
    assert len(trace.events) == 2
    assert "1 events do not say when they began" in trace.meta.warnings[0]
    assert "no number): 1;" in trace.meta.warnings[1]


@pytest.mark.parametrize("dur", ["-5", '"NaN"', "null", '"Infinity"'])
def test_an_invalid_duration_makes_an_instant_that_no_table_counts(file: WriteFile, dur: str) -> None:
    event = '{"ph":"X","cat":"%s","name":"a","pid":1,"tid":1,"ts":%d,"dur":%s,"args":{"correlation":1}}'
    cats = ("cpu_op", "cuda_runtime", "kernel", "gpu_memcpy")
    events = [event % (cat, ts, time) for cat in cats for ts, time in ((10, dur), (20, "3"))]
    path = file(document(*events))
    trace = read_trace(path)
    assert sorted(trace.events.dur.tolist()) == [-1] * 4 + [3000] * 4
    assert "no number): 4;" in trace.meta.warnings[0]
    kernels = answer("kernel", path)
    for table in (answer("operator", path), answer("runtime", path), kernels, kernels["memory_operations"]):
        assert table["columns"]["calls"] == [1]


@pytest.mark.parametrize("ts", ['"NaN"', "null"])
def test_an_event_without_a_start_is_dropped_with_a_warning(file: WriteFile, ts: str) -> None:
    memory = '{"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":%s,"args":{"Bytes":5}}'
    trace = read_trace(file(document(EVENT % (ts, 1), EVENT % (10, 1), memory % ts, memory % 20)))
    assert (trace.span_ns, trace.allocs.ts.tolist()) == ((10_000, 20_000), [20_000])
    assert "2 events do not say when they began" in trace.meta.warnings[0]


def test_huge_numbers_do_not_overflow(file: WriteFile) -> None:
    event = '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1e300,"dur":1e308,"args":{"External id":%d}}'
    check_invariants(read_trace(file(document(event % 123456789012345678901234567890))))


@pytest.mark.parametrize(
    ("ts", "dur"), [("1e300", "1"), ("-1e300", "1"), ("5", "1e308"), ("9.3e15", "1"), ("5", "2e13")]
)
def test_times_that_cannot_be_are_left_out_and_noted(file: WriteFile, ts: str, dur: str) -> None:
    """Of 60 events of 2 us one is years away or months long: the others are read as if it were not there."""
    odd = EVENT.replace('"dur":2', f'"dur":{dur}') % (ts, 99)
    trace = read_trace(file(document(*events(30), odd, *(EVENT % (10 * i, i) for i in range(30, 60)))))
    assert (len(trace.events), trace.span_ns) == (60, (0, 592_000))
    assert trace.meta.warnings == ("1 events are months long or away from all others: they were left out",)


HUGE = "9" * 30


@pytest.mark.parametrize(
    "head",
    [
        f'"deviceProperties":[{{"id":{HUGE},"totalGlobalMem":{HUGE},"maxThreadsPerMultiprocessor":{HUGE}}}]',
        '"deviceProperties":[{"id":0,"smCount":1e308,"maxThreadsPerMultiprocessor":1e19}]',
        f'"distributedInfo":{{"rank":{HUGE},"world_size":"x"}}',
        f'"baseTimeNanoseconds":{HUGE}',
    ],
)
def test_numbers_of_the_head_that_cannot_be_are_unknown(file: WriteFile, head: str) -> None:
    kernel = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":1,"args":{"device":0,"stream":%s,%s}}'
    occupancy = '"block":[999999999,999999999,999999999],"blocks per SM":1e300,"est. achieved occupancy %":0'
    text = document(*events(3), kernel % (7, occupancy), kernel % (HUGE, occupancy))
    path = file(text.replace('"schemaVersion":1', f'"schemaVersion":1,{head}'))
    trace = open_trace(path, cache=Cache(path.parent / "cache"))
    assert len(trace.events) == 5
    for view in all_views():
        if view.subject == "trace" and view.needs(trace):
            view.compute(trace, view.parse({}))


@pytest.mark.parametrize("number", [10**30, float("inf"), float("nan")])
def test_impossible_numbers_become_unknown(number: float) -> None:
    builder = TraceBuilder("test")
    builder.describe(rank=number, process_cpu_ratio=number, host="h")
    meta = builder.build().meta
    assert (meta.rank, meta.process_cpu_ratio, meta.host) == (-1, -1.0, "h")


def test_two_clocks_in_a_file_are_both_kept(file: WriteFile) -> None:
    later = [EVENT % (1.7e15 + i, i) for i in range(3)]
    trace = read_trace(file(document(*events(3), *later)))
    assert (len(trace.events), trace.meta.warnings) == (6, ())


def test_duplicate_keys_take_the_last(file: WriteFile) -> None:
    trace = read_trace(file(document('{"ph":"X","cat":"cpu_op","name":"a","name":"b","pid":1,"tid":1,"ts":1,"dur":1}')))
    assert "b" in trace.strings


def test_hostile_names_are_kept_as_they_are(file: WriteFile) -> None:
    name = "<script>alert(1)</script>\u202e\u0000名"
    trace = read_trace(
        file(document(json.dumps({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 1, "dur": 1})))
    )
    assert name in trace.strings


def test_a_very_long_string_is_read(file: WriteFile) -> None:
    trace = read_trace(
        file(
            document(
                json.dumps(
                    {"ph": "X", "cat": "cpu_op", "name": "x" * 2_000_000, "pid": 1, "tid": 1, "ts": 1, "dur": 1}
                ),
                *events(3),
            )
        )
    )
    assert len(trace.events) == 4


def test_a_decompression_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.reader.source.ALWAYS_ALLOWED_BYTES", 8 << 20)
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=9) as out:
        out.write(b'{"schemaVersion":1,"traceEvents":[')
        for _ in range(10):
            out.write(b" " * (1 << 20))
    with pytest.raises(SourceError, match=r"bomb\.json\.gz unpacks to over 8 MiB"):
        for _ in Source(path).chunks():
            pass
    with pytest.raises(SourceError, match=r"bomb\.json\.gz unpacks to over 8 MiB"):
        read_trace(path)


def test_an_event_without_an_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.reader.chrome.pieces.MAX_HEAD_BYTES", 4 << 20)
    path = tmp_path / "endless.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(b'{"schemaVersion":1,"traceEvents":[{"name":"')
        for _ in range(6):
            out.write(b"x" * (1 << 20))
    with pytest.raises(FormatError, match=r"endless\.json\.gz: no end of an event within 4 MiB"):
        read_trace(path)


def test_events_cross_the_borders_of_pieces_unharmed(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    dims = '[[1,{"x":"},{"}],{"a":1},\n{"b":2}]'
    nested = '{"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":%d,"dur":1,"args":{"Input Dims":' + dims + "}}"
    path.write_text(document(*(x for i in range(40_000) for x in (EVENT % (10 * i, i), nested % (10 * i + 5)))))
    assert path.stat().st_size > 3 * len(next(Source(path).chunks(1 << 20)))
    assert len(read_trace(path).events) == 80_000


def test_something_after_the_list_is_mentioned(file: WriteFile) -> None:
    trace = read_trace(file("[" + ",".join(events(2)) + "] trailing"))
    assert (len(trace.events), "follows the list" in trace.meta.warnings[0]) == (2, True)


SMALL = [gzip.decompress(p.read_bytes()) for p in sorted(SAMPLES.rglob("*.gz")) if p.stat().st_size < 20_000]


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.data())
def test_damaged_files_end_in_a_trace_or_a_clear_error(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(SMALL))[:30_000])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=12))
    path = tmp_path / "damaged"
    path.write_bytes(content)
    try:
        check_invariants(read_trace(path))
    except VisualprofError as error:
        assert "damaged" in error.error  # noqa: PT017 - either outcome is right


_values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2)
)
_arguments = st.dictionaries(st.sampled_from(["correlation", "External id", "name", "value"]), _values)
_events = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from(["X", "B", "E", "i", "C", "s", "f", "M", "b", "e", "?"])},
        optional={
            "ts": st.one_of(st.floats(-1e6, 1e6), _values),
            "dur": st.one_of(st.floats(0, 1e3), _values),
            "args": st.one_of(_values, _arguments),
            **dict.fromkeys(("name", "cat", "pid", "tid", "id"), _values),
        },
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(_events, st.sampled_from(["schemaVersion", "metadata", "span_indx", "other"]))
def test_any_list_of_objects_gives_a_sound_trace(tmp_path: Path, entries: list[Any], key: str) -> None:
    path = tmp_path / "any.json"
    path.write_text(json.dumps({key: 1, "traceEvents": entries}))
    try:
        check_invariants(read_trace(path))
    except VisualprofError as error:
        assert "any.json" in error.error  # noqa: PT017 - either outcome is right


@pytest.mark.slow
def test_a_gzip_file_damaged_in_the_middle_keeps_the_part_before(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(document(*events(20_000)).encode()))
    data[len(data) // 2 : len(data) // 2 + 40] = b"\xff" * 40
    path = tmp_path / "damaged.json"
    path.write_bytes(data)
    trace = read_trace(path)
    assert 5_000 < len(trace.events) < 20_000
    assert "damaged and was left out" in trace.meta.warnings[-1]


STRAY = [b'"', b"{", b"[", b"]", b"}", b",", b"\\", b"\xff", b"\n", b"x", b"7", b"[" * 500]


@pytest.mark.parametrize("stray", STRAY)
@pytest.mark.parametrize("place", ["between", "inside", "before"])
def test_a_stray_byte_loses_at_most_one_event(file: WriteFile, stray: bytes, place: str) -> None:
    """2,000 events, in three of which something stands that should not."""
    lines = events(2000)
    for i in (0, 900, 1999):
        line, at = lines[i], {"between": len(lines[i]), "inside": lines[i].index('"name"') + 9, "before": 0}[place]
        lines[i] = f"{line[:at]}STRAY{line[at:]}"
    trace = read_trace(file(document(*lines).encode().replace(b"STRAY", stray)))
    assert 1997 <= len(trace.events) <= 2000
    assert not trace.meta.truncated
    assert len(trace.events) == 2000 or "damaged part" in trace.meta.warnings[0]
    assert set(trace.events.ts.tolist()) >= {10_000 * i for i in range(2000) if i not in (0, 900, 1999)}


@pytest.mark.parametrize("missing", ['"', "{", "}", "[", ":", ","])
def test_a_missing_byte_loses_at_most_one_event(file: WriteFile, missing: str) -> None:
    """Each byte of that kind in an event of two lines is once the one that is missing."""
    good = EVENT.replace("1,", "1,\n").replace('"External', '"Input Dims":[[8,3],[]],"External') % (500, 50)
    for at in (i for i, c in enumerate(good) if c == missing):
        lines = events(100)
        lines[50] = good[:at] + good[at + 1 :]
        trace = read_trace(file(document(*lines)))
        assert {10_000 * i for i in range(100)} - set(trace.events.ts.tolist()) <= {500_000}
        assert len(trace.events) == 100 or any("damaged part" in w for w in trace.meta.warnings)


@given(st.lists(st.sampled_from(['"', "\\\\", '\\"', "[", "]", "{}", "x" * 50, ","]), max_size=60), st.integers(1, 9))
def test_entries_end_where_brackets_outside_of_strings_are_closed(parts: list[str], block: int) -> None:
    """Against a loop over the characters; the text is looked at in blocks of some bytes."""
    text = "".join(parts)
    level, quoted, escaped, ends = 0, False, False, list[int]()
    for i, c in enumerate(text):
        if escaped or c == "\\":
            escaped = not escaped
        elif c == '"':
            quoted = not quoted
        elif not quoted and c in "{}[]":
            level += 1 if c in "{[" else -1
            if level == 0:
                ends.append(i + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "_BLOCK_BYTES", block)
        assert recovery.entry_ends(text.encode()) == ends


def test_positions_of_damage_are_reported(file: WriteFile) -> None:
    lines = events(100)
    text = document(*lines).replace('"ts":200,', '"ts":"200,').replace('"ts":700,', '"ts":{700,')
    places = [text.index(EVENT[:40], text.index(f'"ts":{n * 10},') + 1) for n in (19, 69)]
    (warning,) = read_trace(file(text)).meta.warnings
    sizes = sum(text.index('{"ph', place + 1) - place for place in places)
    assert warning == f"2 damaged parts of {sizes} bytes skipped, at byte {places[0]:,}, {places[1]:,}"


def test_a_damaged_last_event_leaves_the_keys_behind_the_list(file: WriteFile) -> None:
    text = '{"traceEvents":[' + ",".join(events(5)) + '],"schemaVersion":1,"distributedInfo":{"rank":3}}'
    trace = read_trace(file(text.replace('"ts":40,', '"ts":"40,')))
    assert (len(trace.events), trace.meta.rank, trace.meta.truncated) == (4, 3, False)


def test_a_damaged_head_leaves_the_events(file: WriteFile) -> None:
    trace = read_trace(file(document(*events(5)).replace('"schemaVersion":1', '"schemaVersion":1, "x":}')))
    assert len(trace.events) == 5
    assert "the text before the list of events is not valid JSON" in trace.meta.warnings[0]


def test_half_a_surrogate_pair_is_repaired(file: WriteFile) -> None:
    """As Python writes names with bytes that are not UTF-8."""
    event = EVENT.replace('"a"', r'"\udce4b\ud83d\ude00\\ud800"')
    trace = read_trace(file(document(*events(3), event % (50, 50), *events(3))))
    assert len(trace.events) == 7
    assert "\ufffdb\U0001f600\\ud800" in trace.strings


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_scattered_damage_costs_a_few_events_and_little_time(tmp_path: Path, packed: bool) -> None:
    """One event in 50 of 4 MB: read before with quadratic effort, and none of it."""
    text = bytearray(document(*events(40_000)).encode())
    places = random.Random(1).sample(range(1000, len(text) - 1000), 800)
    for place in places:
        text[place] = random.Random(place).randrange(256)
    path = tmp_path / "damaged.json"
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    began = time.process_time()
    trace = read_trace(path)
    assert time.process_time() - began < 4
    assert 39_200 <= len(trace.events) < 40_000
    assert "damaged parts" in " ".join(trace.meta.warnings)
