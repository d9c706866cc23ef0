"""The span that a request names, and its columns."""

from __future__ import annotations

from collections.abc import Sequence

from visualprof.errors import BadParameter, NotReady, SourceError
from visualprof.messages import msg
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.listing import Listing, Span
from visualprof.reader.logdir.summary import Summary
from visualprof.reader.trace import Trace


class StillParsing(NotReady):
    """With what the page shows meanwhile."""

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
    """A file whose parse failed, with the status of that failure."""

    def __init__(self, span: Span) -> None:
        failure = span.failure
        super().__init__(failure.error if failure else "", failure.hint if failure else "")
        self.status = failure.status if failure else 422


def require_summary(logdir: LogDirectory, span: Span) -> Summary:
    """What is known of a span since it was parsed.

    Raises: Unreadable: its parse failed. Parsing: it is not there yet, and jumps the queue.
    """
    if span.state == "failed":
        raise UnreadableFile(span)
    if span.summary is None:
        logdir.prioritize(span)
        raise StillParsing(span)
    return span.summary


def load_trace(logdir: LogDirectory, span: Span) -> Trace:
    """The columns of a span.

    Raises: like `summary_of`; Parsing, too, when they are gone from the cache.
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
    """Some workers of a run, or all, each with its span of that id, or its first one.

    Recorders name the file of each rank by a time of its own. Workers whose file cannot be read are left out.

    Raises: NotFound: there is no such run or worker. Unreadable: none can be read.
    """
    first, *_ = [listing.find(run, worker) for worker in workers or ("",)]
    known = {worker.id: worker.spans for worker in next(r for r in listing.runs if r.id == run).workers}
    chosen = [
        (name, next((span for span in known[name] if span.id == span_id), known[name][0])) for name in workers or known
    ]
    readable = [(worker, span) for worker, span in chosen if span.state != "failed"]
    if not readable:
        raise UnreadableFile(first)
    logdir.prioritize(*(span for _, span in readable))
    return readable


def check_range(name: str, value: int, most: int, least: int = 0) -> int:
    """A number of the request that must not exceed what the data has.

    Raises: BadParameter.
    """
    if not least <= value <= most:
        raise BadParameter(
            msg("server.not_whole_number", f"{name}={value} is not a whole number from {least} to {most}")
        )
    return value
