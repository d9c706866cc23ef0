"""Registered models: names with immutable versions, whose files are stored like those of jobs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, exists, func, insert, select, update

from visualprof.errors import BadParameter, Forbidden, NotFound
from visualprof.messages import msg
from visualprof.remote.protocol import FINAL, ModelRef
from visualprof.remote.queue.errors import Conflict
from visualprof.remote.queue.store.agents import new_id
from visualprof.remote.queue.store.blobs import delete_unneeded
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.files import Store
from visualprof.remote.queue.store.model_records import (
    Configuration,
    Lineage,
    ModelFacts,
    ModelVersion,
    Origin,
    RegisteredModel,
    RemovalImpact,
    Requester,
    content_sha256,
)
from visualprof.remote.queue.store.model_tables import aliases, models, version_files, versions
from visualprof.remote.queue.store.registry_lookup import (
    LIST_HINT,
    find_by_name,
    load_model,
    load_models,
    select_versions,
    split_address,
    version_by_number,
    version_by_reference,
)
from visualprof.remote.queue.store.tables import holders, jobs, tasks
from visualprof.remote.queue.store.visibility import visible_jobs, visible_models

MAX_NAME_LENGTH, MAX_NOTES_LENGTH, MAX_TAGS = 200, 10_000, 50
_ALIAS = re.compile(r"[A-Za-z_][\w.-]{0,99}")


class NewVersion(NamedTuple):
    """A version that is to be added."""

    model: ModelRef
    facts: ModelFacts
    configuration: Configuration
    source: Origin
    lineage: Lineage | None
    notes: str


class Registry:
    """The tables of registered models.

    Args:
        database: Database of the queue.
        store: File store of the queue.
    """

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store

    def list_visible(self, viewer: str | None) -> list[RegisteredModel]:
        """Return the models that a viewer may see, by name."""
        with self._database.read() as connection:
            return load_models(connection, visible_models(viewer))

    def get(self, model: str, viewer: str | None) -> RegisteredModel:
        """Return a model.

        Raises:
            NotFound: There is no such model, or the viewer may not see it.
        """
        with self._database.read() as connection:
            return load_model(connection, model, viewer)

    def resolve(self, address: str, requester: Requester) -> tuple[RegisteredModel, ModelVersion]:
        """Return the model and version of an address: `NAME/3`, `NAME@alias`, or `NAME` for the newest version.

        Raises:
            NotFound: There is no such model or version.
            Conflict: Several visible models have this name, and none belongs to the requester.
        """
        name, separator, reference = split_address(address)
        with self._database.read() as connection:
            model = find_by_name(connection, name, requester)
        if model is None:
            raise NotFound(
                msg("queue.there_no_registered_model", f"there is no registered model {name[:60]!r}"), LIST_HINT
            )
        return model, version_by_reference(model, separator, reference)

    def add_version(
        self, name: str, version: NewVersion, requester: Requester
    ) -> tuple[RegisteredModel, ModelVersion, bool]:
        """Add a version to a model; create the model if necessary.

        Returns:
            The model, the version, and whether the version is new; the same content is the same version.

        Raises:
            BadParameter: The name is invalid.
            Forbidden: The model belongs to another user.
        """
        name, now_ns = _normalize_name(name), self._database.now_ns()
        with self._database.write() as connection:
            model = find_by_name(connection, name, requester)
            if model is None:
                model = load_model(connection, _insert_model(connection, name, requester, now_ns), None)
            _require_changeable(model, requester)
            sha256 = content_sha256(version.model)
            existing = [version for version in model.versions if version.sha256 == sha256]
            if existing:
                return model, existing[0], False
            number = _insert_version(connection, model.id, version, sha256, requester, now_ns)
            model = load_model(connection, model.id, None)
        return model, version_by_number(model, number), True

    def update(self, model: str, requester: Requester, **values: Any) -> RegisteredModel:
        """Change a model's name, notes, tags or visibility.

        Raises:
            NotFound: There is no such model.
            Forbidden: The model belongs to another user.
            Conflict: The name is taken.
            BadParameter: A value is invalid.
        """
        if "name" in values:
            values["name"] = _normalize_name(values["name"])
        if "tags" in values:
            values["tags"] = _encode(_normalize_tags(values["tags"]))
        _check_notes(values.get("notes", ""))
        with self._database.write() as connection:
            current = _changeable(connection, model, requester)
            other = find_by_name(connection, values.get("name", current.name), requester, excluded=model)
            if other is not None and "name" in values:
                raise Conflict(msg("queue.name_there_model_already", f"name: there is a model {other.name!r} already"))
            if values:
                connection.execute(update(models).where(models.c.id == model).values(values))
            return load_model(connection, model, None)

    def update_version(self, model: str, number: int, requester: Requester, **values: Any) -> RegisteredModel:
        """Change the notes or the configuration of a version.

        Raises:
            NotFound: There is no such version.
            Forbidden: The model belongs to another user.
            BadParameter: A value is invalid.
        """
        _check_notes(values.get("notes", ""))
        if "configuration" in values:
            values["configuration"] = _encode(values["configuration"])
        with self._database.write() as connection:
            version_by_number(_changeable(connection, model, requester), number)
            of_version = (versions.c.model == model) & (versions.c.number == number)
            if values:
                connection.execute(update(versions).where(of_version).values(values))
            return load_model(connection, model, None)

    def set_alias(self, model: str, alias: str, number: int | None, requester: Requester) -> RegisteredModel:
        """Point an alias to a version; None removes the alias.

        Raises:
            NotFound: There is no such version or alias.
            Forbidden: The model belongs to another user.
            BadParameter: The alias is invalid.
        """
        if not _ALIAS.fullmatch(alias):
            raise BadParameter(
                msg("queue.no_alias_2", f"{alias[:60]!r} is no alias"),
                msg("queue.letter_then_letters_digits", "a letter, then letters, digits, '_', '.' or '-'"),
            )
        with self._database.write() as connection:
            current = _changeable(connection, model, requester)
            if number is None and alias not in current.aliases:
                raise NotFound(msg("queue.no_alias", f"{current.name} has no alias {alias[:60]!r}"))
            connection.execute(delete(aliases).where(aliases.c.model == model, aliases.c.name == alias))
            if number is not None:
                row = {"model": model, "name": alias, "number": version_by_number(current, number).number}
                connection.execute(insert(aliases).values(row))
            return load_model(connection, model, None)

    def removal_impact(self, model: str, number: int | None, viewer: str | None) -> RemovalImpact:
        """Return what refers to a version, or to all versions for None, as far as the viewer may see it.

        Raises:
            NotFound: There is no such version.
        """
        with self._database.read() as connection:
            registered = load_model(connection, model, viewer)
            return _removal_impact(connection, registered, select_versions(registered, number), viewer)

    def delete(self, model: str, number: int | None, requester: Requester, force: bool = False) -> RemovalImpact:
        """Delete a version, or the whole model for None, with the files that nothing else uses.

        Raises:
            NotFound: There is no such version.
            Forbidden: The model belongs to another user.
            Conflict: A job uses the version, and `force` is not set.
        """
        with self._database.write() as connection:
            registered = _changeable(connection, model, requester)
            removed = select_versions(registered, number)
            impact = _removal_impact(connection, registered, removed, requester.viewer)
            if impact.jobs and not force:
                job_list = ", ".join(impact.jobs[:5])
                raise Conflict(
                    msg("queue.jobs_not_ended_use", f"jobs that have not ended use it: {job_list}"),
                    msg("queue.cancel_them_force", "cancel them, or force it"),
                )
            files = _delete_versions(connection, registered, removed, number is None)
        for sha256 in files:
            self._store.delete(f"blobs/{sha256}")
        return impact


def _delete_versions(
    connection: Connection, model: RegisteredModel, removed: Sequence[ModelVersion], with_model: bool
) -> list[str]:
    """Delete versions; return the files that nothing uses any longer."""
    numbers = [version.number for version in removed]
    for table in (aliases, version_files, versions):
        connection.execute(delete(table).where(table.c.model == model.id, table.c.number.in_(numbers)))
    if with_model:
        connection.execute(delete(models).where(models.c.id == model.id))
    for version in removed:
        of_creator = func.coalesce(versions.c.creator, "") == (version.creator or "")
        other_version = exists().where(
            version_files.c.sha256 == holders.c.sha256,
            versions.c.model == version_files.c.model,
            versions.c.number == version_files.c.number,
            of_creator,
        )
        same_owner = func.coalesce(jobs.c.owner, "") == (version.creator or "")
        job = exists().where(same_owner, jobs.c.request.contains(holders.c.sha256))
        held_by_creator = (
            holders.c.owner == version.creator,
            holders.c.sha256.in_([file.sha256 for file in version.files]),
        )
        connection.execute(delete(holders).where(*held_by_creator, ~other_version, ~job))
    return delete_unneeded(connection, {file.sha256 for version in removed for file in version.files})


def _removal_impact(
    connection: Connection, model: RegisteredModel, removed: Sequence[ModelVersion], viewer: str | None
) -> RemovalImpact:
    numbers = {version.number for version in removed}
    is_unfinished = jobs.c.id.in_(select(tasks.c.job).where(tasks.c.state.not_in(FINAL)))
    query = visible_jobs(viewer).where(
        is_unfinished, jobs.c.model_blob.in_([version.files[0].sha256 for version in removed])
    )
    job_ids = [str(row.id) for row in connection.execute(query.order_by(jobs.c.submitted_ns))]
    others = load_models(connection, visible_models(viewer))
    remaining = {
        version.sha256
        for other in others
        for version in other.versions
        if other.id != model.id or version.number not in numbers
    }
    orphaned = {version.sha256 for version in removed} - remaining
    children = [
        f"{other.name}/{version.number}"
        for other in others
        for version in other.versions
        if version.lineage
        and version.lineage.parent in orphaned
        and (other.id != model.id or version.number not in numbers)
    ]
    return RemovalImpact(job_ids, children, sorted(name for name, number in model.aliases.items() if number in numbers))


def _insert_model(connection: Connection, name: str, requester: Requester, now_ns: int) -> str:
    model = new_id()
    # Without accounts, models are public, and stay so when accounts are added.
    visibility = "public" if requester.user is None else "private"
    row = {"id": model, "owner": requester.user, "name": name, "visibility": visibility, "project": None, "last": 0}
    connection.execute(insert(models).values(**row, notes="", tags="[]", created_ns=now_ns))
    return model


def _insert_version(
    connection: Connection, model: str, version: NewVersion, sha256: str, requester: Requester, now_ns: int
) -> int:
    _check_notes(version.notes)
    next_number = update(models).where(models.c.id == model).values(last=models.c.last + 1).returning(models.c.last)
    number = int(connection.execute(next_number).scalar_one())
    row = {
        "model": model,
        "number": number,
        "creator": requester.user,
        "sha256": sha256,
        "notes": version.notes,
        "created_ns": now_ns,
        "parent": (version.lineage and version.lineage.parent) or None,
        "lineage": version.lineage and _encode(version.lineage),
        "facts": _encode(version.facts),
        "configuration": _encode(version.configuration),
        "source": _encode(version.source),
    }
    connection.execute(insert(versions).values(row))
    files = [(version.model.name, version.model.blob), *((part.path, part.blob) for part in version.model.parts)]
    of_version = {"model": model, "number": number}
    rows = [{**of_version, "place": i, "path": path, "sha256": blob} for i, (path, blob) in enumerate(files)]
    connection.execute(insert(version_files), rows)
    return number


def _changeable(connection: Connection, model: str, requester: Requester) -> RegisteredModel:
    registered = load_model(connection, model, requester.viewer)
    _require_changeable(registered, requester)
    return registered


def _require_changeable(model: RegisteredModel, requester: Requester) -> None:
    if not model.can_be_changed_by(requester):
        raise Forbidden(
            msg("queue.only_owner_administrators_change", "only its owner and administrators change a model"),
            msg("queue.add_under_another_name", "add it under another name"),
        )


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _normalize_name(name: str) -> str:
    name = name.strip()
    if not (name.isprintable() and 0 < len(name) <= MAX_NAME_LENGTH) or set(name) & set("/@"):
        raise BadParameter(msg("queue.name_1_200_visible", "name: 1 to 200 visible characters, without '/' and '@'"))
    return name


def _normalize_tags(tags: Sequence[str]) -> list[str]:
    tags = list(dict.fromkeys(tag.strip() for tag in tags))
    if len(tags) > MAX_TAGS or not all(tag.isprintable() and 0 < len(tag) <= 60 for tag in tags):
        raise BadParameter(msg("queue.tags_most_50_1", "tags: at most 50, of 1 to 60 visible characters"))
    return tags


def _check_notes(notes: str) -> None:
    if len(notes) > MAX_NOTES_LENGTH:
        raise BadParameter(msg("queue.notes_most_10_000", "notes: at most 10,000 characters"))
