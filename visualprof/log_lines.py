"""Format the log so that no client, file or folder name can forge or flood it: bounded lines, escaped characters."""

from __future__ import annotations

import logging

MAX_MESSAGE_CHARS = 1000
MAX_TRACE_LINES, MAX_TRACE_LINE_CHARS = 60, 300


def escape_text(text: str, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    r"""Return a text on one line, with control characters, line breaks and text directions as `\n` or `\x1b`."""
    text = text if len(text) <= max_chars else f"{text[:max_chars]}... ({len(text):,} characters)"
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


class LineFormatter(logging.Formatter):
    """Formats one bounded line per record. A traceback follows on indented lines, the innermost calls last."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return escape_text(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, and its traceback."""
        record.exc_text = None  # another handler may have stored its own
        return super().format(record)

    def formatException(self, ei: object) -> str:
        """Return a traceback with indented lines, so that no text of an error looks like a record."""
        lines = super().formatException(ei).split("\n")  # pyright: ignore[reportArgumentType]
        return "\n".join(f"  {escape_text(line, MAX_TRACE_LINE_CHARS)}" for line in lines[-MAX_TRACE_LINES:])


def configure_logging() -> None:
    """Write warnings and errors of this process to stderr, one line each, unless the process logs already."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("visualprof: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
