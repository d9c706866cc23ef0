"""Classes of the protobuf package for messages of which only some fields matter."""

from __future__ import annotations

from typing import Any

KINDS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "bool": 8,
    "string": 9,
    "uint32": 13,
}


def message_classes(package: str, schema: str) -> dict[str, Any]:
    """By their names. schema: `message field number type`, joined by commas or lines; a type `[]T` is repeated."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file: Any = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    messages: dict[str, Any] = {}
    for line in filter(None, schema.replace("\n", ", ").split(", ")):
        message, name, number, kind = line.split(" ")
        if message not in messages:
            messages[message] = file.message_type.add(name=message)
        plain = kind.removeprefix("[]")
        messages[message].field.add(
            name=name,
            number=int(number),
            label=3 if kind.startswith("[]") else 1,
            type=KINDS.get(plain, 11),
            type_name=None if plain in KINDS else f".{package}.{plain}",
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}
