"""Read models on demand, in separate processes; graphs are cached on disk, recent ones in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

from msgspec import structs

from visualprof.errors import FormatError, NotReady
from visualprof.messages import msg
from visualprof.reader.cache import Cache
from visualprof.reader.child import MODEL_LIMITS, Failure, ReadFailed
from visualprof.reader.graph import ModelGraph, ModelTooLarge
from visualprof.reader.logdir.pool import Parser, Pool
from visualprof.reader.models import read_model
from visualprof.reader.source import GROWING_HINT, Progress, Source

_MAX_PROCESSES = 2  # at the same time
_MAX_CACHED_NODES = 200_000  # in memory; one model is kept whatever its size
_MAX_CACHED_FAILURES = 1000
_MAX_ATTEMPTS = 2  # per model whose process died: the machine may have been short of memory


class ModelNotReady(NotReady):
    """The model is being read; has the state and progress that the web UI shows."""

    def __init__(self, name: str, progress: float) -> None:
        super().__init__(
            msg("logdir.being_read", f"{name} is being read"), msg("logdir.ask_again_moment", "ask again in a moment")
        )
        self.state = "parsing"
        self.progress = round(progress, 3)


@dataclass
class _Reading:
    """A model that is being read."""

    path: Path
    name: str
    size: int
    done: threading.Event = field(default_factory=threading.Event)
    progress: float = 0.0
    attempts: int = 1
    outcome: ModelGraph | Failure | None = None


class ModelReader:
    """Graphs of model files.

    Args:
        parser: A pool whose task is `cache_graph`; closed with this reader.
        cache: The cache in which the pool's processes store graphs.
    """

    def __init__(self, parser: Parser[str], cache: Cache) -> None:
        self._parser = parser
        self._cache = cache
        self._graphs: OrderedDict[str, ModelGraph] = OrderedDict()
        self._failures: OrderedDict[str, Failure] = OrderedDict()
        self._readings: dict[str, _Reading] = {}
        self._sequence = count()
        self._lock = threading.RLock()
        self._loading = threading.Lock()
        parser.start(self)

    def close(self) -> None:
        """Stop reading. Waiting callers get an answer that makes them ask again."""
        self._parser.close()
        with self._lock:
            for reading in self._readings.values():
                reading.done.set()

    def busy_paths(self) -> set[str]:
        """Return the paths of files that are being read or queued."""
        with self._lock:
            return {str(reading.path) for reading in self._readings.values()}

    def forget_failures(self) -> None:
        """Allow another attempt for models that could not be read."""
        with self._lock:
            self._failures.clear()

    def graph(self, path: Path, name: str, version: tuple[int, int], wait_s: float) -> ModelGraph:
        """Return the graph of a model.

        Args:
            path: The file.
            name: The file's name for users.
            version: Modification time and size of the file.
            wait_s: How long to wait for a model that is not cached. With a wait, it is read before models without one.

        Raises:
            ModelNotReady: The model is being read.
            ReadFailed: The model cannot be read.
        """
        key = f"{version}:{name}:{path}"
        outcome = self._cached(key, name, path)
        if outcome is None:
            with self._lock:
                reading = self._readings.get(key) or self._start_reading(key, _Reading(path, name, version[1]))
            if wait_s:
                self._parser.prioritize(key)
            reading.done.wait(wait_s)
            outcome = reading.outcome
            if outcome is None:
                raise ModelNotReady(name, reading.progress)
        if isinstance(outcome, Failure):
            raise ReadFailed(outcome)
        return outcome

    def _cached(self, key: str, name: str, path: Path) -> ModelGraph | Failure | None:
        """Return the graph or failure from memory, or load the graph from disk, one at a time."""
        with self._lock:
            outcome = self._graphs.get(key) or self._failures.get(key)
            if outcome or key in self._readings:
                if key in self._graphs:
                    self._graphs.move_to_end(key)
                return outcome
        return self._load(key, name, path, Source(path).fingerprint())

    def _start_reading(self, key: str, reading: _Reading) -> _Reading:
        self._readings[key] = reading
        self._parser.submit(key, reading.path, reading.size, (1, next(self._sequence)))
        return reading

    def _load(self, key: str, name: str, path: Path, fingerprint: str) -> ModelGraph | None:
        with self._loading:
            graph = self._graphs.get(key) or self._cache.load_graph(fingerprint)
            if graph is None:
                return None
            if graph.name == path.name:  # a model without a name is named after its file
                graph = replace(graph, name=name)
            self._cache_graph(key, graph)
        return graph

    def _cache_graph(self, key: str, graph: ModelGraph) -> None:
        with self._lock:
            self._graphs[key] = graph
            self._graphs.move_to_end(key)
            while len(self._graphs) > 1 and sum(len(g.nodes) for g in self._graphs.values()) > _MAX_CACHED_NODES:
                self._graphs.popitem(last=False)

    def on_progress(self, key: str, progress: float) -> None:
        """Handle progress of the pool: reading started or advanced."""
        with self._lock:
            reading = self._readings.get(key)
        if reading:
            reading.progress = progress

    def on_finished(self, key: str, outcome: str | Failure) -> None:
        """Handle the end of a pool's job: a model was read into the cache, or cannot be read."""
        with self._lock:
            reading = self._readings.get(key)
        if reading is None:
            return
        if isinstance(outcome, Failure) and outcome.kind == "ProcessDied" and reading.attempts < _MAX_ATTEMPTS:
            reading.attempts += 1
            self._parser.submit(key, reading.path, reading.size, (1, next(self._sequence)))
            return
        name, path = reading.name, reading.path
        result = outcome if isinstance(outcome, Failure) else self._load(key, name, path, outcome)
        if result is None:
            result = Failure(
                msg("logdir.graph_cannot_kept", f"{name}: its graph cannot be kept"),
                msg("logdir.disk_cache_folder_full", "is the disk of the cache folder full?"),
                500,
            )
        if isinstance(result, Failure):
            result = structs.replace(result, error=result.error.replace(path.name, name))
        with self._lock:
            del self._readings[key]
            if isinstance(result, Failure):
                self._failures[key] = result
                while len(self._failures) > _MAX_CACHED_FAILURES:
                    self._failures.popitem(last=False)
        reading.outcome = result
        reading.done.set()


def open_model_reader(cache: Cache) -> ModelReader:
    """Return a reader with its own pool, which starts with the first model: a slow model does not delay profiles."""
    return ModelReader(Pool(partial(cache_graph, cache=cache), _MAX_PROCESSES, MODEL_LIMITS), cache)


def cache_graph(path: str, progress: Progress, *, cache: Cache) -> str:
    """Read a model into the cache and return its fingerprint; the task of a child process.

    Raises:
        UnknownFormat: No model format recognizes the content.
        FormatError: The content is damaged or too large.
        SourceError: The file cannot be read.
    """
    source = Source(path)
    fingerprint = source.fingerprint()
    graph = read_model(path, progress)
    if Source(path).fingerprint() != fingerprint:
        raise FormatError(msg("logdir.changed_while_read", f"{source.name} changed while it was read"), GROWING_HINT)
    try:
        cache.store_graph(graph, fingerprint)
    except ModelTooLarge as error:
        raise source.error(str(error), msg("logdir.export_part", "export a part of it")) from error
    return fingerprint
