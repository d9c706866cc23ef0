"""The formats, found by listing the folder `formats`, and the choice of one for a file."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from visualprof.errors import EmptyFile, UnknownFormat
from visualprof.reader import formats
from visualprof.reader.source import HEAD_BYTES, Source
from visualprof.reader.trace.builder import TraceBuilder


@dataclass(frozen=True)
class Format:
    """A profile format.

    Args:
        name: short id, shown to the user.
        priority: formats are asked in ascending order; a more specific one goes first.
        sniff: says from the first 64 KiB (unpacked) whether the content is of this format.
        read: reads the whole source into the builder. Raises FormatError.
    """

    name: str
    priority: int
    sniff: Callable[[bytes], bool]
    read: Callable[[Source, TraceBuilder], None]


@cache
def all_formats() -> tuple[Format, ...]:
    """Every format of the folder, the most specific first."""
    modules = (importlib.import_module(f"{formats.__name__}.{m.name}") for m in pkgutil.iter_modules(formats.__path__))
    return tuple(sorted((m.FORMAT for m in modules if hasattr(m, "FORMAT")), key=lambda f: (f.priority, f.name)))


# The samples of the monitor, as a remote run puts them before the profiler's own events (docs/adr/0014).
_SAMPLE = re.compile(rb'\{"ph": ?"C"[^{}]*\{[^{}]*\}\}\s*,?\s*')
_SAMPLES_BYTES = 16 << 20


def _own_head(source: Source) -> bytes:
    """The first 64 KiB of what the profiler itself wrote: by samples alone no format can be told."""
    head = source.head()
    if len(_SAMPLE.findall(head[: HEAD_BYTES // 2])) < 10:
        return head
    own, read = b"", 0
    for piece in source.chunks():
        own, read = _SAMPLE.sub(b"", own + piece), read + len(piece)
        if len(own) >= HEAD_BYTES or read >= _SAMPLES_BYTES:
            break
    return own[:HEAD_BYTES]


def recognise(source: Source) -> Format:
    """The format of a source, by its content.

    Raises:
        EmptyFile: there is nothing in it yet.
        UnknownFormat: no format recognises it.
        SourceError: it cannot be opened or unpacked.
    """
    head = _own_head(source)
    if not head.strip(b"\x00 \t\r\n\xef\xbb\xbf"):
        raise EmptyFile(f"{source.name} is empty", "it may still be being written; it opens by itself once complete")
    for each in all_formats():
        if each.sniff(head):
            return each
    raise UnknownFormat(
        f"{source.name}: no profile format recognises its content",
        "visualprof reads torch.profiler, Paddle, MegEngine, ONNX Runtime and Chrome trace-event JSON, "
        "plain or gzipped",
    )
