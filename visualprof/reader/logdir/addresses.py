"""Folders at addresses: in buckets, `s3://bucket/runs`, or on any other file system that fsspec supports.

Credentials come from the usual places of the services' own tools (AWS_ACCESS_KEY_ID, AWS_PROFILE, ...). They are never
part of an address.
"""

from __future__ import annotations

import datetime
import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from visualprof.errors import BadParameter, SourceError, VisualprofError
from visualprof.messages import msg
from visualprof.reader.digest import blake2b
from visualprof.reader.logdir.entry_count import MAX_ENTRIES
from visualprof.reader.logdir.scan import Version
from visualprof.reader.source import ADDRESS

_BUCKET_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
_ADDRESS_HINT = msg(
    "logdir.like_s3_bucket_runs", "it is like s3://bucket/runs, or s3://bucket/runs?endpoint=https://s3.example.org"
)
_PIECE_BYTES = 8 << 20

Result = TypeVar("Result")


class RemoteStore(ABC):
    """A remote folder; names are relative paths with `/`."""

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    def _entries(self) -> Iterable[tuple[str, int, object, object]]:
        """Return name, size in bytes, modification time and tag of every file below the folder."""

    @abstractmethod
    def _head(self, name: str, size: int) -> bytes:
        """Return the first bytes of a file that is longer."""

    @abstractmethod
    def _pieces(self, name: str) -> Iterable[bytes | memoryview]:
        """Return the content of a file, in pieces."""

    def list(self) -> dict[str, Version]:
        """Return every file below the folder, except hidden ones.

        Raises:
            SourceError: The folder cannot be listed, or has too many files.
        """
        listed: dict[str, Version] = {}
        for name, size, changed, tag in self._iterate(
            lambda: self._entries(), msg("logdir.cannot_listed", f"{self.address} cannot be listed")
        ):
            if _is_plain(name):
                listed[name] = _version(size, changed, tag)
            if len(listed) > MAX_ENTRIES:
                raise SourceError(
                    msg("logdir.over_files", f"{self.address} has over {MAX_ENTRIES:,} files"),
                    msg("logdir.name_folder_further_down", "name a folder further down"),
                )
        return listed

    def head(self, name: str, version: Version, size: int) -> bytes:
        """Return the first bytes of a file, or all of a shorter one.

        Raises:
            SourceError: The file cannot be read.
        """
        failure = msg("logdir.cannot_read", f"{name} cannot be read from {self.address}")
        if version.size <= size:
            return b"".join(self._iterate(lambda: self._pieces(name), failure))
        return self._translate_errors(lambda: self._head(name, size), failure)

    def copy(self, name: str, target: str, version: Version, progress: Callable[[float], None]) -> None:
        """Copy a file with its modification time.

        Raises:
            SourceError: The file cannot be read or stored, or has changed.
        """
        copied = 0
        try:
            with open(target, "wb") as file:
                for piece in self._iterate(
                    lambda: self._pieces(name), msg("logdir.cannot_read", f"{name} cannot be read from {self.address}")
                ):
                    copied += file.write(piece)
                    progress(min(copied / max(version.size, 1), 1.0))
            os.utime(target, ns=(version.mtime_ns, version.mtime_ns))
        except OSError as error:
            hint = msg(
                "logdir.there_room_tmpdir_visualprof",
                "is there room for it? TMPDIR and VISUALPROF_CACHE_DIR say where copies go",
            )
            raise SourceError(msg("logdir.cannot_kept", f"{name} cannot be kept: {error.strerror}"), hint) from error
        if copied != version.size:
            raise SourceError(
                msg("logdir.bytes_now_not", f"{name} has {copied:,} bytes by now, not {version.size:,}"),
                msg("logdir.being_written", "it is being written"),
            )

    def _iterate(self, request: Callable[[], Iterable[Result]], failure: str) -> Iterator[Result]:
        """Yield the results of a request; its errors become `SourceError`."""
        answers = iter(self._translate_errors(request, failure))
        while True:
            try:
                answer = self._translate_errors(lambda: next(answers), failure)
            except StopIteration:
                return
            yield answer

    @staticmethod
    def _translate_errors(request: Callable[[], Result], failure: str) -> Result:
        """Return the result of a request; its errors become `SourceError`."""
        try:
            return request()
        except (StopIteration, VisualprofError):
            raise
        except Exception as error:  # each package has its own errors
            lines = str(error).strip().splitlines()  # the first line only; obstore reports the whole request
            hint = msg(
                "logdir.address_right_credentials_there",
                "is the address right, are the credentials there, and may they read it?",
            )
            raise SourceError(f"{failure}: {type(error).__name__}: {lines[0][:300] if lines else ''}", hint) from error


