"""Decode Chrome trace-event JSON into numpy columns, in pieces of about 1 MiB; most profile formats use it.

The native scanner (`scan`) handles plain events. Everything it rejects is decoded by msgspec into typed structs and
turned into columns at once, as is every file without the native library. Memory use thus follows the number of events,
not the size of the file. A format declares a Struct with the arguments it wants and gets them as columns. Other
arguments stay in the file and are fetched by `row` on demand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import count
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.messages import msg
from visualprof.reader.chrome import times
from visualprof.reader.chrome.document import NO_INT, NO_TIME, ArgRows, Args, Document, Event, Kind, column_type
from visualprof.reader.chrome.joined import interleave, join_scanned_parts
from visualprof.reader.chrome.numbering import merge_equal_names, number_flow_ids
from visualprof.reader.chrome.pieces import EventPieces
from visualprof.reader.chrome.scan import Scanner
from visualprof.reader.chrome.values import display_text, json_object, label
from visualprof.reader.collection import paused_collection
from visualprof.reader.native.scanner import DTYPES, TEXT, Part
from visualprof.reader.source import Source
from visualprof.reader.trace.types import Ints, Mask, Values

PHASES_WITH_ID = ("s", "t", "f", "b", "n", "e", "S", "T", "F")


def read_document(source: Source, args: type[Args], fields_by_cat: Mapping[str, Sequence[str]]) -> Document:
    """Return every event of a file, scanned natively where possible, else decoded.

    Args:
        source: The file: `{"traceEvents": [...], ...}` or a bare list.
        args: The arguments to decode: fields `int = NO_INT`, `float = nan`, `Text = NO_TEXT` or `Text = NO_TIME`.
        fields_by_cat: The fields to keep per event category; other categories keep all fields.

    Raises:
        FormatError: There is no list of events, or no event is usable.
    """
    return read_events(source, args, fields_by_cat, Scanner.create(args, fields_by_cat))


def read_events(
    source: Source, args: type[Args], fields_by_cat: Mapping[str, Sequence[str]], scanner: Scanner | None
) -> Document:
    """Return every event of a file, like `read_document`, with the given scanner or none."""
    rows = _DocumentRows(args, fields_by_cat)
    pieces = EventPieces(source, rows, (scanner, rows.take) if scanner else None)
    pieces.run()
    return replace(
        rows.document(), head=pieces.head, truncated=pieces.truncated, warnings=[*pieces.warnings, *rows.warnings()]
    )


class _DocumentRows:
    """Collects the rows of a file in order, from the scanner and from the decoder."""

    def __init__(self, args: type[Args], fields_by_cat: Mapping[str, Sequence[str]]) -> None:
        self.rows = 0
        self._decoded = _DecodedColumns(args, fields_by_cat)
        self._scanned: list[Part] = []
        self._turns: list[tuple[int, int]] = []

    def add(self, text: bytes | memoryview) -> None:
        """Decode one JSON list of events. Raises the errors of `Sink.add`."""
        decoded_rows = self._decoded.rows
        with paused_collection():
            self._decoded.add(text, row_offset=self.rows - decoded_rows)
        self._record_turn(0, self._decoded.rows - decoded_rows)

    def take(self, part: Part) -> None:
        """Add scanned rows."""
        if part.last > part.first:
            self._scanned.append(part)
            self._record_turn(1, part.last - part.first)

    def _record_turn(self, source: int, rows: int) -> None:
        self._turns.append((source, rows))
        self.rows += rows

    def warnings(self) -> list[str]:
        """Return what could not be used, one sentence each."""
        return self._decoded.warnings()

    def document(self) -> Document:
        """Return all columns, concatenated."""
        with paused_collection():
            if not self._scanned:
                return self._decoded.document()
            scanned = join_scanned_parts(self._scanned)
            return interleave([self._decoded.document(), scanned], self._turns) if self._decoded.rows else scanned


class _DecodedColumns:
    """Columns that grow piece by piece."""

    def __init__(self, args: type[Args], fields_by_cat: Mapping[str, Sequence[str]]) -> None:
        self.rows = 0
        self._row_offset = 0
        self._args = args
        self._fields = {f.name: f for f in msgspec.structs.fields(args)}
        self._fields_by_cat = fields_by_cat
        self._needs_exact = False
        self._kinds: defaultdict[tuple[Any, ...], int] = defaultdict(count().__next__)
        self._threads: defaultdict[tuple[Any, ...], int] = defaultdict(count().__next__)
        self._flows: defaultdict[Any, int] = defaultdict(count().__next__)
        self._texts: defaultdict[bytes, int] = defaultdict(count().__next__)
        self._texts[b""]
        self._cats: list[int] = []
        self._phases: list[str] = []
        self._cat_ids: defaultdict[str, int] = defaultdict(count().__next__)
        self._parts: defaultdict[str, list[Values]] = defaultdict(list)
        self._arg_parts: defaultdict[str, list[tuple[Ints, Values]]] = defaultdict(list)
        self._samples: list[tuple[int, int, float]] = []
        self._series: defaultdict[str, int] = defaultdict(count().__next__)
        self._dropped: list[str] = []
        self._ignored_arguments = 0

    def add(self, text: bytes | memoryview, row_offset: int) -> None:
        """Decode one JSON list of events and append its columns. Raises the errors of `Sink.add`.

        Args:
            text: The list.
            row_offset: The number of rows of the file that the scanner took so far.
        """
        self._row_offset = row_offset
        self._append(text, *self._usable_events(text))

    def _usable_events(self, text: bytes | memoryview) -> tuple[list[Event[Any, Any]], Ints, Ints]:
        """Return the events, their starts and their durations in ns.

        Floats hold most times to the nanosecond; else decimals are used.
        """
        if not self._needs_exact:
            counted = self._ignored_arguments, len(self._dropped)
            events = self._decode(text, exact=False)
            ts, dur = (
                times.microseconds_array([e.ts for e in events]),
                times.microseconds_array([e.dur for e in events]),
            )
            if times.are_exact(ts, text) and times.are_exact(dur, text):
                return events, times.floats_to_ns(ts, NO_INT), times.floats_to_ns(dur, -1)
            self._ignored_arguments, self._dropped = counted[0], self._dropped[: counted[1]]
            self._needs_exact = bool((ts > times.MAX_EXACT_US).any())
        events = self._decode(text, exact=True)
        return (
            events,
            times.decimals_to_ns([e.ts for e in events], NO_INT),
            times.decimals_to_ns([e.dur for e in events], -1),
        )

    @cached_property
    def _fast(self) -> msgspec.json.Decoder[list[Event[Any, Any]]]:
        return msgspec.json.Decoder(list[Event[self._args, float]], strict=False)

    @cached_property
    def _exact(self) -> msgspec.json.Decoder[list[Event[Any, Any]]]:
        return msgspec.json.Decoder(list[Event[self._args, Decimal]], strict=False)

    def _decode(self, text: bytes | memoryview, *, exact: bool) -> list[Event[Any, Any]]:
        try:
            return (self._exact if exact else self._fast).decode(text)
        except msgspec.ValidationError:
            return self._decode_singly(text, exact=exact)

    def _decode_singly(self, text: bytes | memoryview, *, exact: bool) -> list[Event[Any, Any]]:
        """Decode a list with an entry of a wrong type, and keep what can be used (20 times slower)."""
        typed = msgspec.json.Decoder(Event[self._args, float], strict=False)
        loose = msgspec.json.Decoder(Event[Any, float], strict=False)
        timed = msgspec.json.Decoder(Event[Any, Decimal], strict=False)
        events: list[Event[Any, Any]] = []
        for i, raw in enumerate(msgspec.json.decode(text, type=list[msgspec.Raw])):
            event: Event[Any, Any]
            try:
                event = typed.decode(raw)
            except msgspec.ValidationError:
                try:
                    event = loose.decode(raw)
                    event.args = self._usable(event.args)
                except msgspec.ValidationError as error:
                    self._dropped.append(msg("reader.event", f"event {self._row_offset + self.rows + i:,}: {error}"))
                    event = Event[Any, Any]()
            if exact and (event.ts is not None or event.dur is not None):
                timed_event = timed.decode(raw)
                event.ts, event.dur = timed_event.ts, timed_event.dur
            events.append(event)
        return events

    def _usable(self, args: object) -> msgspec.Struct:
        """Return the arguments that have the expected type."""
        self._ignored_arguments += 1
        usable: dict[str, Any] = {}
        values = json_object(args)
        for name, spec in self._fields.items():
            if spec.encode_name in values:
                value = values[spec.encode_name]
                try:
                    usable[name] = (
                        msgspec.Raw(msgspec.json.encode(value))
                        if isinstance(spec.default, msgspec.Raw)
                        else msgspec.convert(value, spec.type, strict=False)
                    )
                except (msgspec.ValidationError, TypeError):
                    continue
        return self._args(**usable)

    def _append(self, text: bytes | memoryview, events: list[Event[Any, Any]], ts: Ints, dur: Ints) -> None:
        n = len(events)
        if n == 0:
            return
        kind = np.fromiter(map(self._kinds.__getitem__, map(attrgetter("ph", "cat", "name"), events)), np.int32, n)
        self._learn_cats()
        parts = self._parts
        parts["kind"].append(kind)
        parts["place"].append(
            np.fromiter(map(self._threads.__getitem__, map(attrgetter("pid", "tid"), events)), np.int32, n)
        )
        parts["ts"].append(ts)
        parts["dur"].append(dur)
        phases = np.array(self._phases)[kind]
        self._append_flows(events, np.flatnonzero(np.isin(phases, PHASES_WITH_ID)))
        cats = np.array(self._cats, np.int32)[kind]
        for cat, number in list(self._cat_ids.items()):
            rows = np.flatnonzero(cats == number)
            if len(rows):
                self._append_args(cat, rows, events)
        self._append_samples(text, np.flatnonzero(phases == "C"))
        self.rows += n

    def _learn_cats(self) -> None:
        """Assign a category id to every new kind. Flow arrows share one, because their arguments are not decoded."""
        for ph, cat, _ in list(self._kinds)[len(self._cats) :]:
            self._phases.append(ph[:1])
            self._cats.append(self._cat_ids["\0flow" if ph in ("s", "t", "f") else cat or ""])

    def _append_flows(self, events: list[Event[Any, Any]], rows: Ints) -> None:
        """Append the ids of flow arrows and async events."""
        indices: list[int] = rows.tolist()
        identified = [(i, e) for i in indices if (e := events[i]).id is not None]
        if identified:
            n, get = len(identified), self._flows.__getitem__
            self._parts["flow_rows"].append(np.fromiter((i for i, _ in identified), np.int64, n) + self.rows)
            self._parts["flow_ids"].append(np.fromiter((get(e.id) for _, e in identified), np.int64, n))

    def _append_args(self, cat: str, rows: Ints, events: list[Event[Any, Any]]) -> None:
        names = () if cat == "\0flow" else self._fields_by_cat.get(cat, tuple(self._fields))
        if not names:
            return
        numbers: list[int] = rows.tolist()
        with_args: list[tuple[int, Any]] = [(i, a) for i in numbers if (a := events[i].args) is not None]
        if not with_args:
            return
        file_rows = np.fromiter((i for i, _ in with_args), np.int64, len(with_args)) + self.rows
        args = [a for _, a in with_args]
        for name in names:
            values, present = self._values(name, args)
            if present.any():
                self._arg_parts[name].append((file_rows[present], values[present]))

    def _values(self, name: str, args: list[Any]) -> tuple[Values, Mask]:
        """Return one argument of many events, and a mask of the events that have it."""
        kind, get, n = self._fields[name].default, attrgetter(name), len(args)
        if kind is NO_TIME:
            ns = times.texts_to_ns([bytes(get(arg)) for arg in args], NO_INT)
            return ns, ns != NO_INT
        if isinstance(kind, msgspec.Raw):
            ids = np.fromiter(map(self._texts.__getitem__, map(bytes, map(get, args))), np.int32, n)
            return ids, ids != 0
        if isinstance(kind, float):
            floats = np.fromiter(map(get, args), np.float64, n)
            return floats, ~np.isnan(floats)
        ints = _integers(list(map(get, args)))
        return ints, ints != NO_INT

    def _append_samples(self, text: bytes | memoryview, rows: Ints) -> None:
        """Append samples of counter events.

        Their arguments are the series, so they are decoded again without a type.
        """
        if not len(rows):
            return
        loose = msgspec.json.decode(text, type=list[msgspec.Raw])
        numbers: list[int] = rows.tolist()
        for i in numbers:
            event = msgspec.json.decode(bytes(loose[i]).decode("utf-8", "replace"))
            for series, value in json_object(event.get("args")).items():
                try:
                    self._samples.append((self.rows + i, self._series[str(series)], float(value)))
                except (TypeError, ValueError):  # noqa: PERF203 - few samples, and each may fail
                    self._ignored_arguments += 1

    def warnings(self) -> list[str]:
        """Return what could not be used, one sentence each."""
        warnings: list[str] = []
        if self._ignored_arguments:
            warnings.append(
                msg(
                    "reader.events_argument_unexpected_type",
                    f"{self._ignored_arguments:,} events have an argument of an unexpected type, which was ignored",
                )
            )
        if self._dropped:
            warnings.append(
                msg(
                    "reader.entries_no_events_ignored",
                    f"{len(self._dropped):,} entries are not events and were ignored; the first: {self._dropped[0]}",
                )
            )
        return warnings

    def document(self) -> Document:
        """Return all columns, concatenated."""
        args: dict[str, ArgRows] = {}
        for name, spec in self._fields.items():
            column = self._arg_parts.pop(name, [])
            type_ = column_type(spec.default)
            rows = np.concatenate([r for r, _ in column]) if column else np.zeros(0, np.int64)
            values = np.concatenate([v for _, v in column]) if column else np.zeros(0, DTYPES[type_])
            order = np.argsort(rows, kind="stable")  # rows were appended category by category
            args[name] = ArgRows(rows[order], values[order], type_ == TEXT)
        (kind,), kinds = merge_equal_names([self._concatenate("kind", np.int32)], map(_kind, self._kinds))
        (thread,), threads = merge_equal_names(
            [self._concatenate("place", np.int32)], ((label(p), label(t)) for p, t in self._threads)
        )
        (flow,), flow_labels = merge_equal_names([self._concatenate("flow_ids", np.int64)], map(label, self._flows))
        flow_ids, flow_names = number_flow_ids(flow, flow_labels)
        shown_texts = [None, *map(display_text, list(self._texts)[1:])]
        ids, texts = merge_equal_names([arg.values for arg in args.values() if arg.text], shown_texts, fixed=1)
        ids = iter(ids)
        (series,), series_names = merge_equal_names(
            [np.array([n for _, n, _ in self._samples], np.int32)], self._series
        )
        return Document(
            kind=kind,
            thread=thread,
            ts=self._concatenate("ts", np.int64),
            dur=self._concatenate("dur", np.int64),
            kinds=kinds,
            threads=threads,
            texts=[text or "" for text in texts],
            args={name: replace(arg, values=next(ids)) if arg.text else arg for name, arg in args.items()},
            flow_rows=self._concatenate("flow_rows", np.int64),
            flow_ids=flow_ids,
            flow_names=flow_names,
            sample_rows=np.array([row for row, _, _ in self._samples], np.int64),
            sample_series=series,
            sample_values=np.array([value for _, _, value in self._samples], np.float64),
            series=series_names,
            head={},
            truncated=False,
            warnings=[],
        )

    def _concatenate(self, name: str, dtype: type[np.int32 | np.int64]) -> Values:
        parts = self._parts.pop(name, [])
        return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _kind(key: tuple[str, str | None, str | int | float | None]) -> Kind:
    ph, cat, name = key
    return Kind(ph, cat or "", label(name))


def _clamped(value: int) -> int:
    return value if -(2**63) <= value < 2**63 else times.MAX_NS if value > 0 else NO_INT


def _integers(values: list[Any]) -> Ints:
    """Return integers as int64. Unsigned 64-bit values that represent negative numbers are wrapped back."""
    try:
        return np.array(values, np.int64)
    except (OverflowError, TypeError):
        wrapped = (NO_INT if v is None else v - 2**64 if 2**63 <= v < 2**64 else _clamped(v) for v in values)
        return np.fromiter(wrapped, np.int64, len(values))
