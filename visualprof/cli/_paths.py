"""Check the paths of the command line (log directories or one file) and suggest corrections."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlencode

from visualprof.errors import NotFound, UnknownFormat

_DEMO = "`visualprof demo` shows sample runs"


def alike(name: str, names: Iterable[str]) -> str:
    """Return the most similar name, "" if none is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(names), 1)), "")


def refuse_misspelt(words: Sequence[str], commands: Sequence[str]) -> None:
    """Raise an error if the first word looks like a misspelled command.

    Raises:
        NotFound: The first word is not a path and is similar to a command.
    """
    first = words[0] if words else "-"
    if first.startswith("-") or "--create" in words or Path(first).exists():
        return
    if near := alike(first, commands):
        raise NotFound(
            f"{first!r} is no command, folder or file", f"did you mean `visualprof {near}`? {_DEMO}; all: --help"
        )


def require(paths: Iterable[str], create: bool) -> None:
    """Create missing folders if `create` is set.

    Raises:
        NotFound: A folder is missing, or cannot be created.
    """
    from visualprof.reader.source import is_address

    for path in (Path(path) for path in paths if not is_address(path)):
        if path.exists():
            continue
        if not create:
            near = alike(path.name, (child.name for child in path.parent.iterdir())) if path.parent.is_dir() else ""
            hint = f"did you mean {path.parent / near}?" if near else f"--create makes and watches it; {_DEMO}"
            raise NotFound(f"there is no folder or file {str(path)!r}", hint)
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise NotFound(f"cannot make the folder {str(path)!r}: {error.strerror}") from error
        print(f"visualprof: {path} is new and empty: waiting for the first profile", file=sys.stderr)


def page_of(file: Path) -> str:
    """Return the fragment of the dashboard's address that shows a file of the only log directory.

    Raises:
        UnknownFormat: The file is neither a profile nor a model.
    """
    from visualprof.reader.logdir.listing import new_span
    from visualprof.reader.logdir.scan import LogFile, examine, roots, walk
    from visualprof.reader.models import recognize_model
    from visualprof.reader.source import Source

    (file_item,) = (item for item in walk(roots([file])[0]) if isinstance(item, LogFile))
    verdict = examine(file_item)
    if verdict.kind in ("profile", "growing"):
        place = new_span(file_item, verdict).run_path
        return "#/overview?" + urlencode({"run": place.run, "worker": place.worker})
    if recognize_model(Source(file)):
        return "#/graph?" + urlencode({"model": file.name})
    raise UnknownFormat(verdict.error or f"{file.name} is no profile and no model", verdict.hint)
