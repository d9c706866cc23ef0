"""Single events fetched from their file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.conftest import SAMPLES, trace_of
from visualprof.reader import read_trace
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


def test_rows_of_a_damaged_file_lead_to_their_texts(tmp_path: Path) -> None:
    """Reader and search cut it alike, though the search decodes no strings."""
    lines = [f'{{"ph":"X","cat":"cpu_op","name":"op{i}","pid":1,"tid":1,"ts":{i},"dur":1}}' for i in range(3000)]
    data = bytearray(('{"schemaVersion":1,"traceEvents":[' + ",\n".join(lines) + "]}").encode())
    random = np.random.default_rng(1)
    for at in random.integers(100, len(data), 300).tolist():
        data[at] = random.choice(list(b'"{}[]\xff\xc3\\x,\n'))
    path = tmp_path / "t.json"
    path.write_bytes(data)
    trace = read_trace(path)
    assert len(trace.events) > 2000
    texts = raw_events(path, set(trace.events.row.tolist()))
    for row, name in zip(trace.events.row.tolist(), trace.events.name.tolist(), strict=True):
        event = json.loads(texts[row])
        assert (event.get("name") or "(unnamed)") == trace.strings[name]
