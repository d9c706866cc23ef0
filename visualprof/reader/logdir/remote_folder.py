"""Log directories at remote addresses. Each has a folder in the cache, empty at first, and a list of remote files.

- The first bytes of a file determine its kind.
- A parser makes its own temporary copy of a profile, on this machine or on one of a cluster. Only the columns are kept.
- Models and downloads are copied into the folder, and deleted again when space is needed.
- Small result files of jobs are always present.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec
from msgspec.structs import replace

from visualprof.errors import NotReady, SourceError, VisualprofError
from visualprof.messages import msg
from visualprof.reader.digest import blake2b
from visualprof.reader.graph_capture.files import FolderLister, find_captures, hash_states, is_attached_capture
from visualprof.reader.logdir.addresses import open_store
from visualprof.reader.logdir.scan import RESULT_JSON, LogFile, Problem, Root, Verdict, Version, examine
from visualprof.reader.models import model_suffixes, recognize_model
from visualprof.reader.source import Progress, Source, is_address
from visualprof.supervised_thread import SupervisedThread

_log = logging.getLogger(__name__)

MAX_COPIES_BYTES = 10 * 1024**3  # for models and downloads, per folder
_FOLDER, _LISTING = "addresses", "listing.json"
_RESULT_FILES = RESULT_JSON | {"points.jsonl"}
_MAX_RESULT_BYTES = 4 << 20
_HEADS_BYTES = (1 << 20, 16 << 20)  # the second if samples of a monitor precede the profiler's own events
_SCAN_INTERVAL_S, _SCAN_REST_RATIO = 5.0, 10  # seconds between scans, and as a multiple of a scan's duration
_MAX_THREADS = 16
_COPY_WAIT_S = 1.0  # for a requested file; most arrive in time
_UNUSED_COPY_S = 60.0
_DISK_HINT = msg(
    "logdir.there_room_tmpdir_visualprof", "is there room for it? TMPDIR and VISUALPROF_CACHE_DIR say where copies go"
)


class _Listing(msgspec.Struct):
    """Contents of an address: version and verdict of each file."""

    address: str
    files: dict[str, tuple[Version, Verdict]]

    def names(self, root: Path) -> FolderLister:
        """Return a function that lists the names in each folder below `root`."""
        folders: dict[Path, list[str]] = {}
        for name in sorted(self.files):
            path = root / name
            folders.setdefault(path.parent, []).append(path.name)
        return lambda folder: folders.get(Path(folder), [])


_DECODER = msgspec.json.Decoder(_Listing)


class RemoteFolder:
    """The files at an address, as a folder that may be deleted at any time. A `RemoteFileSource`.

    Args:
        address: The address of the log directory.
        cache: The cache folder; the workers of a cluster must see it as well.

    Attributes:
        path: The folder.

    Raises:
        VisualprofError: This is not an address, or the package for such addresses is not installed.
    """

    def __init__(self, address: str, cache: Path) -> None:
        self._store = open_store(address)
        self._base = cache / _FOLDER / blake2b(address.encode("utf-8", "replace"), digest_size=8).hexdigest()
        self.path = self._base / (address.partition("?")[0].rstrip("/").rpartition("/")[2] or "files")
        self._listing = _load_listing(self._base) or _Listing(address, {})
        self._root = Root(self.path, "")
        self._items: list[LogFile | Problem] | None = None
        self._copies: dict[str, Future[None]] = {}
        self._lock = threading.Lock()
        self._following = False
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(_MAX_THREADS, "address")
        with contextlib.suppress(OSError):  # reported when a copy is needed
            self.path.mkdir(parents=True, exist_ok=True)

    def join(self, roots: Sequence[Root]) -> list[Root]:
        """Return the log directories with this folder's address added to its entry."""
        joined = [replace(root, address=self._store.address) if root.path == self.path else root for root in roots]
        self._root = next((root for root in joined if root.path == self.path), self._root)
        return joined

    def start(self) -> None:
        """Scan the address regularly from now on."""
        self._following = True
        SupervisedThread(self._loop, "address", self._stop.is_set).start()

    def close(self) -> None:
        """Stop scanning."""
        self._stop.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def files(self) -> Sequence[LogFile | Problem] | None:
        """Return the files of the last scan, or scan now if nothing scans regularly; `None` before the first scan.

        Raises:
            SourceError: As for `scan`.
        """
        if not self._following:
            self.scan()
        return self._items

    def fetch(self, path: str, on_done: Callable[[VisualprofError | None], object]) -> None:
        """Report success at once: a parser copies the file itself."""
        on_done(None)

    def ensure_local(self, path: str) -> None:
        """Make sure that a file can be read.

        Raises:
            NotReady: The file is being copied.
            SourceError: The file cannot be copied.
        """
        name, files = _relative_name(self.path, path), self._listing.files  # a scan may replace the listing meanwhile
        if name not in files:
            return
        copies = [self._start_copy(file_name, files[file_name][0]) for file_name in _with_weight_files(name, files)]
        wait(copies, _COPY_WAIT_S)
        if not all(pending.done() for pending in copies):
            raise NotReady(
                msg("logdir.being_fetched", f"{os.path.basename(path)} is being fetched"),
                msg("logdir.ask_again_moment", "ask again in a moment"),
            )
        for copy in copies:
            copy.result()

    def copy_all(self, paths: Iterable[str]) -> None:
        """Copy files with their captures and wait for the copies.

        Raises:
            SourceError: A file cannot be copied.
        """
        files, names = self._listing.files, self._listing.names(self.path)
        wanted = {
            _relative_name(self.path, file_path) for path in paths for file_path in (path, *find_captures(path, names))
        }
        for copy in [self._start_copy(name, files[name][0]) for name in wanted]:
            copy.result()

    def scan(self) -> None:
        """Update the listing.

        Raises:
            SourceError: The address cannot be listed, or the listing cannot be stored.
        """
        files, listed = self._listing.files, self._store.list()
        changed = {name: version for name, version in listed.items() if name not in files or files[name][0] != version}
        if changed or len(listed) != len(files):
            examined = dict(self._threads.map(self._examine, changed.items()))
            self._listing = _Listing(self._store.address, {name: examined.get(name) or files[name] for name in listed})
            self._save()
        self._remove_old()
        for name, (version, _) in self._listing.files.items():
            is_result = name.rpartition("/")[2] in _RESULT_FILES and version.size <= _MAX_RESULT_BYTES
            if is_result and not _is_current(self.path / name, version):
                self._start_copy(name, version).result()
        names = self._listing.names(self.path)
        self._items = [
            self._log_file(name, *version_and_verdict, names)
            for name, version_and_verdict in self._listing.files.items()
        ]

    def _examine(self, item: tuple[str, Version]) -> tuple[str, tuple[Version, Verdict]]:
        """Return the verdict on a file, from a file of the same name and size that only has its head."""
        name, version = item
        verdict = Verdict("other")
        for size in _HEADS_BYTES:
            try:
                with tempfile.TemporaryDirectory(prefix="visualprof-") as folder:
                    path = Path(folder) / Path(name).name
                    path.write_bytes(self._store.head(name, version, size))
                    os.truncate(path, version.size)
                    verdict = _examine_head(path, version)
            except SourceError as error:
                verdict = Verdict("skipped", "", error.error, error.hint)
            except OSError as error:
                verdict = Verdict(
                    "skipped",
                    "",
                    msg("logdir.cannot_looked_into", f"{name} cannot be looked into: {error.strerror}"),
                    _DISK_HINT,
                )
            if verdict.kind != "skipped" or version.size <= size:
                break
        return name, (version, verdict)

    def _log_file(self, name: str, version: Version, verdict: Verdict, names: FolderLister) -> LogFile:
        folder, _, file_name = name.rpartition("/")
        path = str(self.path / name)
        if verdict.kind == "profile" and is_attached_capture(path, str(self.path), names):
            verdict = Verdict("other")
        elif verdict.kind == "profile":
            captures = [_relative_name(self.path, capture) for capture in find_captures(path, names)]
            states = [f"{capture}:{self._listing.files[capture][0]}" for capture in captures]
            version = replace(version, captures=hash_states(states))
        return LogFile(
            path=path,
            file=f"{self._root.prefix}/{name}".lstrip("/"),
            root=self._root,
            folder=folder,
            name=file_name,
            version=version,
            verdict=verdict,
        )

    def _start_copy(self, name: str, version: Version) -> Future[None]:
        """Return the copy of a file, which may be in progress or done."""
        with self._lock:
            copy = self._copies.get(name)
            if copy is None or (copy.done() and not _is_current(self.path / name, version)):
                copy = self._copies[name] = self._threads.submit(self._copy, name, version)
            return copy

    def _copy(self, name: str, version: Version) -> None:
        target = self.path / name
        try:
            if not _is_current(target, version):
                target.parent.mkdir(parents=True, exist_ok=True)
                partial = target.with_name(f".{os.getpid()}.{threading.get_ident()}.part")
                try:
                    self._store.copy(name, str(partial), version, _ignore_progress)
                    partial.replace(target)
                finally:
                    partial.unlink(missing_ok=True)
            os.utime(target, ns=(time.time_ns(), version.mtime_ns))
        except OSError as error:
            raise SourceError(
                msg("logdir.cannot_kept", f"{name} cannot be kept: {error.strerror}"), _DISK_HINT
            ) from error

    def _remove_old(self) -> None:
        """Delete copies of deleted or changed files, and the least recently used copies beyond the size limit."""
        unused: list[tuple[float, int, Path]] = []
        for folder, _, names in os.walk(self.path):
            for path in (Path(folder) / name for name in names):
                with contextlib.suppress(OSError):
                    status, listed = path.stat(), self._listing.files.get(_relative_name(self.path, path))
                    if time.time() - status.st_atime > _UNUSED_COPY_S:
                        if listed is None or not _is_current(path, listed[0]):
                            path.unlink()
                        elif path.name not in _RESULT_FILES:
                            unused.append((status.st_atime, status.st_size, path))
        excess = sum(size for _, size, _ in unused) - MAX_COPIES_BYTES
        for _, size, path in sorted(unused):
            if excess > 0:
                path.unlink(missing_ok=True)
                excess -= size

    def _save(self) -> None:
        """Store the listing, for the next server and for parsers."""
        try:
            self._base.mkdir(parents=True, exist_ok=True)
            partial = self._base / f".{os.getpid()}.part"
            partial.write_bytes(msgspec.json.encode(self._listing))
            partial.replace(self._base / _LISTING)
        except OSError as error:
            problem = msg(
                "logdir.cannot_followed_cannot_written",
                f"{self._store.address} cannot be followed: {self._base} cannot be written: {error.strerror}",
            )
            raise SourceError(
                problem, msg("logdir.name_another_folder_visualprof", "name another folder in VISUALPROF_CACHE_DIR")
            ) from error

    def _loop(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self.scan()
            except Exception as error:  # noqa: BLE001 - the next scan may succeed
                if self._stop.is_set():
                    return
                reported = error if isinstance(error, VisualprofError) else None
                _log.warning("%s: %s", self._store.address, error, exc_info=reported is None)
                problem = Problem(
                    self._store.address, reported.error if reported else str(error), reported.hint if reported else ""
                )
                self._items = [*(item for item in self._items or () if isinstance(item, LogFile)), problem]
            self._stop.wait(max(_SCAN_INTERVAL_S, _SCAN_REST_RATIO * (time.monotonic() - began)))


def open_addresses(paths: Sequence[str | Path], cache: Path) -> tuple[list[str | Path], list[RemoteFolder]]:
    """Return the log directories as paths, and the folders of those that are at addresses.

    Raises:
        VisualprofError: As for `RemoteFolder`.
    """
    folders = {path: RemoteFolder(str(path), cache) for path in paths if is_address(path)}
    return [folders[path].path if path in folders else path for path in paths], list(folders.values())


@contextlib.contextmanager
def local_copy(path: str, progress: Progress) -> Generator[tuple[str, Progress]]:
    """Return a context with a local file and its progress callback. A remote file is copied with its captures.

    Raises:
        SourceError: The file cannot be copied.
    """
    listing, root = _find_listing(path)
    if listing is None:
        yield path, progress
        return
    store, names = open_store(listing.address), listing.names(root)
    with tempfile.TemporaryDirectory(prefix="visualprof-") as folder:
        for file_path in (path, *find_captures(path, names)):
            name = _relative_name(root, file_path)
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            store.copy(name, str(target), listing.files[name][0], lambda fraction: progress(fraction / 2))
        yield str(Path(folder) / _relative_name(root, path)), lambda fraction: progress((1 + fraction) / 2)


def file_size(path: str) -> int:
    """Return the size in bytes of a local or remote file, -1 if it does not exist."""
    listing, root = _find_listing(path)
    if listing:
        return listing.files[_relative_name(root, path)][0].size
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _find_listing(path: str) -> tuple[_Listing | None, Path]:
    """Return the listing that has a path, and the root of its names; `None` for an ordinary file."""
    for root, base in itertools.pairwise(Path(path).parents):
        if (
            base.parent.name == _FOLDER
            and (listing := _load_listing(base))
            and _relative_name(root, path) in listing.files
        ):
            return listing, root
    return None, Path()


def _load_listing(base: Path) -> _Listing | None:
    try:
        return _DECODER.decode((base / _LISTING).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def _examine_head(path: Path, version: Version) -> Verdict:
    verdict = examine(
        LogFile(path=str(path), file=path.name, root=Root(path.parent, ""), folder="", name=path.name, version=version)
    )
    if verdict.kind == "other" and path.name.lower().endswith(model_suffixes()):
        model = recognize_model(Source(path))
        return replace(verdict, format=model.name if model else "")
    return verdict


def _with_weight_files(name: str, files: Mapping[str, tuple[Version, Verdict]]) -> list[str]:
    """Return a file's name; for a model also files with the same stem, which may contain its weights."""
    verdict = files[name][1]
    if verdict.kind != "other" or not verdict.format:
        return [name]
    stem = name.rpartition(".")[0]
    return [file_name for file_name in files if file_name == name or file_name.startswith(f"{stem}.")]


def _relative_name(root: Path, path: str | Path) -> str:
    """Return a path relative to the folder, "" if it is outside."""
    with contextlib.suppress(ValueError):
        return Path(path).relative_to(root).as_posix()
    return ""


def _is_current(path: Path, version: Version) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (version.size, version.mtime_ns)


def _ignore_progress(fraction: float) -> None:
    """Ignore progress: the progress of a copy is not shown."""
