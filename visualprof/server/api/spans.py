"""Look up the spans that a request names, and load their traces."""

from __future__ import annotations

from collections.abc import Sequence

from visualprof.errors import BadParameter, NotReady, SourceError
from visualprof.messages import msg
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.listing import Listing, Span
from visualprof.reader.logdir.summary import Summary
from visualprof.reader.trace import Trace


class StillParsing(NotReady):
    """The span is not parsed yet. The response has the state and the progress for the web UI."""

    def __init__(self, span: Span) -> None:
        failure = span.failure
        if failure:
            super().__init__(failure.error, failure.hint)
        else:
            super().__init__(
                msg("server.being_read", f"{span.log_file.name} is being read"),
                msg("server.ask_again_moment", "ask again in a moment"),
            )
        self.state = span.state
        self.progress = round(span.progress, 3)


class UnreadableFile(SourceError):
    """The file could not be parsed. The status is that of the failure."""

    def __init__(self, span: Span) -> None:
        failure = span.failure
        super().__init__(failure.error if failure else "", failure.hint if failure else "")
        self.status = failure.status if failure else 422
        self.docs_page = failure.docs_page if failure else ""


def require_summary(logdir: LogDirectory, span: Span) -> Summary:
    """Return the summary of a parsed span.

    Raises:
        UnreadableFile: The file could not be parsed.
        StillParsing: The span is not parsed yet. It moves to the front of the parse queue.
    """
    if span.state == "failed":
        raise UnreadableFile(span)
    if span.summary is None:
        logdir.prioritize(span)
        raise StillParsing(span)
    return span.summary


def load_trace(logdir: LogDirectory, span: Span) -> Trace:
    """Return the trace of a span.

    Raises:
        UnreadableFile: The file could not be parsed.
        StillParsing: The span is not parsed yet, or its columns are no longer in the cache.
    """
    require_summary(logdir, span)
    trace = logdir.open(span)
    if trace is None:
        logdir.prioritize(span)
        raise StillParsing(span)
    return trace


def worker_spans(
    logdir: LogDirectory, listing: Listing, run: str, span_id: str, workers: Sequence[str] = ()
) -> list[tuple[str, Span]]:
    """Return the given workers of a run, or all, each with its span of the given id or else its first span.

    Recorders put a separate timestamp in the file name of each rank. Workers with unreadable files are left out.

    Raises:
        NotFound: There is no such run or worker.
        UnreadableFile: No file can be read.
    """
    first, *_ = [listing.find(run, worker) for worker in workers or ("",)]
    spans = {worker.id: worker.spans for worker in next(r for r in listing.runs if r.id == run).workers}
    selected = [
        (name, next((span for span in spans[name] if span.id == span_id), spans[name][0])) for name in workers or spans
    ]
    readable = [(worker, span) for worker, span in selected if span.state != "failed"]
    if not readable:
        raise UnreadableFile(first)
    logdir.prioritize(*(span for _, span in readable))
    return readable


def check_range(name: str, value: int, max_value: int, min_value: int = 0) -> int:
    """Return a number of the request if it is within the limits of the data.

    Raises:
        BadParameter: The number is out of range.
    """
    if not min_value <= value <= max_value:
        raise BadParameter(
            msg("server.not_whole_number", f"{name}={value} is not a whole number from {min_value} to {max_value}")
        )
    return value