class _BucketStore(RemoteStore):
    """A folder below a prefix of a bucket."""

    def __init__(self, address: str, bare: str, options: dict[str, Any]) -> None:
        super().__init__(address)
        if unknown := options.keys() - {"endpoint", "region"}:
            raise BadParameter(
                msg("logdir.no_part_address", f"{bare}: {min(unknown)} is not a valid part of an address"),
                _ADDRESS_HINT,
            )
        client: dict[str, Any] = {"timeout": "1h"}  # for a whole file
        if options.get("endpoint", os.environ.get("AWS_ENDPOINT_URL", "")).startswith("http://"):
            client["allow_http"] = True
        self._package = _package("obstore")
        scheme, _, bucket_path = bare.partition("://")
        name, _, prefix = bucket_path.partition("/")
        self._prefix = f"{prefix.strip('/')}/".lstrip("/")
        from_url: Callable[..., Any] = _package("obstore.store").from_url
        failure = msg("logdir.cannot_opened", f"{bare} cannot be opened")
        retry = {"max_retries": 3, "retry_timeout": datetime.timedelta(seconds=30)}
        options |= {"client_options": client, "retry_config": retry}
        self._store = self._translate_errors(lambda: from_url(f"{scheme}://{name}", **options), failure)

    def _entries(self) -> Iterator[tuple[str, int, object, object]]:
        for entries in self._package.list(self._store, self._prefix or None, chunk_size=1000):
            for entry in entries:
                name = entry["path"].removeprefix(self._prefix)
                yield name, entry["size"], entry["last_modified"], entry["e_tag"]

    def _head(self, name: str, size: int) -> bytes:
        return bytes(self._package.get_range(self._store, self._prefix + name, start=0, end=size))

    def _pieces(self, name: str) -> Iterable[memoryview]:
        stream = self._package.get(self._store, self._prefix + name).stream(min_chunk_size=_PIECE_BYTES)
        return (memoryview(piece) for piece in stream)


class _FsspecStore(RemoteStore):
    """A folder on any file system of fsspec."""

    _TIMES = ("mtime", "LastModified", "last_modified", "modified")
    _TAGS = ("ETag", "etag", "md5", "ino")

    def __init__(self, address: str) -> None:
        super().__init__(address)
        open_system: Callable[[str], tuple[Any, str]] = _package("fsspec.core").url_to_fs
        try:
            self._system, path = open_system(address)
        except ValueError as error:
            raise BadParameter(f"{address}: {error}", _ADDRESS_HINT) from error
        except ImportError as error:
            problem = msg("logdir.needs_another_package", f"{address} needs another package: {error}")
            raise VisualprofError(
                problem, msg("logdir.install_beside_visualprof", "install it in the environment of visualprof")
            ) from error
        self._prefix = f"{path.rstrip('/')}/" if path else ""

    def _entries(self) -> Iterator[tuple[str, int, object, object]]:
        self._system.invalidate_cache()
        root = self._prefix.rstrip("/") or "/"
        self._system.ls(root, detail=False)  # `find` ignores a missing folder
        for name, info in self._system.find(root, detail=True).items():
            changed, tag = (next((info[key] for key in keys if info.get(key)), 0) for keys in (self._TIMES, self._TAGS))
            yield name.removeprefix(self._prefix), int(info.get("size") or 0), changed, tag

    def _head(self, name: str, size: int) -> bytes:
        return self._system.cat_file(self._prefix + name, start=0, end=size)

    def _pieces(self, name: str) -> Iterator[bytes]:
        with self._system.open(self._prefix + name, "rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece


@lru_cache(32)
def open_store(address: str) -> RemoteStore:
    """Return the store of an address.

    Raises:
        BadParameter: This is not an address.
        VisualprofError: The package for such addresses is not installed.
    """
    match = ADDRESS.fullmatch(address)
    if match is None:
        raise BadParameter(msg("logdir.no_address", f"{address!r} is not an address"), _ADDRESS_HINT)
    if match[1] not in _BUCKET_SCHEMES:
        return _FsspecStore(address)
    bare, _, query = address.partition("?")
    return _BucketStore(address, bare, dict(parse_qsl(query)))


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        distribution = name.partition(".")[0]
        raise VisualprofError(
            msg("logdir.log_directories_addresses_need", f"log directories at addresses need {distribution}"),
            msg("logdir.pip_install_visualprof_cloud", "pip install 'visualprof[cloud]'"),
        ) from error


def _version(size: int, changed: object, tag: object) -> Version:
    """Return the version of a file.

    Args:
        size: Size in bytes.
        changed: Modification time: a datetime or Unix seconds; anything else is ignored.
        tag: Used in place of the inode.
    """
    seconds = changed.timestamp() if isinstance(changed, datetime.datetime) else changed
    mtime_ns = int(seconds * 1e6) * 1000 if isinstance(seconds, int | float) else 0
    digest = blake2b(str(tag).encode("utf-8", "replace"), digest_size=6).digest()
    return Version(size, mtime_ns, int.from_bytes(digest, "little"))


def _is_plain(name: str) -> bool:
    """Return whether the name is a valid relative path without hidden parts. A bucket's key can be any text."""
    return all(part and part[0] != "." and not {"\0", "\\"} & {*part} for part in name.split("/"))
