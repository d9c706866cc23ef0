"""Mutated files against every reader, view and route: `python -m tests.fuzz --count 10000 --workers 2`.

Each mutation is tried in a process of its own, which puts the file into a log directory and asks the server for
everything it has of it. A case fails when

- something other than visualprof's own errors comes out: an answer of 500, or the process dies;
- it takes over 10 CPU seconds for each 10 MB (plain) of the file that was begun;
- it takes more memory than three times the file (plain) and 200 MB;
- events are lost in silence: there are fewer than in the whole file by more than what a plain JSON reader misses
  (entries that the mutation cut out cleanly, or made something else), and no warning or error is new.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import logging
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flask.testing import FlaskClient

from tests.conftest import FIXTURES, SAMPLES
from tests.recordings import RECORDINGS
from tests.server.sites import InlineParser
from tests.server_settings import server_settings
from visualprof.errors import VisualprofError
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.models import ModelReader, cache_graph
from visualprof.reader.models import model_suffixes, recognize_model
from visualprof.reader.recognition import recognize
from visualprof.reader.source import GZIP_MAGIC, Source
from visualprof.server.app import create_app
from visualprof.views import all_views

CPU_S, PER_BYTES = 10.0, 10_000_000
MEMORY, TIMES_FILE = 200 << 20, 3
KILLED_S, KILLED_BYTES = 300, 6 << 30
LARGEST = 64 << 20  # plain bytes of a seed
EVENTS = frozenset("XBEiIRnbeSF")
RESULT = "run_job_sample"

Mutation = Callable[[bytearray, random.Random], None]


@dataclass
class Seed:
    """A file to mutate. folder: files that belong beside it."""

    path: Path
    kind: str
    size: int
    packed: bool
    folder: tuple[Path, ...] = ()

    @property
    def data(self) -> bytes:
        """The plain bytes. Of the latest files alone: what is held is copied to every process."""
        return _plain(self.path)


@lru_cache(2)
def _plain(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw.startswith(GZIP_MAGIC) else raw


@dataclass
class Outcome:
    """What came of one file. events: None where it is no profile or was refused."""

    failure: str = ""
    error: str = ""
    format: str = ""
    events: int | None = None
    warnings: tuple[str, ...] = ()
    cpu_s: float = 0.0
    memory: int = 0
    bad_answers: list[str] = field(default_factory=list)


# Mutations ------------------------------------------------------------------------------------------------------------


def _place(data: bytearray, rng: random.Random) -> int:
    return rng.randrange(len(data))


def flip_bits(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        data[_place(data, rng)] ^= 1 << rng.randrange(8)


def insert_bytes(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 3, 20))):
        at = _place(data, rng)
        data[at:at] = rng.randbytes(rng.choice((1, 1, 4, 100)))


def delete_bytes(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 3, 20))):
        if len(data) > 200:
            at = _place(data, rng)
            del data[at : at + rng.choice((1, 1, 4, 100))]


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.choice((_place(data, rng), len(data) - rng.randrange(1, min(100, len(data))))) :]


def double_block(data: bytearray, rng: random.Random) -> None:
    at, size = _place(data, rng), rng.choice((10, 1000, 100_000))
    data[at:at] = data[at : at + size]


def remove_block(data: bytearray, rng: random.Random) -> None:
    at, size = _place(data, rng), rng.choice((10, 1000, 100_000))
    del data[at : min(at + size, len(data) - 1)]


def zero_block(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    size = min(rng.choice((1, 8, 512, 4096)), len(data) - at)
    data[at : at + size] = bytes(size)


def stray_mark(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 1, 5, 200))):
        at = _place(data, rng)
        data[at:at] = rng.choice((b'"', b"'", b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b'"}', b"}]", b"{}"))


def not_utf8(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 10, 300))):
        at = _place(data, rng)
        data[at : at + rng.choice((0, 1))] = rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xb2\xe2\xca\xd4"))


_NUMBER = re.compile(rb'(?<=[:\[,\s"])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[,}\]\s"])')
_VALUE = re.compile(
    rb':\s*("(?:[^"\\\n]|\\.){0,200}"|-?[\d.eE+-]+|true|false|null|\[[^\[\]{}]{0,100}\]|\{[^\[\]{}]{0,100}\})'
)
_KEY = re.compile(rb'"([^"\\\n]{1,60})"\s*:')
NUMBERS = (
    b"1e300",
    b"-1e300",
    b"1e400",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"123456789012345678901234567890",
    b"1e15",
    b"1e18",
    b"4e18",
    b"-1e18",
    b"0",
    b"-1",
    b"-0.0",
    b"1e-300",
    b"2147483648",
    b"4294967296",
    b"99999999999999999",
    b"0.1234567890123456789",
)
VALUES = (
    b'"x"',
    b'""',
    b"[]",
    b"{}",
    b"null",
    b"true",
    b"-1",
    b"1.5",
    b'"\\u0000"',
    b'[1, "a", null]',
    b'{"a": [1]}',
    b'"12"',
    b"[[[]]]",
    b'"\\ud800"',
    b'"\xe6\xb5\x8b"',
)


def _near(pattern: re.Pattern[bytes], data: bytearray, rng: random.Random, group: int = 0) -> tuple[int, int] | None:
    match = pattern.search(data, max(0, _place(data, rng) - 50)) or pattern.search(data)
    return match.span(group) if match else None


def _replace(pattern: re.Pattern[bytes], values: Sequence[bytes], times: Sequence[int], group: int = 0) -> Mutation:
    def mutate(data: bytearray, rng: random.Random) -> None:
        for _ in range(rng.choice(times)):
            if span := _near(pattern, data, rng, group):
                data[span[0] : span[1]] = rng.choice(values)

    return mutate


def nest(data: bytearray, rng: random.Random) -> None:
    depth = rng.choice((200, 3000, 100_000))
    if span := _near(_VALUE, data, rng, 1):
        closed = rng.random() < 0.7
        data[span[0] : span[1]] = rng.choice(
            (b"[" * depth + b"]" * depth * closed, b'{"a":' * depth + b"1" + b"}" * depth * closed)
        )


def swap_keys(data: bytearray, rng: random.Random) -> None:
    a, b = _near(_KEY, data, rng, 1), _near(_KEY, data, rng, 1)
    if a and b and (a[1] <= b[0] or b[1] <= a[0]):
        a, b = sorted((a, b))
        first, second = data[slice(*a)], data[slice(*b)]
        data[slice(*b)] = first
        data[slice(*a)] = second


BYTES: tuple[Mutation, ...] = (flip_bits, insert_bytes, delete_bytes, truncate, double_block, remove_block, zero_block)
huge_number, other_value, nan = (
    _replace(_NUMBER, NUMBERS, (1, 1, 5, 100)),
    _replace(_VALUE, VALUES, (1, 1, 5, 100), 1),
    _replace(_NUMBER, (b"NaN", b"-Infinity", b"Infinity", b"nan"), (1, 1, 5, 100)),
)
TEXT: tuple[Mutation, ...] = (
    *BYTES,
    stray_mark,
    stray_mark,
    not_utf8,
    huge_number,
    huge_number,
    nan,
    nest,
    other_value,
    other_value,
    swap_keys,
)


def mutated(seed: Seed, rng: random.Random) -> bytes:
    """The seed with one mutation, or a few."""
    text = _is_text(seed.data)
    if seed.packed and rng.random() < 0.1:
        data = bytearray(gzip.compress(seed.data, 6, mtime=0))
        rng.choice(BYTES)(data, rng)
        return bytes(data)
    data = bytearray(seed.data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(TEXT if text else BYTES)(data, rng)
        if not data:
            break
    return gzip.compress(data, 1, mtime=0) if seed.packed and rng.random() < 0.5 else bytes(data)


def _is_text(data: bytes) -> bool:
    return data.lstrip()[:1] in (b"{", b"[") or b"\0" not in data[:1000]


# Seeds ----------------------------------------------------------------------------------------------------------------


def seeds(folders: Sequence[Path], largest: int = LARGEST) -> list[Seed]:
    """Every profile, model and result below the folders."""
    seed_list: list[Seed] = []
    for path in sorted(p for folder in folders for p in folder.rglob("*") if p.is_file()):
        kind = _kind(path)
        if kind:
            size = len(_plain(path))
            if size <= largest:
                neighbors = (
                    tuple(p for p in path.parent.iterdir() if p.is_file() and p != path) if kind == "result" else ()
                )
                seed_list.append(Seed(path, kind, size, Source(path).is_gzipped, neighbors))
    return seed_list


def _kind(path: Path) -> str:
    if path.stat().st_size == 0:
        return ""
    if (path.parent / "points.jsonl").exists():
        return "result"
    try:
        if path.name.lower().endswith(model_suffixes()) and recognize_model(Source(path)):
            return "model"
        recognize(Source(path))
    except VisualprofError:
        return ""
    return "profile"


def drawn(found: Sequence[Seed], count: int, rng: random.Random) -> Iterator[tuple[Seed, int]]:
    """Seeds with a number for each mutation: each in turn at first, then the smaller the more often."""
    weights = [1 / (100_000 + seed.size) for seed in found]
    chosen = [found[i % len(found)] for i in range(min(count, len(found) * 5))]
    chosen += rng.choices(found, weights, k=count - len(chosen))
    for seed in chosen:
        yield seed, rng.randrange(2**62)


# One case -------------------------------------------------------------------------------------------------------------


class _Errors(logging.Handler):
    """The tracebacks that the server logs beside an answer of 500."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.texts.append(_short(record.exc_info[1]))


