"""The options of a command from a file: `--config visualprof.toml`. What stands on the command line wins."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypeGuard
from urllib.parse import urlsplit

from visualprof.cli.serve import SECRETS, add_arguments
from visualprof.errors import BadParameter, NotFound


def with_file(file: str, parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """What a command is told by a file and by its command line. It takes what it knows of the server's options.

    Args:
        file: of TOML, a key for each long option of the server.
        parser: of the command.
        words: of the command line.

    Raises: NotFound: there is no such file. BadParameter: it is no TOML, or a key or value is wrong.
    """
    said = vars(parser.parse_args(words))
    kept = {name: value for name, value in _options(Path(file)).items() if name in said}
    # A list of the command line takes the place of the file's, though argparse would append to it; so does what the
    # environment says.
    named = {*SECRETS, "database"}
    said_already = {name for name, value in said.items() if value and (_is_list(value) or name in named)}
    parser.set_defaults(**{name: value for name, value in kept.items() if name not in said_already})
    return parser.parse_args(words)


def _options(path: Path) -> dict[str, Any]:
    """The values of a file by the names that the parser gives them."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    add_arguments(parser)
    for name in SECRETS:
        parser.add_argument(f"--{name.replace('_', '-')}")
    parser.set_defaults(**dict.fromkeys(vars(parser.parse_args([]))))  # a list would be appended to
    text, values = _read(path)
    given: dict[str, Any] = {}
    key = ""
    try:
        for key, value in values.items():
            given |= _option(parser, key, value)
    except BadParameter as wrong:
        raise BadParameter(f"{path}:{_line(text, key)}: {wrong.error}", wrong.hint) from wrong
    secret = bool(given.keys() & SECRETS.keys() or urlsplit(str(given.get("database", ""))).password)
    if os.name == "posix" and secret and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise BadParameter(f"{path} holds a password, and others may read it", f"chmod 600 {path}")
    return given


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        text = path.read_text("utf-8")
        return text, toml.loads(text)
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # no UTF-8, or no TOML, whose line is said
        raise BadParameter(f"{path}: {error}", "docs/team.md shows one") from error


def _option(parser: _Parser, key: str, value: object) -> dict[str, Any]:
    """One key as the parser reads its option.

    Raises: BadParameter.
    """
    if isinstance(value, bool):
        told = parser.told([f"--{key}"])
        if any(one is not True for one in told.values()):
            raise BadParameter(f"{key}: not {str(value).lower()} but a value")
        return told if value else {}
    one_by_one = value if _is_list(value) else [value]
    if not one_by_one or any(isinstance(one, bool) or not isinstance(one, (str, int, float)) for one in one_by_one):
        raise BadParameter(f"{key}: a text, a number or a list of them")
    told = parser.told([f"--{key}={one}" for one in one_by_one])
    for made in told.values():
        if _is_list(value) != _is_list(made) and _is_list(value):
            raise BadParameter(f"{key}: one value, no list")
        pairs = zip(one_by_one, made if _is_list(made) else [made], strict=True)
        if any(isinstance(was, str) != isinstance(now, str) for was, now in pairs):
            raise BadParameter(f"{key}: {'a number' if isinstance(one_by_one[0], str) else 'a text'} is wanted")
    return told


class _Parser(argparse.ArgumentParser):
    """Says what is wrong instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        name, known, said = message.removeprefix("argument --").rpartition("unrecognized arguments: --")
        raise BadParameter(f"{said.partition('=')[0]}: no option has this name" if known else said or name)

    def told(self, words: list[str]) -> dict[str, Any]:
        """What some words set."""
        return {name: value for name, value in vars(self.parse_args(words)).items() if value not in (None, [])}


def _line(text: str, key: str) -> int:
    """Where a key stands, from 1; of a table, where that begins."""
    starts = (line.strip().lstrip("[").partition("=")[0].partition("]")[0].strip(" \"'") for line in text.splitlines())
    return next((number for number, start in enumerate(starts, 1) if start.partition(".")[0] == key), 1)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
