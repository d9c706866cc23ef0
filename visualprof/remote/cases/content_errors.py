"""Translate all exceptions for a user's damaged archive, YAML or text into one error: `TaskFailure`.

Decoders raise dozens of exception types for damaged content. Callers need a single error with a hint, and its text must
not contain paths of this machine.
"""

from __future__ import annotations

import errno
import lzma
import struct
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager

from visualprof.remote.protocol import TaskFailure

MAX_TEXT_CHARS = 300
# `bz2` raises OSError and ValueError, `yaml` AttributeError and KeyError, `zipfile` RuntimeError and its subclasses.
CONTENT_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    ValueError,
    RuntimeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    TypeError,
    OSError,
)
# Errors of the machine, not of the content.
_MACHINE_ERRORS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EIO,
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
}


@contextmanager
def content_errors(subject: str, hint: str) -> Generator[None]:
    """Translate exceptions that decoders raise inside the block.

    Args:
        subject: The problem, before a colon and the reason: "this zip cannot be read".
        hint: What to do about it.

    Raises:
        TaskFailure: input_error: The content is damaged or cannot be stored.
        OSError: The machine failed, not the content. For example, the disk is full or read-only.
    """
    try:
        yield
    except TaskFailure:
        raise
    except CONTENT_ERRORS as error:
        if isinstance(error, OSError) and error.errno in _MACHINE_ERRORS:
            raise
        raise TaskFailure("input_error", f"{subject}: {describe_error(error)}", hint) from error


def describe_error(error: Exception) -> str:
    """Return the reason of an exception as one short, printable line without paths of this machine."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.strerror or type(error).__name__
    if isinstance(error, RecursionError):
        return "it nests too deep"
    text = " ".join(str(error).split())[:MAX_TEXT_CHARS]
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text) or type(error).__name__