def _short(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "visualprof" in f.filename] or [
        *traceback.extract_tb(error.__traceback__)
    ]
    location = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames[:-4:-1])
    return f"{type(error).__name__}: {str(error)[:150]} at {location}"


class House:
    """A server over an empty log directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "runs"
        self.folder.mkdir()
        cache = Cache(folder / "cache")
        self.logdir = LogDirectory([self.folder], InlineParser(cache), cache, events=False, settle_s=0)
        models = ModelReader(InlineParser(cache, cache_graph), cache)
        self.client: FlaskClient = create_app(
            self.logdir, server_settings(dist=folder / "dist"), reader=models
        ).test_client()
        importlib.import_module("onnx")  # once for all cases

    def outcome(self, seed: Seed, data: bytes) -> Outcome:
        """Puts the file there and asks for everything."""
        out = Outcome()
        run = self.folder / "run"
        run.mkdir()
        for path in seed.folder:
            shutil.copy(path, run / path.name)
        (run / seed.path.name).write_bytes(data)
        for path in run.iterdir():
            os.utime(path, (1e9, 1e9))
        errors = _Errors()
        logging.getLogger().addHandler(errors)
        self.logdir.rescan()
        for url in self._urls(seed, out):
            answer = self.client.get(f"/api/v1/{url}")
            if answer.status_code >= 500 and answer.status_code != 503:
                out.bad_answers.append(f"{url}: {answer.get_data(as_text=True)[:200]}")
        out.bad_answers += errors.texts
        out.failure = f"crash: {(errors.texts or out.bad_answers)[0]}" if out.bad_answers else ""
        return out

    def clear(self) -> None:
        shutil.rmtree(self.folder / "run", ignore_errors=True)

    def _json(self, url: str) -> Any:
        answer = self.client.get(f"/api/v1/{url}")
        return json.loads(answer.data) if answer.status_code == 200 else {}

    def _urls(self, seed: Seed, out: Outcome) -> Iterator[str]:
        """What there is to be asked. Notes what the server says of the file."""
        yield from ("status", "runs", "views", "models", "evaluation")
        listed = self._json("runs")
        out.error = next((f["error"] for f in listed["skipped"] if f["file"].endswith(seed.path.name)), "")
        spans = [(r["id"], w["id"], s) for r in listed["runs"] for w in r["workers"] for s in w["spans"]]
        for run, worker, span in spans:
            out.error = out.error or span["error"] or ""
            yield from self._of_span(
                f"run={quote(run)}&worker={quote(worker)}&span={quote(span['id'])}", quote(run), out
            )
        found = [s for known in self.logdir.listing().runs for w in known.workers for s in w.spans]
        # A file of several ranks has a summary for each of them.
        for summary in (s.summary for s in found if s.log_file.name == seed.path.name):
            if summary:
                out.events = (out.events or 0) + summary.events
                out.warnings, out.format = (*out.warnings, *summary.warnings), summary.format
        for model in self._json("models").get("models", ()):
            name = quote(model["id"], safe="")
            yield from (
                f"graph?model={name}",
                f"graph/node?model={name}&node=0",
                f"graph/compare?model={name}&other={name}",
            )
        reports = self._json("evaluation").get("reports", ())
        if reports:
            yield f"evaluation/overlay?reports={quote(','.join(r['id'] for r in reports))}&slo_ns=5000000"
        for report in reports:
            for batch in (1, 8, report["best_batch"] or 2):
                yield f"evaluation/point?report={quote(report['id'])}&batch={batch}"

    def _of_span(self, span: str, run: str, out: Outcome) -> Iterator[str]:
        for view in all_views():
            yield f"view/{view.name}?{span}"
            if view.charts:
                yield f"charts/{view.name}?{span}"
        yield f"view/operator?{span}&format=csv"
        meta = self._json(f"timeline/meta?{span}")
        yield f"timeline/meta?{span}"
        for level in (4, 20, 40):
            yield f"timeline/tile?{span}&level={level}&index=0"
        yield from (f"timeline/event?{span}&event={row}" for row in (0, 1, 10**6))
        counters = [t["id"] for t in meta.get("tracks", ()) if t.get("kind") == "counter"]
        yield from (f"timeline/counter?{span}&track={track}&level=20&index=0" for track in counters[:2])
        yield f"timeline/strings?{span}"
        yield f"timeline/search?{span}&text=a"
        yield f"timeline/longest?{span}"
        yield f"timeline/occurrence?{span}&name=a&kind=thread"
        yield f"timeline/window?{span}"
        yield f"timeline/export?{span}"
        yield f"timeline/alignment?run={run}"


def run_case(house: House, seed: Seed, data: bytes) -> Outcome:
    """Return the outcome of one file, computed in a separate process, with its time and memory."""
    context = get_context("fork")
    parent_pipe, theirs = context.Pipe()
    child = context.Process(target=_child, args=(house, seed, data, theirs))
    child.start()
    theirs.close()
    try:
        out: Outcome = parent_pipe.recv()
    except EOFError:
        out = Outcome(failure="killed")
    child.join()
    if out.failure == "killed":
        out.failure = f"killed: exit code {child.exitcode}"
    house.clear()
    return out


def _child(house: House, seed: Seed, data: bytes, pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (KILLED_S, KILLED_S))
    resource.setrlimit(resource.RLIMIT_AS, (KILLED_BYTES, KILLED_BYTES))
    before = resource.getrusage(resource.RUSAGE_SELF)
    try:
        out = house.outcome(seed, data)
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        out = Outcome(failure=f"crash: {_short(error)}")
    after = resource.getrusage(resource.RUSAGE_SELF)
    out.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    out.memory = (after.ru_maxrss - before.ru_maxrss) << 10
    pipe.send(out)
    pipe.close()
    os._exit(0)


def judge(seed: Seed, whole: Outcome, data: bytes, out: Outcome) -> str:
    """Return what is wrong with an outcome, "" if nothing is."""
    if out.failure:
        return out.failure
    plain = max(seed.size, len(data))
    if out.cpu_s > CPU_S * max(1, -(-plain // PER_BYTES)):
        return f"slow: {out.cpu_s:.1f} CPU s for {plain / 1e6:.1f} MB"
    if out.memory > MEMORY + TIMES_FILE * plain:
        return f"memory: {out.memory >> 20} MB for {plain / 1e6:.1f} MB"
    return f"silent: {whole.events} -> {out.events} events" if _silent(seed, whole, data, out) else ""


def _silent(seed: Seed, whole: Outcome, data: bytes, out: Outcome) -> bool:
    if seed.kind != "profile" or whole.events is None or out.error or out.events is None or out.format != whole.format:
        return False
    if out.events >= whole.events or set(out.warnings) - set(whole.warnings):
        return False
    before, after = countable(seed.data), countable(data)
    return after is None or before is None or whole.events - out.events > before - after


def countable(data: bytes) -> int | None:
    """Entries that a plain JSON reader takes for events; None where it cannot read the file."""
    try:
        text = (gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data).decode("utf-8-sig")
        if re.match(r'\s*\{[^\n]{0,400}"schema"\s*:\s*"visualprof\.monitor', text):
            return sum('"t_ns"' in line and bool(json.loads(line)) for line in text.splitlines() if line.strip())
        document = json.loads(text)
    except (ValueError, RecursionError, OSError, EOFError):
        return None
    if isinstance(document, dict) and "rocprofiler-sdk-tool" in document:
        return _timed(document)
    entries = document.get("traceEvents", []) if isinstance(document, dict) else document
    if not isinstance(entries, list):
        return 0
    return sum(isinstance(e, list) or (isinstance(e, dict) and str(e.get("ph")) in EVENTS) for e in entries)


def _timed(value: Any) -> int:
    """Return the number of entries of rocprofv3's lists: objects that start."""
    if isinstance(value, dict):
        return ("start_timestamp" in value) + sum(map(_timed, value.values()))
    return sum(map(_timed, value)) if isinstance(value, list) else 0


