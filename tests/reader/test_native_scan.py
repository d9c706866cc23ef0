"""The scanner in C gives the same documents as the decoder in Python."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import fuzz
from tests.conftest import FIXTURES
from tests.recordings import RECORDINGS
from visualprof.errors import VisualprofError
from visualprof.reader.chrome import times
from visualprof.reader.chrome.decode import read_events
from visualprof.reader.chrome.document import Args, Document, Kind
from visualprof.reader.chrome.scan import Scanner
from visualprof.reader.formats import ascend_text, kineto, megengine_timeline, onnxruntime, paddle
from visualprof.reader.native.scanner import compiled
from visualprof.reader.recognition import recognize
from visualprof.reader.source import Source

pytestmark = pytest.mark.skipif(not compiled(), reason="the scanner was not compiled")

Spec = tuple[type[Args], Mapping[str, Sequence[str]]]
SPECS: dict[str, Spec] = {
    "kineto": (kineto.Args, kineto.ARGUMENTS_BY_CATEGORY),
    "paddle": (paddle.Args, paddle.ARGUMENTS_BY_CATEGORY),
    "onnxruntime": (onnxruntime.NodeArgs, {"Session": ()}),
    "megengine": (megengine_timeline.LaneArgs, {}),
    "chrome": (Args, {}),
    "ascend-text": (ascend_text.Args, ascend_text.ARGUMENTS_BY_CATEGORY),
}
KINETO = SPECS["kineto"]
DAMAGE = ("damaged", "repaired", "follows the list")


def spec_of(path: Path) -> Spec | None:
    """What the format of a file asks for; None where it is no trace of events."""
    try:
        return SPECS.get(recognize(Source(path)).name)
    except VisualprofError:
        return None


def differences(one: Document | str, other: Document | str) -> list[str]:
    """The fields in which two documents, or errors, are not equal to the digit."""
    if isinstance(one, str) or isinstance(other, str):
        return [] if one == other else [f"{one!s:.200} / {other!s:.200}"]
    collected: list[str] = []
    for field in msgspec.structs.fields(Document):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "args":
            pairs = {
                f"{name}.{part}": (getattr(a[name], part), getattr(b[name], part))
                for name in a
                for part in ("rows", "values")
            }
        else:
            pairs = {field.name: (a, b)}
        for name, (x, y) in pairs.items():
            same = x.dtype == y.dtype and np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y
            if not same:
                collected.append(f"{name}: {x!s:.200} / {y!s:.200}")
    return collected


def document(path: Path, spec: Spec, scanner: Scanner | None) -> Document | str:
    """The events of a file; what is said where it cannot be read."""
    try:
        return read_events(Source(path), *spec, scanner)
    except VisualprofError as error:
        return str(error)


def compare(path: Path, spec: Spec, threads: int, piece: int) -> list[str]:
    """How the scanner's document differs from the decoder's."""
    return differences(document(path, spec, None), document(path, spec, Scanner(*spec, threads=threads, piece=piece)))


@cache
def profiles() -> dict[Path, Spec]:
    """Every trace of events among the fixtures and recordings, with what its format asks for."""
    folders = [FIXTURES, RECORDINGS / "traces"]
    files = (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())
    return {path: spec for path in files if (spec := spec_of(path))}


@cache
def decoded(path: Path) -> Document | str:
    """Return the trace that the decoder reads from a profile."""
    return document(path, profiles()[path], None)


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "piece"), [(1, 4 << 20), (3, 5000), (2, 64)])
def test_every_profile_is_the_same_document(threads: int, piece: int) -> None:
    values_by_name = {}
    for path, spec in profiles().items():
        if path.stat().st_size < (40_000 if piece < 5000 else 400_000):
            scanner = Scanner(*spec, threads=threads, piece=piece)
            values_by_name[path.name] = differences(decoded(path), document(path, spec, scanner))
    assert len(values_by_name) > 10
    assert {name: wrong for name, wrong in values_by_name.items() if wrong} == {}


def usable(found: Document | str) -> int:
    """How many rows stand for an event, not for an entry that is none."""
    return 0 if isinstance(found, str) else sum(found.kinds[i] != Kind("", "", "") for i in found.kind.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_mutated_profiles_are_the_same_document(seed: int, tmp_path: Path) -> None:
    """Damaged text is mended piece by piece, and the scanner's pieces begin elsewhere: it may lose fewer events."""
    rng = random.Random(seed)
    small = [(path.read_bytes(), spec) for path, spec in profiles().items() if path.stat().st_size < 60_000]
    plain = [(data, spec) for data, spec in small if data[:1] in b"{["]
    for _ in range(60 if seed == 1 else 2000):
        data, spec = rng.choice(plain)
        changed = bytearray(data)
        rng.choice(fuzz.TEXT)(changed, rng)
        path = tmp_path / "mutated.json"
        path.write_bytes(changed)
        read = document(path, spec, None)
        scanned = document(path, spec, Scanner(*spec, threads=1, piece=rng.choice((1 << 20, 5000, 300))))
        said = str([d if isinstance(d, str) else d.warnings for d in (read, scanned)])
        if any(word in said for word in (*DAMAGE, "no event can be read")):
            assert usable(scanned) >= usable(read), bytes(changed)
        else:
            assert differences(read, scanned) == [], bytes(changed)


