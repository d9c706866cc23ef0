"""Saved queries: statements that users gave a name, and may share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, func, insert, select, update

from visualprof.errors import BadParameter, Forbidden, NotFound
from visualprof.messages import msg
from visualprof.remote.queue.errors import Conflict, QuotaExceeded
from visualprof.remote.queue.store.agents import new_id
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.model_records import Requester
from visualprof.remote.queue.store.query_records import ParameterValue, SavedQuery
from visualprof.remote.queue.store.query_tables import saved_queries
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.visibility import visible_queries

MAX_NAME_LENGTH, MAX_PER_USER = 200, 500

_PARAMETERS = msgspec.json.Decoder(dict[str, ParameterValue])


class SavedQueries:
    """The table of saved queries."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_visible(self, viewer: str | None) -> list[SavedQuery]:
        """Return the queries that a viewer may see, by name."""
        by_name = visible_queries(viewer).order_by(func.lower(saved_queries.c.name), saved_queries.c.id)
        with self._database.read() as connection:
            return [_from_row(row) for row in connection.execute(by_name)]

    def create(self, requester: Requester, name: str, sql: str, parameters: Mapping[str, ParameterValue]) -> SavedQuery:
        """Save a query. It is private with accounts, and public without them.

        Raises:
            BadParameter: The name is invalid.
            Conflict: The requester has a query of this name.
            QuotaExceeded: The requester has too many queries.
        """
        query = SavedQuery(
            id=new_id(),
            owner=requester.user,
            name=_normalize_name(name),
            sql=sql,
            parameters=parameters,
            visibility="public" if requester.user is None else "private",
            project=None,
            updated_ns=self._database.now_ns(),
        )
        with self._database.write() as connection:
            owned = select(func.count()).select_from(saved_queries).where(_belongs_to(requester.user))
            if connection.execute(owned).scalar_one() >= MAX_PER_USER:
                raise QuotaExceeded(
                    msg("queue.too_many_queries", f"you have {MAX_PER_USER} saved queries"),
                    msg("queue.delete_queries", "delete some of them first"),
                )
            _require_free_name(connection, query)
            values = {**asdict(query), "parameters": msgspec.json.encode(dict(parameters)).decode()}
            connection.execute(insert(saved_queries).values(values))
        return query

    def update(self, query: str, requester: Requester, **values: Any) -> SavedQuery:
        """Change the name, statement, parameters, visibility or project of a query.

        Raises:
            NotFound: There is no such query.
            Forbidden: The query belongs to another user.
            Conflict: Its owner has a query of this name.
            BadParameter: The name is invalid.
        """
        if "name" in values:
            values["name"] = _normalize_name(values["name"])
        if "parameters" in values:
            values["parameters"] = msgspec.json.encode(values["parameters"]).decode()
        values["updated_ns"] = self._database.now_ns()
        with self._database.write() as connection:
            _require_changeable(connection, query, requester)
            connection.execute(update(saved_queries).where(saved_queries.c.id == query).values(values))
            changed = _find(connection, query, None)
            _require_free_name(connection, changed)
        return changed

    def delete(self, query: str, requester: Requester) -> None:
        """Delete a query.

        Raises:
            NotFound: There is no such query.
            Forbidden: The query belongs to another user.
        """
        with self._database.write() as connection:
            _require_changeable(connection, query, requester)
            connection.execute(delete(saved_queries).where(saved_queries.c.id == query))


def _belongs_to(owner: str | None) -> Any:
    return func.coalesce(saved_queries.c.owner, "") == (owner or "")


def _find(connection: Connection, query: str, viewer: str | None) -> SavedQuery:
    row = connection.execute(visible_queries(viewer).where(saved_queries.c.id == query)).first()
    if row is None:
        raise NotFound(msg("queue.no_saved_query", f"there is no saved query {query[:60]!r}"))
    return _from_row(row)


def _require_changeable(connection: Connection, query: str, requester: Requester) -> None:
    if not _find(connection, query, requester.viewer).can_be_changed_by(requester):
        raise Forbidden(
            msg("queue.only_owner_changes_query", "only its owner and administrators can change a saved query"),
            msg("queue.save_query_copy", "save it under a name of your own"),
        )


def _require_free_name(connection: Connection, query: SavedQuery) -> None:
    same = (func.lower(saved_queries.c.name) == query.name.lower()) & (saved_queries.c.id != query.id)
    if connection.execute(select(saved_queries.c.id).where(same, _belongs_to(query.owner))).first():
        raise Conflict(
            msg("queue.query_name_taken", f"there is already a saved query {query.name!r}"),
            msg("queue.choose_query_name", "choose another name, or change the existing query"),
        )


def _from_row(row: AnyRow) -> SavedQuery:
    return SavedQuery(
        id=row.id,
        owner=row.owner,
        name=row.name,
        sql=row.sql,
        parameters=_PARAMETERS.decode(row.parameters),
        visibility=row.visibility,
        project=row.project,
        updated_ns=row.updated_ns,
    )


def _normalize_name(name: str) -> str:
    name = name.strip()
    if not (name.isprintable() and 0 < len(name) <= MAX_NAME_LENGTH):
        raise BadParameter(msg("queue.query_name", f"name: 1 to {MAX_NAME_LENGTH} printable characters"))
    return name
