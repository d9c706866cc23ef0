"""Links between recordings and the memory snapshots of the same process."""

from __future__ import annotations

import msgspec

from visualprof.errors import SourceError
from visualprof.reader.graph_capture.files import snapshot_names
from visualprof.reader.logdir.listing import Listing, Span
from visualprof.reader.trace import Trace
from visualprof.server.api.stepped_traces import SteppedTraces
from visualprof.server.api.trace_requests import compute_from_trace
from visualprof.server.routes import SPAN_ERRORS, Resource, SpanQuery, get
from visualprof.server.services import Services
from visualprof.views.answers.table import Answer
from visualprof.views.measure.heap.choice import choose_device
from visualprof.views.measure.heap.recorded_times import JoinedRecording, joined_recordings


class JoinedSnapshot(msgspec.Struct, kw_only=True):
    """A memory snapshot of the process of a recording.

    Attributes:
        file: File name.
        run: Run of the snapshot.
        worker: Its worker.
        span: Its span.
        device: Device with the most reserved memory.
        recording: File name of the recording. `NS@FILE` with this name is a moment of the snapshot.
        start_ns: First entry of the history in ns since the first event of the recording.
        end_ns: Last entry.
    """

    file: str
    run: str
    worker: str
    span: str
    device: int
    recording: str
    start_ns: int
    end_ns: int


class JoinedSnapshots(Answer):
    """The memory snapshots with which a recording is joined."""

    snapshots: list[JoinedSnapshot]


class SnapshotJoins(Resource):
    """The route from a recording to its memory snapshots."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._traces = services.get(SteppedTraces)

    @get("/snapshot/joined", errors=SPAN_ERRORS, needs="link")
    def joined(self, query: SpanQuery) -> JoinedSnapshots:
        """Return the memory snapshots of the process of a recording."""
        listing = self._visible.listing()
        recording = listing.find(query.run, query.worker, query.span)
        file = recording.log_file
        snapshots: list[JoinedSnapshot] = []
        for name in snapshot_names(file.path):
            for run, worker, span in located_spans(listing, recording, name):
                if span.state == "failed" or (span.summary and "snapshot" not in span.summary.views):
                    continue
                arguments = span, "snapshot", join_of, file.name
                try:
                    joined = compute_from_trace(self._traces, *arguments, work="pass")
                except SourceError:  # it cannot be read, which its own page reports
                    continue
                if joined:
                    device, join = joined
                    snapshots.append(
                        JoinedSnapshot(
                            file=name,
                            run=run,
                            worker=worker,
                            span=span.id,
                            device=device,
                            recording=file.name,
                            start_ns=join.start_ns,
                            end_ns=join.end_ns,
                        )
                    )
        return JoinedSnapshots(snapshots=snapshots)


def join_of(trace: Trace, file: str) -> tuple[int, JoinedRecording] | None:
    """Return the device of a snapshot, and the recording of this name with which it is joined; `None` without it."""
    heap = trace.heap
    if heap is None or not len(heap.tables.device):
        return None
    device = choose_device(heap, "")
    joined = [recording for recording in joined_recordings(trace, heap, device) if recording.file == file]
    return (device, joined[0]) if joined else None


def located_spans(listing: Listing, neighbor: Span, name: str) -> list[tuple[str, str, Span]]:
    """Return the run, the worker and the span of the file of this name in the folder of another span's file."""
    folder = neighbor.log_file.root, neighbor.log_file.folder
    return [
        (run.id, worker.id, span)
        for run in listing.runs
        for worker in run.workers
        for span in worker.spans
        if (span.log_file.root, span.log_file.folder) == folder and span.log_file.name == name
    ]
