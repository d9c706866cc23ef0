"""An application over a log directory that is parsed at once, in the same thread."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.server_settings import server_settings
from visualprof.errors import VisualprofError
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.models import ModelReader, cache_graph
from visualprof.reader.logdir.pool import Listener
from visualprof.reader.logdir.summary import Failure
from visualprof.server.app import create_app
from visualprof.server.job_service import JobService
from visualprof.server.parse import parse_into_cache


class InlineParser:
    """Parses when asked to, unless told to wait."""

    def __init__(self, cache: Cache, task: Callable[..., Any] = parse_into_cache) -> None:
        self.cache = cache
        self.task = task
        self.asleep = False
        self.failure: Failure | None = None
        self.submitted: list[str] = []
        self.hurried: list[str] = []
        self._listener: Listener[Any] | None = None

    def start(self, listener: Listener[Any]) -> None:
        self._listener = listener

    def submit(self, key: str, path: str | Path, size: int, order: tuple[int, ...]) -> None:
        assert self._listener
        self.submitted.append(key)
        self._listener.on_progress(key, 0.0)
        if self.asleep:
            self._listener.on_progress(key, 0.4)
            return
        try:
            outcome = self.failure or self.task(os.fspath(path), lambda _: None, cache=self.cache)
        except VisualprofError as error:
            outcome = Failure(error.error, error.hint, error.status, type(error).__name__)
        self._listener.on_finished(key, outcome)

    def prioritize(self, key: str) -> None:
        self.hurried.append(key)

    def cancel(self, key: str) -> None: ...

    def close(self) -> None: ...


@dataclass
class Site:
    """Everything that a test may want to touch."""

    folder: Path
    parser: InlineParser
    models: InlineParser
    reader: ModelReader
    logdir: LogDirectory
    app: Flask
    client: FlaskClient

    def write(self, name: str, content: str | bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        then = time.time() - 100
        os.utime(path, (then, then))
        self.logdir.rescan()


MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[MakeSite]:
    queues = contextlib.ExitStack()

    def make(**settings: object) -> Site:
        folder = tmp_path / "runs"
        folder.mkdir()
        cache = Cache(tmp_path / "cache")
        parser = InlineParser(cache)
        logdir = LogDirectory([folder], parser, cache, events=False, settle_s=0)
        models = InlineParser(cache, cache_graph)
        reader = ModelReader(models, cache)
        chosen = server_settings(**{"dist": tmp_path / "dist", **settings})
        remote = JobService(logdir.roots[0], chosen.queue, read_only=chosen.access.read_only)
        queues.callback(remote.close)
        app = create_app(logdir, chosen, remote, reader)
        return Site(folder, parser, models, reader, logdir, app, app.test_client())

    with queues:
        yield make


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    """With one run, `run`, of one worker."""
    site = make_site()
    site.write("run/trace.json", kineto())
    return site


def kineto(operators: int = 3) -> str:
    """Operators op0, op1, ... of 7, 17, 27, ... us, each with a kernel of half that time; op0 is called twice."""
    events: list[dict[str, Any]] = []
    ts = 100
    for i, number in enumerate([0, *range(operators)]):
        dur = 10 * number + 7
        common: dict[str, Any] = {"ph": "X", "pid": 1, "tid": 1}
        events += [
            common | {"cat": "cpu_op", "name": f"op{number}", "ts": ts, "dur": dur, "args": {"External id": i}},
            common
            | {
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "ts": ts + 1,
                "dur": 2,
                "args": {"correlation": i + 1},
            },
            {
                "ph": "X",
                "cat": "kernel",
                "name": f"kernel{number}",
                "pid": 0,
                "tid": 7,
                "ts": ts + 4,
                "dur": dur / 2,
                "args": {"device": 0, "stream": 7, "correlation": i + 1, "grid": [1, 1, 1], "block": [32, 1, 1]},
            },
        ]
        ts += dur + 5
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


def stepped(first: int, kernels: list[list[tuple[str, int]]]) -> str:
    """Steps of 100 us from that number on; in each, kernels of (name, us) one after the other."""
    events: list[dict[str, Any]] = []
    for place, row in enumerate(kernels):
        start = 1000 + 100 * place
        step = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{first + place}", "ts": start, "dur": 100}
        events.append(step | {"pid": 1, "tid": 1})
        at = start + 10
        for name, dur in row:
            number = len(events)
            head = {"ph": "X", "args": {"correlation": number, "device": 0, "stream": 7}}
            events += [
                head | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at, "dur": 1},
                head | {"cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at + 2, "dur": dur},
            ]
            at += dur + 3
    return json.dumps({"schemaVersion": 1, "traceEvents": events})
