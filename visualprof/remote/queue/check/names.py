"""Valid names of a result's files, which become files of the log directory."""

from __future__ import annotations

from collections.abc import Sequence

from visualprof.messages import msg
from visualprof.remote.queue.errors import InvalidResult, PayloadTooLarge
from visualprof.remote.queue.store.files import display_name

MAX_FILES = 200
MAX_FILE = 4 << 30
MAX_ALL = 8 << 30
MAX_NAME = 200  # bytes of a path component
MAX_DEPTH = 2  # a folder and a file
_UNFINISHED = (".partial", ".tmp", ".part", "~")
REQUIRED = ("status.json", "env.json", "job.json")


def check_name(name: str) -> None:
    """Reject names that lead outside the folder or are hidden.

    Raises:
        InvalidResult: The name is invalid.
    """
    parts = name.split("/")
    if len(parts) > MAX_DEPTH or not all(_plain(part) for part in parts):
        raise InvalidResult(
            msg("queue.cannot_name_results_file", f"{name[:100]!r} cannot be the name of a result's file"),
            msg(
                "queue.name_folder_name_not",
                "a name, or a folder and a name; not hidden, not absolute, without control characters and backslashes",
            ),
        )


def check_all(names: Sequence[str], sizes: Sequence[int]) -> None:
    """Check the names and sizes of all files of a result.

    Raises:
        InvalidResult: A name or size is invalid.
        PayloadTooLarge: The files are too many or too large.
    """
    for name in names:
        check_name(name)
    check_distinct(names)
    if len(names) > MAX_FILES:
        raise PayloadTooLarge(msg("queue.files_result_most", f"{len(names)} files; a result has at most {MAX_FILES}"))
    if any(size < 0 for size in sizes):
        raise InvalidResult(msg("queue.file_negative_size", "a file has a negative size"))
    if max(sizes, default=0) > MAX_FILE or sum(sizes) > MAX_ALL:
        raise PayloadTooLarge(
            msg(
                "queue.result_most_gib_gib",
                f"a result has at most {MAX_ALL >> 30} GiB, and {MAX_FILE >> 30} GiB in a file",
            )
        )


def check_distinct(names: Sequence[str]) -> None:
    """Reject names that are equal, ignoring case as some file systems do, or of which one is a folder of another.

    Raises:
        InvalidResult: Two names conflict.
    """
    folded = [name.casefold() for name in names]
    if len(set(folded)) != len(folded) or {name.split("/")[0] for name in folded if "/" in name} & set(folded):
        raise InvalidResult(msg("queue.two_files_result_same", "two files of the result have the same name"))


def model_name(name: str, used_names: Sequence[str]) -> str:
    """Return the name of the model in the folder of its result."""
    plain = display_name(name).lstrip(".") or "model"
    if not _plain(plain):
        plain = "model"
    return plain if plain not in (*used_names, *REQUIRED) else f"model-{plain}"


def _plain(part: str) -> bool:
    try:
        size = len(part.encode())
    except UnicodeEncodeError:
        return False
    fine = part.isprintable() and not part.startswith(".") and not set(part) & set('\\:*?"<>|')
    return fine and 0 < size <= MAX_NAME and part == part.strip() and not part.endswith((*_UNFINISHED, "."))
