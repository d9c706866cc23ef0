"""Log directories at addresses: each is a folder of the cache, empty at first, whose files are listed from there.

What a file is, is told from its head. Who parses a profile copies it for himself, on this machine or on one of a
cluster, and removes the copy: its columns are kept. Models, and what somebody downloads, are copied into the folder,
and go again when there is no room. What results of jobs say of themselves is always there.
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
from visualprof.reader.captured.files import FolderLister, find_captures, hash_states, is_attached_capture
from visualprof.reader.digest import blake2b
from visualprof.reader.logdir.addresses import far_folder
from visualprof.reader.logdir.scan import LogFile, Problem, Root, Verdict, Version, examine
from visualprof.reader.models import model_suffixes, recognise_model
from visualprof.reader.source import Progress, Source, is_address

_log = logging.getLogger(__name__)

COPIES_BYTES = 10 * 1024**3  # of models and downloads, in a folder
_FOLDER, _LISTING = "addresses", "listing.json"
_ALWAYS = frozenset({"job.json", "env.json", "status.json", "points.jsonl", "advice.json"})
_ALWAYS_BYTES = 4 << 20
_HEADS_BYTES = (1 << 20, 16 << 20)  # the second where samples of a monitor stand before what a profiler wrote
_EVERY_S, _REST = 5.0, 10  # between two looks, and in times that one takes
_AT_ONCE = 16
_WAIT_S = 1.0  # for a file that somebody reads: most are there by then
_UNUSED_S = 60.0
_ROOM = msg(
    "logdir.there_room_tmpdir_visualprof", "is there room for it? TMPDIR and VISUALPROF_CACHE_DIR say where copies go"
)


class _Listing(msgspec.Struct):
    """What is at an address: of each file its version and what it is."""

    address: str
    files: dict[str, tuple[Version, Verdict]]

    def names(self, root: Path) -> FolderLister:
        """The names in each folder below `root`."""
        folders: dict[Path, list[str]] = {}
        for name in sorted(self.files):
            path = root / name
            folders.setdefault(path.parent, []).append(path.name)
        return lambda folder: folders.get(Path(folder), [])


_DECODER = msgspec.json.Decoder(_Listing)


class RemoteFolder:
    """The files at an address, as a folder that may be lost. An `Elsewhere`.

    Args:
        address: of the log directory.
        cache: the folder of the cache, which the workers of a cluster must see, too.

    Attributes: path: the folder.

    Raises: VisualprofError: it is no address, or what reads such addresses is not installed.
    """

    def __init__(self, address: str, cache: Path) -> None:
        self._far = far_folder(address)
        self._base = cache / _FOLDER / blake2b(address.encode("utf-8", "replace"), digest_size=8).hexdigest()
        self.path = self._base / (address.partition("?")[0].rstrip("/").rpartition("/")[2] or "files")
        self._listing = _load(self._base) or _Listing(address, {})
        self._root = Root(self.path, "")
        self._items: list[LogFile | Problem] | None = None
        self._coming: dict[str, Future[None]] = {}
        self._lock = threading.Lock()
        self._following = False
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(_AT_ONCE, "address")
        with contextlib.suppress(OSError):  # what cannot be kept is said when it is to be
            self.path.mkdir(parents=True, exist_ok=True)

    def join(self, roots: Sequence[Root]) -> list[Root]:
        """The log directories, of which it is one, with its address."""
        joined = [replace(root, address=self._far.address) if root.path == self.path else root for root in roots]
        self._root = next((root for root in joined if root.path == self.path), self._root)
        return joined

    def start(self) -> None:
        """Follow the address from now on."""
        self._following = True
        threading.Thread(target=self._loop, name="address", daemon=True).start()

    def close(self) -> None:
        """Stops."""
        self._stop.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def files(self) -> Sequence[LogFile | Problem] | None:
        """As of the last look, or as of now where nothing follows the address; None before the first look.

        Raises: as `look`.
        """
        if not self._following:
            self.look()
        return self._items

    def fetch(self, path: str, then: Callable[[VisualprofError | None], object]) -> None:
        """Nothing is to be done: who parses a file copies it."""
        then(None)

    def bring(self, path: str) -> None:
        """Somebody is about to read a file.

        Raises: NotReady: it is being copied. SourceError: it cannot be.
        """
        name, files = _below(self.path, path), self._listing.files  # a look may put another listing there
        if name not in files:
            return
        coming = [self._begun(each, files[each][0]) for each in _with_parts(name, files)]
        wait(coming, _WAIT_S)
        if not all(one.done() for one in coming):
            raise NotReady(
                msg("logdir.being_fetched", f"{os.path.basename(path)} is being fetched"),
                msg("logdir.ask_again_moment", "ask again in a moment"),
            )
        for one in coming:
            one.result()

    def bring_all(self, paths: Iterable[str]) -> None:
        """Copies files with their captures; returns when they are here.

        Raises: SourceError: one cannot be copied.
        """
        files, names = self._listing.files, self._listing.names(self.path)
        wanted = {_below(self.path, each) for path in paths for each in (path, *find_captures(path, names))}
        for one in [self._begun(name, files[name][0]) for name in wanted]:
            one.result()

    def look(self) -> None:
        """Takes note of what is there now.

        Raises: SourceError: it cannot be listed, or its list cannot be kept.
        """
        known, listed = self._listing.files, self._far.list()
        news = {name: version for name, version in listed.items() if name not in known or known[name][0] != version}
        if news or len(listed) != len(known):
            of_news = dict(self._threads.map(self._examined, news.items()))
            self._listing = _Listing(self._far.address, {name: of_news.get(name) or known[name] for name in listed})
            self._save()
        self._remove_old()
        for name, (version, _) in self._listing.files.items():
            always = name.rpartition("/")[2] in _ALWAYS and version.size <= _ALWAYS_BYTES
            if always and not _is_current(self.path / name, version):
                self._begun(name, version).result()
        names = self._listing.names(self.path)
        self._items = [self._log_file(name, *about, names) for name, about in self._listing.files.items()]

    def _examined(self, new: tuple[str, Version]) -> tuple[str, tuple[Version, Verdict]]:
        """What a file is, by one of the same name and size that has only its head."""
        name, version = new
        verdict = Verdict("other")
        for size in _HEADS_BYTES:
            try:
                with tempfile.TemporaryDirectory(prefix="visualprof-") as folder:
                    path = Path(folder) / Path(name).name
                    path.write_bytes(self._far.head(name, version, size))
                    os.truncate(path, version.size)
                    verdict = _verdict(path, version)
            except SourceError as error:
                verdict = Verdict("skipped", "", error.error, error.hint)
            except OSError as error:
                verdict = Verdict(
                    "skipped",
                    "",
                    msg("logdir.cannot_looked_into", f"{name} cannot be looked into: {error.strerror}"),
                    _ROOM,
                )
            if verdict.kind != "skipped" or version.size <= size:
                break
        return name, (version, verdict)

    def _log_file(self, name: str, version: Version, verdict: Verdict, names: FolderLister) -> LogFile:
        folder, _, last = name.rpartition("/")
        path = str(self.path / name)
        if verdict.kind == "profile" and is_attached_capture(path, str(self.path), names):
            verdict = Verdict("other")
        elif verdict.kind == "profile":
            captures = [_below(self.path, capture) for capture in find_captures(path, names)]
            states = [f"{capture}:{self._listing.files[capture][0]}" for capture in captures]
            version = replace(version, captures=hash_states(states))
        return LogFile(path, f"{self._root.prefix}/{name}".lstrip("/"), self._root, folder, last, version, verdict)

    def _begun(self, name: str, version: Version) -> Future[None]:
        """The copy of a file, which is under way or done."""
        with self._lock:
            coming = self._coming.get(name)
            if coming is None or (coming.done() and not _is_current(self.path / name, version)):
                coming = self._coming[name] = self._threads.submit(self._copy, name, version)
            return coming

    def _copy(self, name: str, version: Version) -> None:
        target = self.path / name
        try:
            if not _is_current(target, version):
                target.parent.mkdir(parents=True, exist_ok=True)
                part = target.with_name(f".{os.getpid()}.{threading.get_ident()}.part")
                try:
                    self._far.copy(name, str(part), version, _silent)
                    part.replace(target)
                finally:
                    part.unlink(missing_ok=True)
            os.utime(target, ns=(time.time_ns(), version.mtime_ns))
        except OSError as error:
            raise SourceError(msg("logdir.cannot_kept", f"{name} cannot be kept: {error.strerror}"), _ROOM) from error

    def _remove_old(self) -> None:
        """Removes copies of what is gone or changed, and the least recently used beyond what they may take."""
        here: list[tuple[float, int, Path]] = []
        for folder, _, names in os.walk(self.path):
            for path in (Path(folder) / name for name in names):
                with contextlib.suppress(OSError):
                    status, known = path.stat(), self._listing.files.get(_below(self.path, path))
                    if time.time() - status.st_atime > _UNUSED_S:
                        if known is None or not _is_current(path, known[0]):
                            path.unlink()
                        elif path.name not in _ALWAYS:
                            here.append((status.st_atime, status.st_size, path))
        excess = sum(size for _, size, _ in here) - COPIES_BYTES
        for _, size, path in sorted(here):
            if excess > 0:
                path.unlink(missing_ok=True)
                excess -= size

    def _save(self) -> None:
        """For the next server, and for who parses its files."""
        try:
            self._base.mkdir(parents=True, exist_ok=True)
            part = self._base / f".{os.getpid()}.part"
            part.write_bytes(msgspec.json.encode(self._listing))
            part.replace(self._base / _LISTING)
        except OSError as error:
            what = msg(
                "logdir.cannot_followed_cannot_written",
                f"{self._far.address} cannot be followed: {self._base} cannot be written: {error.strerror}",
            )
            raise SourceError(
                what, msg("logdir.name_another_folder_visualprof", "name another folder in VISUALPROF_CACHE_DIR")
            ) from error

    def _loop(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - the next look may do better
                if self._stop.is_set():
                    return
                known = error if isinstance(error, VisualprofError) else None
                _log.warning("%s: %s", self._far.address, error, exc_info=known is None)
                problem = Problem(self._far.address, known.error if known else str(error), known.hint if known else "")
                self._items = [*(one for one in self._items or () if isinstance(one, LogFile)), problem]
            self._stop.wait(max(_EVERY_S, _REST * (time.monotonic() - began)))


def open_addresses(paths: Sequence[str | Path], cache: Path) -> tuple[list[str | Path], list[RemoteFolder]]:
    """Log directories as paths, and those of them that are at addresses.

    Raises: as `RemoteFolder`.
    """
    folders = {path: RemoteFolder(str(path), cache) for path in paths if is_address(path)}
    return [folders[path].path if path in folders else path for path in paths], list(folders.values())


@contextlib.contextmanager
def local_copy(path: str, progress: Progress) -> Generator[tuple[str, Progress]]:
    """A file that can be parsed, and its progress: one at an address is copied with its captures, until the end.

    Raises: SourceError: it cannot be copied.
    """
    listing, root = _listed(path)
    if listing is None:
        yield path, progress
        return
    far, names = far_folder(listing.address), listing.names(root)
    with tempfile.TemporaryDirectory(prefix="visualprof-") as folder:
        for each in (path, *find_captures(path, names)):
            name = _below(root, each)
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            far.copy(name, str(target), listing.files[name][0], lambda done: progress(done / 2))
        yield str(Path(folder) / _below(root, path)), lambda done: progress((1 + done) / 2)


def size_of(path: str) -> int:
    """Bytes of a file, here or at an address; -1 where there is none."""
    listing, root = _listed(path)
    if listing:
        return listing.files[_below(root, path)][0].size
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _listed(path: str) -> tuple[_Listing | None, Path]:
    """The listing that has a path, and the folder that its names begin at; None for an ordinary file."""
    for root, base in itertools.pairwise(Path(path).parents):
        if base.parent.name == _FOLDER and (listing := _load(base)) and _below(root, path) in listing.files:
            return listing, root
    return None, Path()


def _load(base: Path) -> _Listing | None:
    try:
        return _DECODER.decode((base / _LISTING).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def _verdict(path: Path, version: Version) -> Verdict:
    verdict = examine(LogFile(str(path), path.name, Root(path.parent, ""), "", path.name, version))
    if verdict.kind == "other" and path.name.lower().endswith(model_suffixes()):
        model = recognise_model(Source(path))
        return replace(verdict, format=model.name if model else "")
    return verdict


def _with_parts(name: str, files: Mapping[str, tuple[Version, Verdict]]) -> list[str]:
    """A file; with a model what lies beside it under the same name, where its weights may be."""
    verdict = files[name][1]
    if verdict.kind != "other" or not verdict.format:
        return [name]
    stem = name.rpartition(".")[0]
    return [other for other in files if other == name or other.startswith(f"{stem}.")]


def _below(root: Path, path: str | Path) -> str:
    """A path as a name; "" when it is not below the folder."""
    with contextlib.suppress(ValueError):
        return Path(path).relative_to(root).as_posix()
    return ""


def _is_current(path: Path, version: Version) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (version.size, version.mtime_ns)


def _silent(fraction: float) -> None:
    """Nobody sees how far a copy is."""
