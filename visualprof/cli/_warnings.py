"""Warnings about the files that a command reads: on stderr, in JSON answers, and as errors with --strict."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from visualprof.errors import VisualprofError

#: Files whose warnings are read; the warnings of further ranks are usually the same.
MAX_FILES = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option --strict."""
    parser.add_argument(
        "--strict", action="store_true", help="Exit with 2 if there is any warning about the files that were read."
    )


def warnings_of(paths: Sequence[Path], skipped: Iterable[str] = ()) -> list[str]:
    """Return the warnings about profiles, in order and without repetition.

    Args:
        paths: Profiles that were opened before, so that their columns are cached.
        skipped: Files that were not read, with the reason.
    """
    warnings = dict.fromkeys(skipped)
    for path in paths[:MAX_FILES]:
        prefix = f"{path.name}: " if len(paths) > 1 else ""
        try:
            warnings |= dict.fromkeys(f"{prefix}{warning}" for warning in _warnings_in(path))
        except VisualprofError as error:
            warnings[f"{path.name} was skipped: {error.error}"] = None
    if len(paths) > MAX_FILES:
        warnings[f"warnings of {len(paths) - MAX_FILES:,} further files are not listed"] = None
    return list(warnings)


def _warnings_in(path: Path) -> list[str]:
    """Return the warnings about a profile, cached separately so that a cached answer needs no columns.

    Raises:
        VisualprofError: The file cannot be read.
    """
    from visualprof.cli._worker_files import open_file
    from visualprof.reader.cache import Cache
    from visualprof.reader.graph_capture.files import recording_fingerprint
    from visualprof.views.answers.disk_cache import cache_key

    fingerprint = recording_fingerprint(path)
    cache, key = Cache.default(), cache_key("warnings", fingerprint)
    if data := cache.load_bytes(key):
        return json.loads(data)
    warnings = list(open_file(path, fingerprint).meta.warnings)
    cache.store_bytes(key, json.dumps(warnings).encode())
    return warnings


def print_warnings(warnings: Sequence[str], strict: bool) -> None:
    """Print warnings to stderr.

    Raises:
        VisualprofError: There are warnings, and `strict` is set.
    """
    if warnings:
        from visualprof.cli._watch import plain  # imports the HTTP client, which a clean file does not need

        print(*(f"warning: {plain(warning)}" for warning in warnings), sep="\n", file=sys.stderr)
    if warnings and strict:
        raise VisualprofError(
            f"{len(warnings)} warning{'s' * (len(warnings) > 1)}, which --strict makes an error",
            "check the warnings, or leave out --strict",
        )
