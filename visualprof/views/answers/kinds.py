"""Kinds of values: the only place that names units. The web UI, the terminal and the API derive the rest.

The type of a field in an answer declares its kind: `Duration` for a value, `DurationColumn` for a column. Columns are
numpy arrays or lists. NaN and None mean unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints, runtime_checkable

from msgspec import Meta, Struct

Kind = Literal[
    "name",  # identifies a row: may be long, its end matters
    "text",
    "word",  # one of a few words, or a label
    "dims",  # of a grid or a block
    "id",
    "flag",
    "count",
    "ratio",  # 0..1
    "ns",
    "bytes",
    "rate",  # bytes/s
    "flo",
    "flop_rate",  # FLO/s
    "joule",
    "moment",  # Unix epoch, ns
]
KINDS: tuple[Kind, ...] = get_args(Kind)


@runtime_checkable
class Column(Protocol):
    """A column: a numpy array, a list, or another sequence."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


def _value_meta(kind: Kind) -> Meta:
    return Meta(extra={"kind": kind})


def kinds_by_key(**kinds: Kind) -> Meta:
    """Return the metadata of a dictionary field that declares the kind of the value under each key."""
    return Meta(extra={"kinds": kinds})


def _column_meta(kind: Kind, *types: str) -> Meta:
    items = {"type": [*types, "null"]} if types else {}
    return Meta(extra={"kind": kind}, extra_json_schema={"type": "array", "items": items})


NameColumn = Annotated[Column, _column_meta("name", "string")]
TextColumn = Annotated[Column, _column_meta("text", "string")]
ListColumn = Annotated[Column, _column_meta("text")]
WordColumn = Annotated[Column, _column_meta("word", "string")]
DimsColumn = Annotated[Column, _column_meta("dims", "string")]
IdentifierColumn = Annotated[Column, _column_meta("id", "string", "integer")]
FlagColumn = Annotated[Column, _column_meta("flag", "boolean")]
CountColumn = Annotated[Column, _column_meta("count", "number")]
RatioColumn = Annotated[Column, _column_meta("ratio", "number")]
DurationColumn = Annotated[Column, _column_meta("ns", "number")]
SizeColumn = Annotated[Column, _column_meta("bytes", "number")]
BandwidthColumn = Annotated[Column, _column_meta("rate", "number")]
OperationColumn = Annotated[Column, _column_meta("flo", "number")]
OperationRateColumn = Annotated[Column, _column_meta("flop_rate", "number")]
EnergyColumn = Annotated[Column, _column_meta("joule", "number")]
MomentColumn = Annotated[Column, _column_meta("moment", "number")]

Name = Annotated[str, _value_meta("name")]
Word = Annotated[str, _value_meta("word")]
Identifier = Annotated[int, _value_meta("id")]
Count = Annotated[int, _value_meta("count")]
Number = Annotated[float, _value_meta("count")]
Ratio = Annotated[float, _value_meta("ratio")]
Duration = Annotated[int, _value_meta("ns")]
Size = Annotated[int, _value_meta("bytes")]
Bandwidth = Annotated[float, _value_meta("rate")]
Operation = Annotated[float, _value_meta("flo")]
OperationRate = Annotated[float, _value_meta("flop_rate")]
Energy = Annotated[float, _value_meta("joule")]
Moment = Annotated[int, _value_meta("moment")]


@cache
def kinds_of(struct: type[Any]) -> dict[str, Kind]:
    """Return the kind of each field by its name, including nested structs. Tables are left out: they have their own."""
    if not issubclass(struct, Struct):
        return {}
    hints = get_type_hints(struct, include_extras=True)
    names = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
    return {key: kind for field, name in names for key, kind in _kinds(hints[field], name)}


def _kinds(hint: Any, name: str) -> Iterator[tuple[str, Kind]]:
    """Yield the kind of a field, or the kinds of the structs in it. `msgspec.inspect` takes 3 times as long.

    Args:
        hint: Type of the field.
        name: Name of the field; "" in a list or a dictionary, whose values have no kind.
    """
    origin = get_origin(hint)
    if origin is Annotated:
        for meta in filter(None, (meta.extra for meta in hint.__metadata__ if name)):
            yield from (meta.get("kinds") or {name: meta["kind"]}).items()
    elif isinstance(hint, type) and issubclass(hint, Struct) and not hasattr(hint, "kinds"):
        yield from kinds_of(hint).items()
    elif not hasattr(origin, "kinds"):
        for inner in get_args(hint):
            yield from _kinds(inner, name if origin in (Union, UnionType) else "")


def schema_of_column(kind: type[Any]) -> dict[str, object]:
    """Return the JSON schema of a column of any kind, for msgspec. Declared columns add the schema of their items.

    Raises:
        NotImplementedError: The type is not a column.
    """
    if kind is Column:
        return {"type": "array"}
    raise NotImplementedError