# The run --------------------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """Result of a run."""

    cases: int = 0
    failures: list[tuple[str, Path, int, str]] = field(default_factory=list)
    cpu_s: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    worst_cpu: tuple[float, str] = (0.0, "")
    worst_memory: tuple[int, str] = (0, "")


def work(found: Sequence[Seed], cases: Sequence[tuple[int, int]], keep: Path | None = None) -> Report:
    """Runs cases, each (place of the seed, number)."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="visualprof-fuzz-") as folder:
        house = House(Path(folder))
        for seed in {s.kind: s for s in sorted(found, key=lambda seed: -seed.size)}.values():
            house.outcome(seed, seed.data)  # what is imported late is imported once
            house.clear()
        whole = cache(lambda i: run_case(house, found[i], found[i].data))
        for place, number in cases:
            seed = found[place]
            data = mutated(seed, random.Random(number))
            out = run_case(house, seed, data)
            counted = seed.kind == "profile" and not (out.error or out.failure)
            wrong = judge(seed, whole(place) if counted else Outcome(), data, out)
            report.cases += 1
            if report.cases % 250 == 0:
                print(f"{report.cases:,} of {len(cases):,}, {report.cpu_s:,.0f} CPU s", flush=True)
            report.cpu_s += out.cpu_s
            report.outcomes["refused" if out.error else "read" if out.events is not None else seed.kind] += 1
            report.worst_cpu = max(report.worst_cpu, (out.cpu_s, f"{seed.path.name} {number}"))
            report.worst_memory = max(report.worst_memory, (out.memory, f"{seed.path.name} {number}"))
            if wrong:
                report.failures.append((wrong, seed.path, number, ""))
                print(f"{seed.path} {number}: {wrong}", flush=True)
                if keep:
                    (keep / f"{number}-{seed.path.name}").write_bytes(data)
    return report


def run(found: Sequence[Seed], count: int, workers: int, number: int, keep: Path | None = None) -> list[Report]:
    """Runs `count` mutations on some processes."""
    places = {id(seed): i for i, seed in enumerate(found)}
    cases = [(places[id(seed)], n) for seed, n in drawn(found, count, random.Random(number))]
    cases.sort(key=lambda case: case[0])
    shares = [cases[i::workers] for i in range(workers)]
    if workers == 1:
        return [work(found, shares[0], keep)]
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:
        return list(pool.map(partial(work, found, keep=keep), shares))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--largest", type=int, default=LARGEST, help="plain bytes of the files that are mutated")
    parser.add_argument("--keep", type=Path, help="folder for the mutated files that fail")
    parser.add_argument(
        "folders", nargs="*", type=Path, default=[RECORDINGS / "traces", RECORDINGS / "models", SAMPLES, FIXTURES]
    )
    args = parser.parse_args()
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    seed_list = seeds(args.folders, args.largest)
    began = time.monotonic()
    reports = run(seed_list, args.count, args.workers, args.seed, args.keep)
    failures = [f for r in reports for f in r.failures]
    kinds = Counter(f[0].partition(":")[0] for f in failures)
    outcomes = sum((r.outcomes for r in reports), Counter[str]())
    print(
        f"{sum(r.cases for r in reports):,} mutations of {len(seed_list)} files in {time.monotonic() - began:,.0f} s,"
        f" {sum(r.cpu_s for r in reports):,.0f} CPU s: {dict(outcomes)}; failures {dict(kinds)};"
        f" most CPU {max(r.worst_cpu for r in reports)}, most memory {max(r.worst_memory for r in reports)}"
    )
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
