"""Texts by number, and tracks of threads and streams, which all parts of the database reader share."""

from __future__ import annotations

from visualprof.reader.sqlite_file import EventWriter, Tables, map_distinct
from visualprof.reader.trace import Ids, Ints, Rows, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

_HOST_PROCESS, _DEVICE_PROCESS = "Python", "Ascend Hardware"


class Database:
    """Tables of a database, and the events and tracks that are added so far.

    Attributes:
        builder: Gets the columns of the trace.
        tables: The tables.
        texts: Texts by number.
        writer: Numbers the events.
        devices: Devices with a track.
    """

    def __init__(self, builder: TraceBuilder, tables: Tables) -> None:
        self.builder, self.tables = builder, tables
        self.texts = tables.texts("STRING_IDS", "id", "value")
        self.writer = EventWriter(builder)
        self.devices: set[int] = set()
        self._tracks: dict[tuple[TrackKind, str, str], int] = {}

    def add(self, columns: dict[str, Ints], name: Rows, category: Rows, track: Rows, corr: Rows | None = None) -> Ints:
        """Add events and return their rows."""
        return self.writer.add(
            columns["startNs"], columns["endNs"], name=name, category=category, track=track, corr=corr
        )

    def text(self, number: int) -> str:
        """Return the text with a number, or ""."""
        return self.texts.get(number, "")

    def threads(self, numbers: Ints) -> Ids:
        """Return the tracks of threads. A number contains process and thread."""
        return map_distinct(numbers, self.thread)

    def thread(self, number: int) -> int:
        """Return the track of a thread."""
        pid, tid = number >> 32, number & 0xFFFFFFFF
        return self.track(TrackKind.THREAD, f"Thread {tid}", pid, str(tid), process=_HOST_PROCESS)

    def stream(self, pid: int, place: int) -> int:
        """Return the track of a stream; the number contains device and stream."""
        device, stream = place >> 32, place & 0xFFFFFFFF
        title, tid = f"Stream {stream}", f"{device}.{stream}"
        return self.track(TrackKind.STREAM, title, pid, tid, device=device, stream=stream)

    def track(
        self,
        kind: TrackKind,
        name: str,
        pid: int,
        tid: str,
        *,
        process: str = _DEVICE_PROCESS,
        device: int = -1,
        stream: int = -1,
    ) -> int:
        """Return the track of a thread or stream; it is added once."""
        key = kind, str(pid), tid
        if key not in self._tracks:
            if kind is TrackKind.STREAM:
                self.devices.add(device)
            self._tracks[key] = self.builder.track(
                kind, name, str(pid), tid, process=process, device=device, stream=stream
            )
        return self._tracks[key]
