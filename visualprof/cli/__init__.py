"""Command line of visualprof.

    visualprof runs/          open the dashboard over a folder
    visualprof trace.json     open the dashboard at one file
    visualprof demo           open the dashboard over sample runs

Every other command comes first: visualprof COMMAND --help.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from visualprof import __version__
from visualprof.cli._paths import refuse_misspelt
from visualprof.errors import VisualprofError

_DEFAULT = "serve"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; 2 if an error was printed to stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    names = commands()
    chosen = words.pop(0) if words and words[0] in names else _DEFAULT
    module = _command(chosen)
    parser = argparse.ArgumentParser(
        prog="visualprof" if chosen == _DEFAULT else f"visualprof {chosen}",
        description=module.__doc__,
        epilog=_overview(names) if chosen == _DEFAULT and {"-h", "--help"} & {*words} else None,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=80),  # 2 ms to find it, for each argument
        conflict_handler="resolve",  # `submit --version` is the version of a runtime
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="Show the version and exit.")
    module.add_arguments(parser)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    try:
        if chosen == _DEFAULT:
            refuse_misspelt(words, names)
        args = parser.parse_args(words)
        if getattr(args, "config", None):
            from visualprof.cli._config import with_file

            args = with_file(args.config, parser, words)
        return module.run(args)
    except VisualprofError as error:
        print(f"visualprof: {_sentence(error.error, words)}", file=sys.stderr)
        if error.hint:
            print(f"Hint: {_sentence(error.hint, words)}", file=sys.stderr)
        if error.docs_page:
            from visualprof.cli._docs import docs_address

            print(f"See: {docs_address(error.docs_page)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe, such as `| head`, has closed it
        sys.stderr.close()
        return 0


def _sentence(text: str, words: Sequence[str]) -> str:
    """Return `text` with a capital letter, unless it starts with a command, a name, a path or an option.

    Args:
        words: Words of the command line, such as the path of a folder.
    """
    is_prose = re.match(r"(?!pip |python |visualprof )[a-z']+ ", text) and text.split(" ", 1)[0] not in words
    return text[:1].upper() + text[1:] if is_prose else text


class _Version(argparse.Action):
    """Action that prints the version and whether the native reader is in use."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from visualprof.reader import native

        print(f"visualprof {__version__}\nnative reader: {native.describe_state()}")
        parser.exit()


def commands() -> list[str]:
    """Return the names of the commands, which are the modules of this package, with hyphens."""
    return sorted(
        module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )


def _command(name: str) -> ModuleType:
    """Import a command: a module with `add_arguments(parser)`, `run(args) -> int` and its help as the docstring."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def _overview(names: Sequence[str]) -> str:
    """Return the first line of the docstring of each command, without importing the commands."""
    width = max(map(len, names))
    lines: list[str] = []
    for name in names:
        with Path(__file__).with_name(f"{name.replace('-', '_')}.py").open(encoding="utf-8") as source:
            summary = source.readline().strip().strip('"')
        lines.append(f"  {name:{width}} {summary}")
    return "commands:\n" + "\n".join(lines)
