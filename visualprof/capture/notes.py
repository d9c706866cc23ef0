"""Small files of JSON that several machines write and read, each written beside its place and renamed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

MOST_BYTES = 1 << 16
TRIES = 3
T = TypeVar("T")
_HALF = re.compile("[\ud800-\udfff]")  # half a character, as JSON can write it and nothing else


def age_ns(path: Path) -> int:
    """Of a file, by the clock of its file system, which may be another machine's."""
    probe = path.with_name(f".{secrets.token_hex(4)}.part")
    os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    try:
        return probe.lstat().st_mtime_ns - path.lstat().st_mtime_ns
    finally:
        probe.unlink()


def write(path: Path, said: Any) -> None:
    """Write one of these files beside its place and renames it; links are replaced, not followed."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "wb") as out:
            out.write(json.dumps(vars(said)).encode())
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def read(path: Path, kind: type[T]) -> T | None:
    """One of these files, whoever wrote it; None for what is not there, is too large or is not of this form."""
    for _ in range(TRIES):
        with contextlib.suppress(OSError):  # of a shared folder it passes, mostly at once
            return read_now(path, kind)
    return None


def read_now(path: Path, kind: type[T]) -> T | None:
    """Raises: OSError: it cannot be read now."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return made(file.read(MOST_BYTES + 1), kind)


def made(raw: bytes | str, kind: type[T]) -> T | None:
    """What such a file says; None where it is too large or not of this form."""
    try:
        said = json.loads(raw) if len(raw) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        return None
    wanted: list[Any] = list(dataclasses.fields(kind))  # pyright: ignore[reportArgumentType]
    if not isinstance(said, dict):
        return None
    values: dict[str, Any] = {f.name: said.get(f.name, f.default) for f in wanted}  # a version before may not say it
    return kind(**values) if all(_FITS[f.type](values[f.name]) for f in wanted) else None


def _is_int(value: Any) -> bool:
    return type(value) is int and -1 <= value < 1 << 63


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 1000 and not _HALF.search(value)


_FITS: dict[Any, Callable[[Any], bool]] = {
    "int": _is_int,
    "int | None": lambda v: v is None or _is_int(v),
    "str": _is_text,
    "bool": lambda v: isinstance(v, bool),
    "list[int]": lambda v: isinstance(v, list) and all(map(_is_int, v)),  # pyright: ignore[reportUnknownArgumentType]
    "list[str]": lambda v: isinstance(v, list) and all(map(_is_text, v)),  # pyright: ignore[reportUnknownArgumentType]
    "dict[str, bool]": lambda v: isinstance(v, dict) and all(type(b) is bool for b in v.values()),  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
}
