"""Saved queries as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from visualprof.remote.queue.store.model_records import Requester

ParameterValue = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class SavedQuery:
    """A statement with a name.

    Attributes:
        id: Id of the query.
        owner: User who saved it; None on a server without accounts.
        name: Name of the query.
        sql: The statement.
        parameters: Values of its parameters.
        visibility: Who sees it.
        project: Project that may see it, for this visibility.
        updated_ns: Time of the last change.
    """

    id: str
    owner: str | None
    name: str
    sql: str
    parameters: Mapping[str, ParameterValue]
    visibility: Literal["private", "project", "public"]
    project: str | None
    updated_ns: int

    def can_be_changed_by(self, requester: Requester) -> bool:
        """Return whether the requester may change the query: its owner, and viewers who see everything."""
        return requester.viewer is None or self.owner == requester.viewer
