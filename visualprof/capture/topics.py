"""Topics of a recording, in MegEngine's terms. docs/capture.md lists what each framework records for them."""

from __future__ import annotations

from enum import Flag, auto


class Topics(Flag):
    """Kinds of events, combined with `|`."""

    OPERATOR = auto()
    TENSOR_LIFETIME = auto()
    SYNC = auto()
    SCOPE = auto()
    MEMORY = auto()
    SHAPE_INFER = auto()
    ALL = OPERATOR | TENSOR_LIFETIME | SYNC | SCOPE | MEMORY | SHAPE_INFER


OPERATOR, TENSOR_LIFETIME, SYNC = Topics.OPERATOR, Topics.TENSOR_LIFETIME, Topics.SYNC
SCOPE, MEMORY, SHAPE_INFER, ALL = Topics.SCOPE, Topics.MEMORY, Topics.SHAPE_INFER, Topics.ALL


def names(topics: Topics) -> list[str]:
    """Return the single topics of a combination, in order of definition."""
    return [t.name or "" for t in (OPERATOR, TENSOR_LIFETIME, SYNC, SCOPE, MEMORY, SHAPE_INFER) if t & topics]
