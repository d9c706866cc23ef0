"""Locations of test files, and functions that read them."""

from __future__ import annotations

import gc
import gzip
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import postgres as _postgres
from tests.postgres import database_of_queues, postgres
from tests.swift import swift, swift_server
from visualprof.reader import Trace, read_trace
from visualprof.views import view
from visualprof.views.answers.encoding import encode

__all__ = ["database_of_queues", "postgres", "swift", "swift_server"]
pytest_generate_tests = _postgres.parametrize
Write = Callable[..., Path]  # what `write` gives

# The machine may be busy, so a slow example is no failure. The same code tries the same examples each time; `make long`
# repeats these tests with `thorough`, which tries new ones.
settings.register_profile("thorough", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("quick")

# Tests run side by side: their agents wait for no others. The folder is not there, so that nobody takes turns.
os.environ.setdefault("VISUALPROF_TURNS", f"/nowhere/visualprof-{os.getpid()}")
# Tests often run as root in a container; test_agent_sandbox.py tests the refusal.
os.environ.setdefault("VISUALPROF_ALLOW_ROOT", "1")
# Every process of the tests, and each that they start, would compile all its sources anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# In the background of a shell Ctrl-C is ignored, also by all that is started there; tests end servers by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "visualprof" / "samples"
FIXTURES = ROOT / "tests" / "fixtures"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect 9,000 tests without garbage collection, a third of the CPU time; later collections skip these objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _unlimited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the memory limit of the query command out of this process: browsers that later tests start would crash."""
    monkeypatch.setattr("visualprof.query.sandbox.limit_address_space", lambda: None)


@cache
def ui_texts(language: str) -> dict[str, Any]:
    """Return the texts of the web UI by section."""
    folder = ROOT / "visualprof" / "frontend" / "src" / "locales" / language
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {section: words for file in files for section, words in file.items()}


@cache
def trace_of(path: Path) -> Trace:
    """The trace of a file, read once a session."""
    return read_trace(path)


def computed(view_name: str, path: Path, **params: str) -> Any:
    """A view of a file, as computed."""
    chosen = view(view_name)
    return chosen.compute(trace_of(path), chosen.parse(params))


def json_of(answer: object) -> dict[str, Any]:
    """An answer as others receive it."""
    return json.loads(encode(answer))


def answer(view_name: str, path: Path, **params: str) -> dict[str, Any]:
    """A view of a file, as others receive it."""
    return json_of(computed(view_name, path, **params))


def rows(result: dict[str, Any], *columns: str) -> dict[str, list[Any]]:
    """The main table as {name: values of the columns}."""
    table = result["columns"]
    return {name: values for name, *values in zip(table["name"], *(table[c] for c in columns), strict=True)}


def until(true: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Return the first true result of `true`."""
    end = time.monotonic() + timeout_s
    while not (result := true()):
        assert time.monotonic() < end, f"it did not happen within {timeout_s} s"
        time.sleep(0.02)
    return result


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a Kineto-like file of the given events."""

    def _write(events: Iterable[dict[str, Any]], name: str = "t.json", packed: bool = False, **head: Any) -> Path:
        data = json.dumps({"schemaVersion": 1, **head, "traceEvents": list(events)}).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if packed else data)
        return path

    return _write
