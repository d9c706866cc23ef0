"""Registry of profile and model formats: plugins that are found by listing a folder and chosen by file content."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

from visualprof.errors import UnknownFormat
from visualprof.messages import msg
from visualprof.reader import formats
from visualprof.reader.foreign_files import unknown_format
from visualprof.reader.source import Source
from visualprof.reader.trace.builder import TraceBuilder

# May precede JSON: blanks, a byte order mark, zeros of a file being written.
LEADING_BLANKS = b"\x00 \t\r\n\xef\xbb\xbf"


def opens_with(head: bytes, *brackets: bytes) -> bool:
    """Return whether the data start with one of the brackets, after blanks."""
    return head.lstrip(LEADING_BLANKS).startswith(brackets)


def is_json(head: bytes) -> bool:
    """Return whether the data start like a JSON object or list."""
    return opens_with(head, b"{", b"[")


@dataclass(frozen=True)
class Plugin:
    """Common properties of profile and model formats.

    Args:
        name: Short id, shown to the user.
        label: The name that users know, for hints: `torch.profiler`. Several formats may share it.
        priority: Formats are tried in ascending order; a more specific format has a smaller number.
        sniff: Decides by the first 64 KiB, unpacked, whether the content is of this format.
        suffixes: File name endings, in lower case, that only this format uses. An unreadable file with such an ending
            is reported.
    """

    name: str
    label: str
    priority: int
    sniff: Callable[[bytes], bool]
    _: KW_ONLY
    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format(Plugin):
    """A profile format.

    Args:
        read: Reads the whole source into the builder. Raises `FormatError`.
        start: Decides by the first 512 bytes or more, unpacked, whether `sniff` is worth calling. It runs on every file
            of a log directory, including datasets and weights, so it must only compare bytes (default: `is_json`).
    """

    read: Callable[[Source, TraceBuilder], None]
    _: KW_ONLY
    start: Callable[[bytes], bool] = is_json


P = TypeVar("P", bound=Plugin)


def plugins(folder: ModuleType, attribute: str, kind: type[P]) -> tuple[P, ...]:
    """Return the members called `attribute` of the modules of a package, the most specific first."""
    modules = (importlib.import_module(f"{folder.__name__}.{m.name}") for m in pkgutil.iter_modules(folder.__path__))
    members: list[Any] = [getattr(module, attribute, None) for module in modules]
    return tuple(sorted((m for m in members if isinstance(m, kind)), key=lambda plugin: (plugin.priority, plugin.name)))


def labels(entries: Iterable[Plugin]) -> str:
    """Return the labels of formats as text: `Paddle, MegEngine and ONNX Runtime`."""
    *names, last_name = dict.fromkeys(plugin.label for plugin in entries)
    return f"{', '.join(names)} and {last_name}" if names else last_name


@cache
def all_formats() -> tuple[Format, ...]:
    """Return all profile formats, the most specific first."""
    return plugins(formats, "FORMAT", Format)


@cache
def _start_checks() -> tuple[Callable[[bytes], bool], ...]:
    return tuple(dict.fromkeys(candidate.start for candidate in all_formats()))


def may_be_profile(head: bytes) -> bool:
    """Return whether a file with these first bytes (512 or more, unpacked) is worth sniffing."""
    return any(start(head) for start in _start_checks())


@cache
def profile_suffixes() -> tuple[str, ...]:
    """Return the file name endings that only one profile format uses."""
    return tuple(suffix for candidate in all_formats() for suffix in candidate.suffixes)


def unknown_profile(name: str, head: bytes) -> UnknownFormat:
    """Return the error for a file that is not a profile, with the kind of the file if known."""
    return unknown_format(
        name,
        head,
        msg("reader.no_profile_format_recognises", f"{name}: no profile format recognizes the content"),
        msg("reader.visualprof_reads_plain_gzipped", f"visualprof reads {labels(all_formats())}, plain or gzipped"),
    )
