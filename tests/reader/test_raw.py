"""Single events fetched from their file."""

from __future__ import annotations

import json

import numpy as np

from tests.conftest import SAMPLES, trace_of
from visualprof.reader.chrome.raw import raw_events


def test_the_row_of_an_event_leads_to_its_text() -> None:
    path = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
    trace = trace_of(path)
    rows = np.random.default_rng(1).choice(len(trace.events), 20, replace=False)
    texts = raw_events(path, {int(trace.events.row[r]) for r in rows})
    for r in rows:
        event = json.loads(texts[int(trace.events.row[r])])
        assert event["name"] == trace.strings[trace.events.name[r]]
        assert round(event["ts"] * 1000) == trace.events.ts[r]


def test_rows_beyond_the_file_are_left_out() -> None:
    assert raw_events(SAMPLES / "onnxruntime-cpu" / "if_loop.json.gz", {10**9}) == {}
