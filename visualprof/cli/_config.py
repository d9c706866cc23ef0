"""Read the options of a command from a file: `--config visualprof.toml`. The command line takes precedence."""

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

from visualprof.cli.serve import add_arguments
from visualprof.errors import BadParameter, NotFound
from visualprof.server.settings import SECRETS


def with_file(file: str, parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command from a file and its command line.

    Options of the server that the command does not have are ignored.

    Args:
        file: TOML file with one key per long option of the server.
        parser: Parser of the command.
        words: Command line.

    Raises:
        NotFound: The file does not exist.
        BadParameter: The file is not TOML, or a key or value is invalid.
    """
    options = vars(parser.parse_args(words))
    defaults = {name: value for name, value in _options(Path(file)).items() if name in options}
    # A list on the command line, or a value from the environment, replaces the file's list. argparse would append
    # to it.
    named = {*SECRETS, "database"}
    said_already = {name for name, value in options.items() if value and (_is_list(value) or name in named)}
    parser.set_defaults(**{name: value for name, value in defaults.items() if name not in said_already})
    return parser.parse_args(words)


def _options(path: Path) -> dict[str, Any]:
    """Return the values of a file by option name."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    add_arguments(parser)
    for name in SECRETS:
        parser.add_argument(f"--{name.replace('_', '-')}")
    parser.set_defaults(**dict.fromkeys(vars(parser.parse_args([]))))  # argparse would append to a list
    text, values = _read(path)
    options: dict[str, Any] = {}
    key = ""
    try:
        for key, value in values.items():
            options |= _option(parser, key, value)
    except BadParameter as wrong:
        raise BadParameter(f"{path}:{_line(text, key)}: {wrong.error}", wrong.hint) from wrong
    secret = bool(options.keys() & SECRETS.keys() or urlsplit(str(options.get("database", ""))).password)
    if os.name == "posix" and secret and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise BadParameter(f"{path} holds a password, and others may read it", f"chmod 600 {path}")
    return options


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        text = path.read_text("utf-8")
        return text, toml.loads(text)
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not TOML; the message names the line
        raise BadParameter(f"{path}: {error}", "docs/operating.md shows one") from error


def _option(parser: _Parser, key: str, value: object) -> dict[str, Any]:
    """Parse one key like its command-line option.

    Raises:
        BadParameter: The option does not exist, or the value is invalid.
    """
    if isinstance(value, bool):
        parsed = parser.parse_options([f"--{key}"])
        if any(value is not True for value in parsed.values()):
            raise BadParameter(f"{key}: not {str(value).lower()} but a value")
        return parsed if value else {}
    one_by_one = value if _is_list(value) else [value]
    if not one_by_one or any(isinstance(item, bool) or not isinstance(item, (str, int, float)) for item in one_by_one):
        raise BadParameter(f"{key}: a text, a number or a list of them")
    parsed = parser.parse_options([f"--{key}={item}" for item in one_by_one])
    for items in parsed.values():
        if _is_list(value) != _is_list(items) and _is_list(value):
            raise BadParameter(f"{key}: one value, no list")
        pairs = zip(one_by_one, items if _is_list(items) else [items], strict=True)
        if any(isinstance(was, str) != isinstance(now, str) for was, now in pairs):
            raise BadParameter(f"{key}: {'a number' if isinstance(one_by_one[0], str) else 'a text'} is wanted")
    return parsed


class _Parser(argparse.ArgumentParser):
    """Parser that raises an error instead of exiting."""

    def error(self, message: str) -> NoReturn:
        reason, unrecognized, option = message.removeprefix("argument --").rpartition("unrecognized arguments: --")
        raise BadParameter(f"{option.partition('=')[0]}: no option has this name" if unrecognized else option or reason)

    def parse_options(self, words: list[str]) -> dict[str, Any]:
        """Return the options that `words` set."""
        return {name: value for name, value in vars(self.parse_args(words)).items() if value not in (None, [])}


def _line(text: str, key: str) -> int:
    """Return the line number of a key, from 1. For a table, this is the line of its header."""
    starts = (line.strip().lstrip("[").partition("=")[0].partition("]")[0].strip(" \"'") for line in text.splitlines())
    return next((number for number, start in enumerate(starts, 1) if start.partition(".")[0] == key), 1)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
