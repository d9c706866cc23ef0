"""Declare settings together with their options on the command line, their keys in the config file and their variables.

    @dataclass(frozen=True)
    class WebSettings:
        host: str = option("--host", "127.0.0.1", "Address to listen on.")

The parser of the command line, the config file, the settings and their reference are derived from the declarations.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

T = TypeVar("T")
Container = argparse._ActionsContainer  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  # a parser or a group of it
_KEY = "option"  # in the metadata of a field


@dataclass(frozen=True, kw_only=True)
class Option:
    """The option of a setting.

    Attributes:
        flag: Name on the command line. "" is a secret, which every user of the machine could read there.
        text: Help text.
        metavar: Name of the value in the help; `None` derives it from the setting.
        check: Return the parsed value of a text, or raise `argparse.ArgumentTypeError`.
        convert: Return the setting for a parsed value; not called without a value.
        choices: The allowed values.
        unit: The setting's value of 1 on the command line.
        variable: Environment variable of the default value.
    """

    flag: str
    text: str
    metavar: str | None = None
    check: Callable[[str], Any] | None = None
    convert: Callable[[Any], Any] | None = None
    choices: tuple[str, ...] | None = None
    unit: float = 1
    variable: str = ""


def option(flag: str, default: Any, text: str, **more: Any) -> Any:
    """Return the dataclass field of a setting. The default decides about the kind of the option.

    Args:
        flag: Name on the command line, or "".
        default: `False` declares a switch, a tuple a repeatable option.
        text: Help text.
        more: Further attributes of `Option`.
    """
    shown = not more.get("variable")  # values from the environment may be passwords
    return field(default=default, metadata={_KEY: Option(flag=flag, text=text, **more)}, repr=shown)


def declared_options(*groups: type[Any]) -> Iterator[tuple[Field[Any], Option]]:
    """Yield the settings with an option of groups of settings."""
    for group in groups:
        for setting in fields(group):
            if _KEY in setting.metadata:
                yield setting, setting.metadata[_KEY]


def add_options(
    parser: Container, group: type[Any], names: Iterable[str] = (), *, leave_out: Iterable[str] = ()
) -> None:
    """Add the options of a group of settings, or of some of them, to a parser."""
    for setting, declared in declared_options(group):
        if (names and setting.name not in names) or setting.name in leave_out:
            continue
        value = _default(setting, declared)
        if not declared.flag:
            parser.set_defaults(**{setting.name: value})
        elif setting.default is False:
            parser.add_argument(declared.flag, dest=setting.name, action="store_true", help=declared.text)
        else:
            repeated: dict[str, Any] = {"action": "append"} if isinstance(setting.default, tuple) else {}
            parser.add_argument(
                declared.flag,
                dest=setting.name,
                default=value,
                type=declared.check or str,
                choices=declared.choices,
                metavar=declared.metavar,
                help=declared.text,
                **repeated,
            )


def _default(setting: Field[Any], declared: Option) -> Any:
    if declared.variable:
        return os.environ.get(declared.variable, setting.default)
    if isinstance(setting.default, tuple):
        return []
    if declared.unit != 1:
        return cast("float", setting.default) / declared.unit
    return None if setting.default == "" and declared.check else setting.default  # argparse would check a text


def settings_from(group: type[T], values: Mapping[str, Any]) -> T:
    """Return a group of settings with the values of parsed options. Settings without a value have their default."""
    chosen: dict[str, Any] = {}
    for setting in fields(cast("Any", group)):
        value, declared = values.get(setting.name), setting.metadata.get(_KEY, Option(flag="", text=""))
        if value is None or value == "":
            continue
        if declared.unit != 1:
            value = type(setting.default)(value * declared.unit)
        elif isinstance(setting.default, tuple):
            value = tuple(value)
        chosen[setting.name] = declared.convert(value) if declared.convert else value
    return group(**chosen)


def number(low: float, high: float, message: str) -> Callable[[str], float]:
    """Return a function that parses a number within limits."""

    def check(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(message)
        return value

    check.__name__ = "number"
    return check


def address(text: str) -> str:
    """Return the address of a web server without a slash at its end."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise argparse.ArgumentTypeError("an address is like https://dash.example.org")
    return text.rstrip("/")


def issuer(text: str) -> str:
    """Return the issuer's address exactly as the issuer names itself; it may end with a slash."""
    parts = urlsplit(text)
    schemes = ("https", "http") if parts.hostname in ("localhost", "127.0.0.1", "::1") else ("https",)
    if parts.scheme not in schemes or not parts.netloc or parts.query:
        raise argparse.ArgumentTypeError("an issuer is like https://login.example.org/realms/lab")
    return text


def mail_server(text: str) -> str:
    """Return the address of a mail server, which has no password."""
    parts = urlsplit(text)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or parts.password:
        raise argparse.ArgumentTypeError("it is like smtps://user@mail.example.org; its password is asked elsewhere")
    return text


def network(text: str) -> str:
    """Return a network in its usual form."""
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError as error:
        raise argparse.ArgumentTypeError("a network is like 10.0.0.0/8") from error
