"""Bodies of requests, within bounds."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from flask import request

from visualprof.errors import BadParameter
from visualprof.remote.queue.refusals import Oversize

T = TypeVar("T")


def body(limit: int) -> bytes:
    """The body.

    Raises: Oversize.
    """
    if (request.content_length or 0) > limit:
        raise Oversize(f"the body is over {limit >> 10:,} KiB")
    data = request.stream.read(limit + 1)  # a length may be missing
    if len(data) > limit:
        raise Oversize(f"the body is over {limit >> 10:,} KiB")
    return data


def decoded(kind: type[T], limit: int = 1 << 20) -> T:
    """The body's JSON as a value of that type.

    Raises: BadParameter, Oversize.
    """
    try:
        return msgspec.json.decode(body(limit), type=kind)
    except (ValueError, RecursionError) as error:
        raise BadParameter(f"the body is not what is expected here: {error}", "docs/remote.md describes it") from error
