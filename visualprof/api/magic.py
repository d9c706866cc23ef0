"""The cell magic `%%visualprof sql`, which runs a statement over profiles and shows the result."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from visualprof.api.recording import OpenedProfile, open_recording
from visualprof.api.results import Result
from visualprof.errors import BadParameter
from visualprof.query.stored import ParameterValue, parse_value

USAGE = "%%visualprof sql PROFILE... [-p NAME=VALUE] [--into NAME]"


class _Parser(argparse.ArgumentParser):
    """A parser that raises errors, because a notebook has no process to exit."""

    def error(self, message: str) -> NoReturn:
        raise BadParameter(message, f"for example: {USAGE}")


def _parser() -> _Parser:
    parser = _Parser("%%visualprof", add_help=False)
    parser.add_argument("command", choices=("sql",))
    parser.add_argument("profiles", nargs="+")
    parser.add_argument("-p", "--param", action="append", default=[])
    parser.add_argument("--into", default="")
    return parser


def run_cell(namespace: dict[str, Any], line: str, cell: str) -> Result:
    """Run the statement in a cell and return its result, which the notebook shows.

    Args:
        namespace: Variables of the notebook.
        line: The words after `%%visualprof`: `sql`, then paths or variables with an `OpenedProfile`. `-p NAME=VALUE`
            sets a parameter, and `--into NAME` stores the result in a variable.
        cell: The statement.

    Raises:
        BadParameter: The line is not valid.
        QueryError: The statement is wrong.
    """
    args = _parser().parse_args(shlex.split(line))
    result = _profile(namespace, args.profiles).sql(cell, _parameters(args.param))
    if args.into:
        namespace[args.into] = result
    return result


def _profile(namespace: Mapping[str, Any], words: Sequence[str]) -> OpenedProfile:
    values = [namespace.get(word, word) for word in words]
    if len(values) == 1 and isinstance(values[0], OpenedProfile):
        return values[0]
    paths = [path for value in values for path in (value.paths if isinstance(value, OpenedProfile) else [value])]
    return open_recording(paths)


def _parameters(texts: Sequence[str]) -> dict[str, ParameterValue]:
    pairs = [text.partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not equals:
            raise BadParameter(f"-p {name!r} is not of the form name=value", f"for example: {USAGE}")
    return {name: parse_value(value) for name, _, value in pairs}
