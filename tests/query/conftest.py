"""A recording for questions in SQL."""

from __future__ import annotations

import pytest

from tests.conftest import SAMPLES
from visualprof.query.pipe import TraceFile
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.graph_capture.files import recording_fingerprint


@pytest.fixture(scope="module")
def traces() -> list[TraceFile]:
    path = SAMPLES / "synthetic-4gpu" / "rank0.pt.trace.json.gz"
    open_trace(path)
    fingerprint = recording_fingerprint(path)
    return [TraceFile(str(Cache.default().path(fingerprint)), fingerprint, "rank0")]
