"""What a number or a text is: the one place that names units. The page, the terminal and the API derive the rest.

A field of an answer declares its kind by its type, a value in the singular (`Duration`), a column in the plural
(`Durations`). Columns are numpy arrays or lists; NaN and None mean unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints, runtime_checkable

from msgspec import Meta, Struct

Kind = Literal[
    "name",  # what a row is called: long, its end matters
    "text",
    "word",  # of a small vocabulary, or a label
    "dims",  # of a grid or block
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
    """A column: a numpy array, a list, or anything else of that shape."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


def _of(kind: Kind) -> Meta:
    return Meta(extra={"kind": kind})


def keyed(**kinds: Kind) -> Meta:
    """Of a dictionary: the kind of what is under each key."""
    return Meta(extra={"kinds": kinds})


def _column(kind: Kind, *types: str) -> Meta:
    items = {"type": [*types, "null"]} if types else {}
    return Meta(extra={"kind": kind}, extra_json_schema={"type": "array", "items": items})


Names = Annotated[Column, _column("name", "string")]
Texts = Annotated[Column, _column("text", "string")]
Lists = Annotated[Column, _column("text")]
Words = Annotated[Column, _column("word", "string")]
Dims = Annotated[Column, _column("dims", "string")]
Identifiers = Annotated[Column, _column("id", "string", "integer")]
Flags = Annotated[Column, _column("flag", "boolean")]
Counts = Annotated[Column, _column("count", "number")]
Ratios = Annotated[Column, _column("ratio", "number")]
Durations = Annotated[Column, _column("ns", "number")]
Sizes = Annotated[Column, _column("bytes", "number")]
Bandwidths = Annotated[Column, _column("rate", "number")]
Operations = Annotated[Column, _column("flo", "number")]
OperationRates = Annotated[Column, _column("flop_rate", "number")]
Energies = Annotated[Column, _column("joule", "number")]
Moments = Annotated[Column, _column("moment", "number")]

Word = Annotated[str, _of("word")]
Identifier = Annotated[int, _of("id")]
Count = Annotated[int, _of("count")]
Number = Annotated[float, _of("count")]
Ratio = Annotated[float, _of("ratio")]
Duration = Annotated[int, _of("ns")]
Size = Annotated[int, _of("bytes")]
Bandwidth = Annotated[float, _of("rate")]
Operation = Annotated[float, _of("flo")]
OperationRate = Annotated[float, _of("flop_rate")]
Energy = Annotated[float, _of("joule")]
Moment = Annotated[int, _of("moment")]


@cache
def kinds_of(struct: type[Any]) -> dict[str, Kind]:
    """The kind of each field by its name, those of the structures inside included; tables tell their own."""
    if not issubclass(struct, Struct):
        return {}
    hints = get_type_hints(struct, include_extras=True)
    names = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
    return {key: kind for field, name in names for key, kind in _kinds(hints[field], name)}


def _kinds(hint: Any, name: str) -> Iterator[tuple[str, Kind]]:
    """Of a field: its own kind, or those of the structures that it holds. `msgspec.inspect` takes 3 times as long.

    name: "" within a list or a dictionary, whose single values have no kind.
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
    """For msgspec's JSON schema: a column of any kind; declared ones add what theirs holds.

    Raises: NotImplementedError: it is no column.
    """
    if kind is Column:
        return {"type": "array"}
    raise NotImplementedError
