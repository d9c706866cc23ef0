"""What views of a whole run take of each rank, kept beside the columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.source import Source
from visualprof.reader.trace import Trace
from visualprof.server.parse import parse_into_cache
from visualprof.views import RunView, all_views, run_view
from visualprof.views.answers.encoding import encode
from visualprof.views.answers.part_cache import load_or_compute_part

RANKS = sorted((SAMPLES / "synthetic-4gpu").glob("*.json.gz"))


def unopened() -> Trace:
    pytest.fail("the trace is opened again")


@pytest.mark.parametrize("name", [view.name for view in all_views() if isinstance(view, RunView)])
def test_an_answer_of_kept_parts_is_that_of_the_traces(name: str, tmp_path: Path) -> None:
    cache, chosen = Cache(tmp_path), run_view(name)
    traces = [(path.name, open_trace(path, cache=cache)) for path in RANKS]
    whole = encode(chosen.compute_from_traces(traces, chosen.parse({})))
    fingerprints = [Source(path).fingerprint() for path in RANKS]
    for kept in (False, True):
        parts: list[Any] = [
            (worker, load_or_compute_part(cache, chosen, fingerprint, unopened if kept else lambda trace=trace: trace))
            for (worker, trace), fingerprint in zip(traces, fingerprints, strict=True)
        ]
        assert encode(chosen.compute_from_parts(parts, chosen.parse({}))) == whole


def test_a_part_that_is_damaged_is_made_again(tmp_path: Path) -> None:
    cache, chosen = Cache(tmp_path), run_view("distributed")
    trace = open_trace(RANKS[0], cache=cache)
    load_or_compute_part(cache, chosen, "f", lambda: trace)
    (file,) = tmp_path.glob("*.vpanswer")
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(pytest.fail.Exception):
        load_or_compute_part(cache, chosen, "f", unopened)
    load_or_compute_part(cache, chosen, "f", lambda: trace)
    load_or_compute_part(cache, chosen, "f", unopened)


def test_reading_ahead_makes_the_parts(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    summary = parse_into_cache(str(RANKS[0]), lambda _: None, cache=cache, parts=True)
    for name in ("distributed", "ranks"):
        load_or_compute_part(cache, run_view(name), summary.fingerprint, unopened)
