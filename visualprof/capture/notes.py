"""Small JSON files that several machines write and read, each written atomically."""

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

MAX_FILE_BYTES = 1 << 16
TRIES = 3
T = TypeVar("T")
_HALF = re.compile("[\ud800-\udfff]")  # lone surrogates: JSON can contain them, UTF-8 cannot


def age_ns(path: Path) -> int:
    """Return the age of a file by the clock of its file system, which may be the clock of another machine."""
    probe = path.with_name(f".{secrets.token_hex(4)}.part")
    os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    try:
        return probe.lstat().st_mtime_ns - path.lstat().st_mtime_ns
    finally:
        probe.unlink()


def write(path: Path, content: Any) -> None:
    """Write a file atomically; links are replaced, not followed."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "wb") as out:
            out.write(json.dumps(vars(content)).encode())
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def read(path: Path, kind: type[T]) -> T | None:
    """Return the content of a file, or None if it is missing, too large or malformed."""
    for _ in range(TRIES):
        with contextlib.suppress(OSError):  # in a shared folder errors are usually temporary
            return read_now(path, kind)
    return None


def read_now(path: Path, kind: type[T]) -> T | None:
    """Return the content of a file.

    Raises:
        OSError: The file cannot be read now.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return decode(file.read(MAX_FILE_BYTES + 1), kind)


def decode(raw: bytes | str, kind: type[T]) -> T | None:
    """Return the decoded content, or None if it is too large or malformed."""
    try:
        content = json.loads(raw) if len(raw) <= MAX_FILE_BYTES else None
    except (ValueError, RecursionError):
        return None
    wanted: list[Any] = list(dataclasses.fields(kind))  # pyright: ignore[reportArgumentType]
    if not isinstance(content, dict):
        return None
    values: dict[str, Any] = {
        f.name: content.get(f.name, f.default) for f in wanted
    }  # older versions may not write the field
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
