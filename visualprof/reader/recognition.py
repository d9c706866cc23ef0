"""Find the format of a profile by its content."""

from __future__ import annotations

import re

from visualprof.errors import EmptyFile, UnknownFormat
from visualprof.messages import msg
from visualprof.reader.registry import LEADING_BLANKS, Format, all_formats, unknown_profile
from visualprof.reader.source import GROWING_HINT, HEAD_BYTES, Source

_MIN_SAMPLES = 10
_MAX_SAMPLE_BYTES = 16 << 20


def _profiler_head(source: Source) -> bytes:
    """Return the first 64 KiB that the profiler itself wrote: monitor samples do not identify a format.

    A remote run puts the samples of the monitor before the profiler's own events (docs/adr/0014).
    """
    head = source.head()
    if head.count(b'"C"', 0, HEAD_BYTES // 2) < _MIN_SAMPLES:
        return head
    sample = re.compile(rb'\{"ph": ?"C"[^{}]*\{[^{}]*\}\}\s*,?\s*')
    if len(sample.findall(head[: HEAD_BYTES // 2])) < _MIN_SAMPLES:
        return head
    profiler_text, size = b"", 0
    for piece in source.chunks():
        profiler_text, size = sample.sub(b"", profiler_text + piece), size + len(piece)
        if len(profiler_text) >= HEAD_BYTES or size >= _MAX_SAMPLE_BYTES:
            break
    return profiler_text[:HEAD_BYTES]


def recognize(source: Source) -> Format:
    """Return the profile format of a source, detected by content.

    Raises:
        EmptyFile: The file has no content yet.
        UnknownFormat: No format recognizes the content.
        SourceError: The file cannot be opened or unpacked.
    """
    head = _profiler_head(source)
    if not head.strip(LEADING_BLANKS):
        raise EmptyFile(msg("reader.empty", f"{source.name} is empty"), GROWING_HINT)
    for candidate in all_formats():
        if candidate.start(head) and candidate.sniff(head):
            return candidate
    raise _model_error(source) or unknown_profile(source.name, head)


def _model_error(source: Source) -> UnknownFormat | None:
    """Return the error for a model in place of a profile, or `None` for any other file."""
    from visualprof.reader.models import recognize_model  # many modules, which a profile does not need

    model = recognize_model(source)
    if model is None:
        return None
    return UnknownFormat(
        msg("reader.model_not_profile", f"{source.name} is a model ({model.label}), not a profile"),
        msg("reader.show_its_graph", "show its graph: `visualprof view graph`"),
    )
