"""Validation of the names of candidates that a job's advice is limited to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from visualprof.messages import msg
from visualprof.remote.child.advice.candidates import unknown_names
from visualprof.remote.protocol import Request
from visualprof.remote.queue.check.request_json import FieldError


def advise_errors(request: Request) -> Iterator[FieldError]:
    """Yield an error for a name that no machine has a candidate of: only the original would be measured."""
    only = request.advise.only
    if not request.advise.objective or not only:
        return
    unknown, names = unknown_names(only, request.specs, PurePosixPath(request.model.name).suffix)
    if unknown:
        error = msg("queue.no_candidate", f"there is no candidate {', '.join(map(repr, unknown[:5]))}")
        yield FieldError("advise.only", error, msg("queue.candidates", f"the candidates are {', '.join(names)}"))