TIMES = {
    "1711964646123456.789": 1_711_964_646_123_456_789,
    "4458676522690.655": 4_458_676_522_690_655,
    "4458676522690.6555": 4_458_676_522_690_656,
    "0.0005": 1,
    "-0.0005": -1,
    "0.00049999": 0,
    "-1.0015": -1002,
    "1.5e3": 1_500_000,
    "5e-05": 0,
    "7": 7000,
    "0.001": 1,
    "12.34": 12_340,
    "0E20": 0,
    "-0e30": 0,
}


def test_times_round_to_the_nearest_nanosecond(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    for text, ns in (TIMES | {f'"{text}"': ns for text, ns in TIMES.items()}).items():
        path.write_text(f'[{{"ph": "X", "ts": {text}, "dur": {text}}}]')
        for scanner in (None, Scanner(*KINETO, threads=1)):
            events = read_events(Source(path), *KINETO, scanner)
            assert (events.ts.tolist(), events.dur.tolist()) == ([ns], [ns]), text


def test_decimals_are_read_exactly() -> None:
    written = {**TIMES, "1e30": times.MAX_NS, "-1e30": times.MIN_NS, "NaN": -5}
    assert times.decimals_to_ns([Decimal(text) for text in written], -5).tolist() == list(written.values())


IDS = {
    "7": 7,
    '"7"': 7,
    "7.0": 7,
    '"\\u0037"': 7,
    "0": 0,
    "-0": 0,
    "999999999999999999": 999_999_999_999_999_999,
    "1736408883700059821": 1_736_408_883_700_059_821,
    "4611686018427387903": 2**62 - 1,
    "4611686018427387904": None,
    "18446744073709551615": None,
    '"007"': None,
    '"7.0"': None,
    "-1": None,
    '"-1"': None,
    '"0x7f"': None,
    '"-0"': None,
    '""': None,
    "0.5": None,
}


def test_natural_ids_are_their_own_numbers(tmp_path: Path) -> None:
    """Each behind one that is a name; nothing is made of null."""
    path = tmp_path / "ids.json"
    for text, number in IDS.items():
        arrows = [f'{{"ph": "s", "id": {i}, "ts": 1}}' for i in ('"a"', "null", text, text)]
        path.write_text(f"[{', '.join(arrows)}]")
        for scanner in (None, Scanner(*KINETO, threads=1)):
            events = read_events(Source(path), *KINETO, scanner)
            assert events.flow_rows.tolist() == [0, 2, 3]
            assert events.flow_ids.tolist() == [-1, *[-2 if number is None else number] * 2], text
            assert len(events.flow_names) == 1 + (number is None)


LASTING = {
    "11.317 us": 11_317,
    "0.000 us": 0,
    "-0.5 us": -500,
    "7 us": 7000,
    "3.0005 us": 3001,
    "1.5e3 us": 1_500_000,
    "4458676522690.655 us": 4_458_676_522_690_655,
    "11.317 ms": 11_317_000,
    "5 ns": 5,
    "2.5 ns": 3,
    "2 s": 2 * 10**9,
    "0e99 us": 0,
    "11.317": 11_317,
    "11.317 us ": None,
    "1.5 \\u0075s": 1500,
    "us": None,
    "": None,
    "nan us": None,
    "5 min": None,
    "\\t1 us": 1000,
    "01.5 us": 1500,
    "+1 us": 1000,
    ".5 us": 500,
}


def test_texts_of_times_are_nanoseconds(tmp_path: Path) -> None:
    """Each between two plain ones, which the scanner takes; by hand, as Paddle means the units."""
    path = tmp_path / "times.json"
    event = '{{"ph": "X", "cat": "Operator", "ts": 1, "dur": 1, "args": {{"start_time": {}}}}}'.format
    for text, ns in LASTING.items():
        texts = '"1.001 us"', f'"{text}"', "null", '"1.002 us"'
        path.write_text(f"[{', '.join(map(event, texts))}]")
        values = [1001, 1002] if ns is None else [1001, ns, 1002]
        rows = [0, 3] if ns is None else [0, 1, 3]
        for scanner in (None, Scanner(*SPECS["paddle"], threads=1)):
            found = read_events(Source(path), *SPECS["paddle"], scanner).arg("start_time")
            assert (found[0].tolist(), found[1].tolist()) == (rows, values), text


def test_an_unusual_event_between_scanned_events_is_decoded(tmp_path: Path) -> None:
    """Of 3,000 events in windows of 10 kB one has an argument of a wrong type: it keeps its place among the rows."""
    lines = [
        f'{{"ph": "X", "cat": "kernel", "name": "k{i % 7}", "ts": {i}, "dur": 1, "args": {{"stream": {i}}}}}'
        for i in range(3000)
    ]
    lines[1500] = lines[1500].replace('"stream": 1500', '"stream": "seven"')
    path = tmp_path / "odd.json"
    path.write_text(f'{{"traceEvents": [{", ".join(lines)}]}}')
    events = read_events(Source(path), *KINETO, Scanner(*KINETO, threads=2, piece=10_000))
    assert events.ts.tolist() == [1000 * i for i in range(3000)]
    assert events.arg("stream")[0].tolist() == [i for i in range(3000) if i != 1500]
    assert events.warnings == ["1 events have an argument of an unexpected type, which was ignored"]
    assert compare(path, KINETO, 2, 10_000) == []


BLANKS = st.sampled_from(["", "", "", " ", "\n", "\n    ", "\t", "\r\n"])
STRINGS = st.one_of(
    st.sampled_from(
        [
            '""',
            '"X"',
            '"C"',
            '"s"',
            '"f"',
            '"b"',
            '"kernel"',
            '"cpu_op"',
            '"7"',
            '"12"',
            '"1.5"',
            '"nan"',
            '"null"',
            '"\\u0041"',
            '"\\ud83d\\ude00"',
            '"\\\\ \\" \\/ \\b"',
            '"C:\\\\a"',
            '"测试"',
            '"\U0001f600"',
        ]
    ),
    st.text(max_size=8).map(json.dumps),
    st.text(st.characters(min_codepoint=32, exclude_characters='"\\', exclude_categories=["Cs"]), max_size=40).map(
        '"{}"'.format
    ),
)
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-20, 20).map(str),
    st.decimals(-(10**13), 10**13, places=3).map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,12})?", fullmatch=True),
    st.from_regex(r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,5})?[eE][+-]?[0-9]{1,2}", fullmatch=True),
    st.sampled_from(
        [
            "-0",
            "-0.0",
            "0.0005",
            "1711964646123456.789",
            "4458676522690.6555",
            "18446744073709551615",
            "1e-999",
        ]
    ),
)
VALUES = st.recursive(
    st.one_of(STRINGS, NUMBERS, st.sampled_from(["null", "true", "false"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: f"[{', '.join(v)}]"),
        st.dictionaries(STRINGS, inner, max_size=3).map(
            lambda members: "{" + ",".join(f"{key}:{value}" for key, value in members.items()) + "}"
        ),
    ),
    max_leaves=6,
)
ARGUMENTS = [*(f'"{key}"' for key in Scanner(*KINETO).fields.keys), '"other"', '"args"', '"ts"']


@st.composite
def objects(draw: st.DrawFn, keys: st.SearchStrategy[str], value: Any) -> str:
    """A JSON object; equal keys may come again. value: what draws the value of a key."""
    blank = draw(BLANKS)
    members = [f"{blank}{key}{draw(BLANKS)}:{blank}{draw(value(key))}" for key in draw(st.lists(keys, max_size=7))]
    return "{" + f"{draw(BLANKS)},".join(members) + blank + "}"


ARGS = objects(st.sampled_from(ARGUMENTS), lambda _: st.one_of(NUMBERS, VALUES))
SAMPLES = objects(STRINGS, lambda _: NUMBERS)
PLAIN = {
    '"ph"': STRINGS,
    '"cat"': STRINGS,
    '"name"': st.one_of(STRINGS, NUMBERS),
    '"pid"': st.one_of(NUMBERS, STRINGS),
    '"tid"': st.one_of(NUMBERS, STRINGS),
    '"id"': st.one_of(NUMBERS, STRINGS),
    '"ts"': NUMBERS,
    '"dur"': NUMBERS,
    '"args"': st.one_of(ARGS, SAMPLES),
    '"s"': VALUES,
    '"é"': VALUES,
}
AROUND = ("%s", '{"traceEvents":%s}', '\ufeff{"a": 1, "traceEvents": %s, "b": [{"name": 1}]}')
EVENTS = st.lists(
    st.one_of(
        objects(st.sampled_from([*PLAIN]), lambda key: st.one_of(PLAIN[key], PLAIN[key], PLAIN[key], VALUES)),
        objects(st.sampled_from([*PLAIN]), PLAIN.__getitem__),
        st.sampled_from(
            ["{}", "null", "7", "[]", '{"ph": "C", "args": {"a": 1, "b": 2.5}}', '{"args": {}, "args": null}']
        ),
    ),
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(EVENTS, BLANKS, st.sampled_from([64, 300, 1 << 20]), st.sampled_from(AROUND))
def test_oddities_are_the_same_document(tmp_path: Path, events: list[str], blank: str, piece: int, around: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(around % f"[{blank}{f'{blank},'.join(events)}{blank}]", encoding="utf-8", newline="")
    assert compare(path, KINETO, 1, piece) == []


UNITS = st.sampled_from(["us", "us", "us", "ns", "ms", "s", "min", ""])
LASTINGS = st.one_of(
    st.builds('"{} {}"'.format, st.decimals(-(10**13), 10**13, places=3), st.just("us")),
    st.builds('"{} {}"'.format, NUMBERS, UNITS),
    VALUES,
)


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(objects(st.sampled_from(['"start_time"', '"end_time"', '"addr"']), lambda _: LASTINGS), max_size=6))
def test_odd_texts_of_times_are_the_same_document(tmp_path: Path, args: list[str]) -> None:
    path = tmp_path / "odd.json"
    events = [f'{{"ts": {i}, "args": {argument}}}' for i, argument in enumerate(args)]
    path.write_text(f"[{', '.join(events)}]", encoding="utf-8")
    assert compare(path, SPECS["paddle"], 1, 300) == []
