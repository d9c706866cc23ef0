"""Read YAML from users: plain values only, within limits, in time proportional to the length of the text.

YAML 1.1 reads `1:1:1` as a number in base 60, which takes time quadratic in its length. It also has merge keys (`<<`),
which can expand exponentially, and dates. Settings need none of these.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from visualprof.remote.cases.content_errors import CONTENT_ERRORS, describe_error

MAX_VALUES, MAX_DEPTH = 500, 4
MAX_COMPOSED_DEPTH = 32  # while a text is read; MAX_DEPTH is checked afterwards
MAX_YAML_CHARS = 1 << 18
MAX_SETTING_CHARS = 4096
MAX_NUMBER_CHARS = 100
_PLAIN_TAGS = ("null", "bool", "int", "float", "str", "seq", "map", "timestamp")
_INTEGER = re.compile(r"[-+]?(?:0b_*[01][01_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0[0-7_]*|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


class InvalidYaml(ValueError):
    """A text that is not YAML."""


class UnsupportedYaml(InvalidYaml):
    """A text that is valid YAML, but has an unsupported type or size."""


class _Date(str):
    """A date in YAML. JSON has no dates, so the text is kept."""

    __slots__ = ()


def parse_yaml(text: str) -> object:
    """Return the value of a YAML text.

    Raises:
        InvalidYaml: The text is not YAML.
        UnsupportedYaml: The text is too long, a value has a type that JSON does not have, or there are too many values.
    """
    value = _load(text, MAX_YAML_CHARS)
    _check_plain(value, [MAX_VALUES, MAX_YAML_CHARS], MAX_DEPTH)
    return value


def parse_setting(text: str) -> Any:
    """Return the typed value of a setting as YAML reads it: `8`, `true`, `null`, `openvino`.

    Dates and texts that are not YAML are returned as they are.

    Raises:
        UnsupportedYaml: See `parse_yaml`.
    """
    if len(text) > MAX_SETTING_CHARS:
        raise UnsupportedYaml(f"it has over {MAX_SETTING_CHARS:,} characters")
    try:
        value = _load(text, MAX_SETTING_CHARS)
    except UnsupportedYaml:
        raise
    except InvalidYaml:
        _check_text(text, [0, MAX_SETTING_CHARS])
        return text
    if isinstance(value, _Date):
        return text
    _check_plain(value, [MAX_VALUES, MAX_SETTING_CHARS], MAX_DEPTH)
    return value


def _load(text: str, max_chars: int) -> object:
    """Return the value of a YAML text. The value may still contain dates and aliases.

    Raises:
        InvalidYaml: The text is not YAML.
        UnsupportedYaml: The text is too long or too deep, or has a number or a tag that is not supported.
    """
    if len(text) > max_chars:
        raise UnsupportedYaml(f"it has over {max_chars:,} characters")
    import yaml

    try:
        return yaml.load(text, _loader())
    except UnsupportedYaml:
        raise
    except RecursionError as error:
        raise UnsupportedYaml(describe_error(error)) from None
    except (yaml.constructor.ConstructorError, AttributeError, KeyError) as error:  # unknown or unsuitable tag
        reason = describe_error(error) if isinstance(error, yaml.YAMLError) else "a value does not fit its tag"
        raise UnsupportedYaml(reason) from None
    except (yaml.YAMLError, *CONTENT_ERRORS) as error:
        raise InvalidYaml(describe_error(error)) from None


@cache
def _loader() -> Any:
    """Return the class that reads YAML. PyYAML is imported when the first text is read."""
    import yaml

    class PlainLoader(yaml.SafeLoader):
        """Reads null, bool, int, float, text, dates as `_Date`, lists and mappings without merge keys."""

        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """Read a node. The limit keeps hostile texts far from Python's own limit of recursion."""
            self.depth += 1
            if self.depth > MAX_COMPOSED_DEPTH:
                raise UnsupportedYaml(f"it nests more than {MAX_DEPTH} levels deep")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_number(self, node: Any) -> int | float:
            text = str(self.construct_scalar(node))
            if len(text) > MAX_NUMBER_CHARS:
                raise UnsupportedYaml(f"a number has {len(text):,} digits; at most {MAX_NUMBER_CHARS} are supported")
            is_integer = node.tag.endswith(":int")
            if not (_INTEGER if is_integer else _FLOAT).fullmatch(text):
                raise UnsupportedYaml(f"{text[:40]!r} is not a number")
            return self.construct_yaml_int(node) if is_integer else self.construct_yaml_float(node)

        def construct_date(self, node: Any) -> _Date:
            text = str(self.construct_scalar(node))
            if not self.timestamp_regexp.match(text):
                raise UnsupportedYaml(f"{text[:40]!r} is not a date")
            return _Date(text)

        def flatten_mapping(self, node: Any) -> None:
            """Leave merge keys as they are."""

    tag = "tag:yaml.org,2002:"
    numbers = {f"{tag}int": _INTEGER, f"{tag}float": _FLOAT}
    PlainLoader.yaml_constructors = {
        name: function
        for name, function in yaml.SafeLoader.yaml_constructors.items()
        if name is None or name.removeprefix(tag) in _PLAIN_TAGS
    }
    PlainLoader.yaml_implicit_resolvers = {
        first: [(name, numbers.get(name, pattern)) for name, pattern in rules if name != f"{tag}merge"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for name in ("int", "float"):
        PlainLoader.add_constructor(f"{tag}{name}", PlainLoader.construct_number)
    PlainLoader.add_constructor(f"{tag}timestamp", PlainLoader.construct_date)
    return PlainLoader


def _check_plain(value: object, remaining: list[int], depth: int) -> None:
    """Check that a value can be written as JSON and does not exceed the limits.

    Aliases may expand to millions of values, so the check stops as soon as a limit is exceeded.

    Args:
        value: The value.
        remaining: How many values and how many characters are still allowed. The check updates the list.
        depth: How many levels the value may nest.

    Raises:
        UnsupportedYaml: The value is not JSON, or exceeds the limits.
    """
    remaining[0] -= 1
    if isinstance(value, str):
        _check_text(value, remaining)
    if min(remaining) < 0:
        raise UnsupportedYaml(f"it has over {MAX_VALUES} values, or they repeat too much text")
    if isinstance(value, (str, int, float, type(None))):
        return
    if not depth:
        raise UnsupportedYaml(f"it nests more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        items: dict[object, object] = value  # pyright: ignore[reportUnknownVariableType]
        for key, item in items.items():
            if not isinstance(key, str):
                raise UnsupportedYaml(f"the key {str(key)[:40]!r} is not a text")
            _check_text(key, remaining)
            _check_plain(item, remaining, depth - 1)
    elif isinstance(value, list):
        values: list[object] = value  # pyright: ignore[reportUnknownVariableType]
        for item in values:
            _check_plain(item, remaining, depth - 1)
    else:
        raise UnsupportedYaml("a value has a type that is not supported")


def _check_text(text: str, remaining: list[int]) -> None:
    """Check that a text can be written as JSON; see `_check_plain`."""
    remaining[1] -= len(text)
    if isinstance(text, _Date):
        raise UnsupportedYaml(f"{text[:40]} is a date: put it in quotes")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UnsupportedYaml("a text is not valid Unicode")
