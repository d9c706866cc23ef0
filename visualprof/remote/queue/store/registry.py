"""Registered models: names with immutable versions, whose files are blobs as those of jobs are."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
    ModelFile,
    ModelVersion,
    Origin,
    RegisteredModel,
    RemovalImpact,
    Requester,
    content_sha256,
)
from visualprof.remote.queue.store.model_tables import aliases, models, version_files, versions
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import blobs, holders, jobs, tasks
from visualprof.remote.queue.store.visibility import visible_jobs, visible_models

NAME_MAX, NOTES_MAX, TAGS_MAX = 200, 10_000, 50
_ALIAS = re.compile(r"[A-Za-z_][\w.-]{0,99}")
_ASK = msg("queue.visualprof_model_list_shows", "visualprof model list shows those that there are")

# Made once, while the module is imported: see `reader.trace.codec`.
_TAGS = msgspec.json.Decoder(list[str])
_FACTS, _CONFIGURATION = msgspec.json.Decoder(ModelFacts), msgspec.json.Decoder(Configuration)
_SOURCE, _LINEAGE = msgspec.json.Decoder(Origin), msgspec.json.Decoder(Lineage)


class NewVersion(NamedTuple):
    """What a version is to be."""

    model: ModelRef
    facts: ModelFacts
    configuration: Configuration
    source: Origin
    lineage: Lineage | None
    notes: str


class Registry:
    """The tables of registered models.

    Args:
        database, store: of the queue.
    """

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store

    def list_visible(self, viewer: str | None) -> list[RegisteredModel]:
        """Those that somebody may see, by name."""
        with self._database.read() as connection:
            return _models(connection, visible_models(viewer))

    def get(self, model: str, viewer: str | None) -> RegisteredModel:
        """A model by its id.

        Raises: NotFound: also when it is another's.
        """
        with self._database.read() as connection:
            return _one(connection, model, viewer)

    def resolve(self, address: str, by: Requester) -> tuple[RegisteredModel, ModelVersion]:
        """What `NAME/3`, `NAME@alias` or `NAME`, its newest version, is.

        Raises: NotFound. Conflict: several models that somebody sees are called so, and none is their own.
        """
        name, mark, which = _split(address)
        with self._database.read() as connection:
            model = _model_named(connection, name, by)
        if model is None:
            raise NotFound(msg("queue.there_no_registered_model", f"there is no registered model {name[:60]!r}"), _ASK)
        return model, _version_at(model, mark, which)

    def add_version(self, name: str, new: NewVersion, by: Requester) -> tuple[RegisteredModel, ModelVersion, bool]:
        """A version of the model of that name, which is made where there is none.

        Gives also whether it is new: the same content is the same version.

        Raises: BadParameter: no such name. Forbidden: the model is another's.
        """
        name, now = _name(name), self._database.now_ns()
        with self._database.write() as connection:
            model = _model_named(connection, name, by)
            if model is None:
                model = _one(connection, _insert_model(connection, name, by, now), None)
            _refuse_foreign(model, by)
            sha256 = content_sha256(new.model)
            same = [version for version in model.versions if version.sha256 == sha256]
            if same:
                return model, same[0], False
            number = _inserted(connection, model.id, new, sha256, by, now)
            model = _one(connection, model.id, None)
        return model, _numbered(model, number), True

    def update(self, model: str, by: Requester, **values: Any) -> RegisteredModel:
        """Changes name, notes, tags or who may see it.

        Raises: NotFound. Forbidden. Conflict: the name is taken. BadParameter.
        """
        if "name" in values:
            values["name"] = _name(values["name"])
        if "tags" in values:
            values["tags"] = _text(_tags(values["tags"]))
        _refuse_long(values.get("notes", ""))
        with self._database.write() as connection:
            before = _own(connection, model, by)
            other = _model_named(connection, values.get("name", before.name), by, besides=model)
            if other is not None and "name" in values:
                raise Conflict(msg("queue.name_there_model_already", f"name: there is a model {other.name!r} already"))
            if values:
                connection.execute(update(models).where(models.c.id == model).values(values))
            return _one(connection, model, None)

    def update_version(self, model: str, number: int, by: Requester, **values: Any) -> RegisteredModel:
        """Change the notes of a version, or its configuration; the rest of it never changes.

        Raises: NotFound. Forbidden. BadParameter.
        """
        _refuse_long(values.get("notes", ""))
        if "configuration" in values:
            values["configuration"] = _text(values["configuration"])
        with self._database.write() as connection:
            _numbered(_own(connection, model, by), number)
            of_version = (versions.c.model == model) & (versions.c.number == number)
            if values:
                connection.execute(update(versions).where(of_version).values(values))
            return _one(connection, model, None)

    def set_alias(self, model: str, alias: str, number: int | None, by: Requester) -> RegisteredModel:
        """Move an alias to a version; None takes it away.

        Raises: NotFound. Forbidden. BadParameter: no name for one.
        """
        if not _ALIAS.fullmatch(alias):
            raise BadParameter(
                msg("queue.no_alias_2", f"{alias[:60]!r} is no alias"),
                msg("queue.letter_then_letters_digits", "a letter, then letters, digits, '_', '.' or '-'"),
            )
        with self._database.write() as connection:
            before = _own(connection, model, by)
            if number is None and alias not in before.aliases:
                raise NotFound(msg("queue.no_alias", f"{before.name} has no alias {alias[:60]!r}"))
            connection.execute(delete(aliases).where(aliases.c.model == model, aliases.c.name == alias))
            if number is not None:
                row = {"model": model, "name": alias, "number": _numbered(before, number).number}
                connection.execute(insert(aliases).values(row))
            return _one(connection, model, None)

    def removal_impact(self, model: str, number: int | None, viewer: str | None) -> RemovalImpact:
        """What is left without a version, or without the whole model for None, as far as somebody may see it.

        Raises: NotFound.
        """
        with self._database.read() as connection:
            found = _one(connection, model, viewer)
            return _losses(connection, found, _chosen(found, number), viewer)

    def delete(self, model: str, number: int | None, by: Requester, force: bool = False) -> RemovalImpact:
        """Remove a version, or the whole model for None, with the files that nothing else names.

        Raises: NotFound. Forbidden. Conflict: a job uses it, and this is not to be forced.
        """
        with self._database.write() as connection:
            found = _own(connection, model, by)
            gone = _chosen(found, number)
            lost = _losses(connection, found, gone, by.viewer)
            if lost.jobs and not force:
                some = ", ".join(lost.jobs[:5])
                raise Conflict(
                    msg("queue.jobs_not_ended_use", f"jobs that have not ended use it: {some}"),
                    msg("queue.cancel_them_force", "cancel them, or force it"),
                )
            files = _forget(connection, found, gone, number is None)
        for sha256 in files:
            self._store.delete(f"blobs/{sha256}")
        return lost


def _forget(connection: Connection, model: RegisteredModel, gone: Sequence[ModelVersion], whole: bool) -> list[str]:
    """Removes versions; the files that nothing names any more."""
    numbers = [version.number for version in gone]
    for table in (aliases, version_files, versions):
        connection.execute(delete(table).where(table.c.model == model.id, table.c.number.in_(numbers)))
    if whole:
        connection.execute(delete(models).where(models.c.id == model.id))
    for version in gone:
        of_creator = func.coalesce(versions.c.creator, "") == (version.creator or "")
        other_version = exists().where(
            version_files.c.sha256 == holders.c.sha256, versions.c.model == version_files.c.model,
            versions.c.number == version_files.c.number, of_creator,
        )  # fmt: skip
        same_owner = func.coalesce(jobs.c.owner, "") == (version.creator or "")
        job = exists().where(same_owner, jobs.c.request.contains(holders.c.sha256))
        theirs = holders.c.owner == version.creator, holders.c.sha256.in_([file.sha256 for file in version.files])
        connection.execute(delete(holders).where(*theirs, ~other_version, ~job))
    return delete_unneeded(connection, {file.sha256 for version in gone for file in version.files})


def _losses(
    connection: Connection, model: RegisteredModel, gone: Sequence[ModelVersion], viewer: str | None
) -> RemovalImpact:
    numbers = {version.number for version in gone}
    live = jobs.c.id.in_(select(tasks.c.job).where(tasks.c.state.not_in(FINAL)))
    used = visible_jobs(viewer).where(live, jobs.c.model_blob.in_([version.files[0].sha256 for version in gone]))
    using = [str(row.id) for row in connection.execute(used.order_by(jobs.c.submitted_ns))]
    others = _models(connection, visible_models(viewer))
    left = {
        version.sha256 for other in others for version in other.versions
        if other.id != model.id or version.number not in numbers
    }  # fmt: skip
    orphaned = {version.sha256 for version in gone} - left
    children = [
        f"{other.name}/{version.number}" for other in others for version in other.versions
        if version.lineage and version.lineage.parent in orphaned
        and (other.id != model.id or version.number not in numbers)
    ]  # fmt: skip
    return RemovalImpact(using, children, sorted(name for name, number in model.aliases.items() if number in numbers))


def _insert_model(connection: Connection, name: str, by: Requester, now: int) -> str:
    model = new_id()
    seen = "public" if by.user is None else "private"  # without accounts everybody sees it, also once there are some
    row = {"id": model, "owner": by.user, "name": name, "visibility": seen, "project": None, "last": 0}
    connection.execute(insert(models).values(**row, notes="", tags="[]", created_ns=now))
    return model


def _inserted(connection: Connection, model: str, new: NewVersion, sha256: str, by: Requester, now: int) -> int:
    _refuse_long(new.notes)
    counted = update(models).where(models.c.id == model).values(last=models.c.last + 1).returning(models.c.last)
    number = int(connection.execute(counted).scalar_one())
    row = {
        "model": model, "number": number, "creator": by.user, "sha256": sha256, "notes": new.notes, "created_ns": now,
        "parent": (new.lineage and new.lineage.parent) or None, "lineage": new.lineage and _text(new.lineage),
        "facts": _text(new.facts), "configuration": _text(new.configuration), "source": _text(new.source),
    }  # fmt: skip
    connection.execute(insert(versions).values(row))
    files = [(new.model.name, new.model.blob), *((part.path, part.blob) for part in new.model.parts)]
    of_version = {"model": model, "number": number}
    rows = [{**of_version, "place": i, "path": path, "sha256": blob} for i, (path, blob) in enumerate(files)]
    connection.execute(insert(version_files), rows)
    return number


def _own(connection: Connection, model: str, by: Requester) -> RegisteredModel:
    found = _one(connection, model, by.viewer)
    _refuse_foreign(found, by)
    return found


def _refuse_foreign(model: RegisteredModel, by: Requester) -> None:
    if not model.can_be_changed_by(by):
        raise Forbidden(
            msg("queue.only_owner_administrators_change", "only its owner and administrators change a model"),
            msg("queue.add_under_another_name", "add it under another name"),
        )


def _one(connection: Connection, model: str, viewer: str | None) -> RegisteredModel:
    found = _models(connection, visible_models(viewer).where(models.c.id == model))
    if not found:
        raise NotFound(msg("queue.there_no_registered_model", f"there is no registered model {model[:60]!r}"), _ASK)
    return found[0]


def _model_named(connection: Connection, name: str, by: Requester, besides: str = "") -> RegisteredModel | None:
    """The model that somebody means by a name: their own, or the only one that they see."""
    called = func.lower(models.c.name) == name.lower()
    found = _models(connection, visible_models(by.viewer).where(called, models.c.id != besides))
    found = [model for model in found if model.owner == by.user] or found
    if len(found) > 1:
        raise Conflict(
            msg("queue.models_called", f"{len(found)} models are called {name!r}"),
            msg("queue.rename_one_them", "rename one of them"),
        )
    return found[0] if found else None


def _models(connection: Connection, some: Any) -> list[RegisteredModel]:
    rows = connection.execute(some.order_by(func.lower(models.c.name), models.c.id)).all()
    ids = [row.id for row in rows]
    files = defaultdict[tuple[str, int], list[ModelFile]](list)
    named, found = defaultdict[str, dict[str, int]](dict), defaultdict[str, list[ModelVersion]](list)
    of_files = select(version_files, blobs.c.size_bytes).outerjoin(blobs, blobs.c.sha256 == version_files.c.sha256)
    for row in _of(connection, of_files.order_by(version_files.c.place), version_files.c.model, ids):
        files[row.model, row.number].append(ModelFile(row.path, row.sha256, row.size_bytes or 0))
    for row in _of(connection, select(aliases).order_by(aliases.c.name), aliases.c.model, ids):
        named[row.model][row.name] = row.number
    for row in _of(connection, select(versions).order_by(versions.c.number.desc()), versions.c.model, ids):
        found[row.model].append(_version(row, files[row.model, row.number]))
    return [_model(row, named[row.id], found[row.id]) for row in rows]


def _of(connection: Connection, query: Any, column: Any, ids: Sequence[str]) -> Iterable[AnyRow]:
    return connection.execute(query.where(column.in_(ids))).all()


def _model(row: AnyRow, named: dict[str, int], its: list[ModelVersion]) -> RegisteredModel:
    return RegisteredModel(
        row.id, row.owner, row.name, row.visibility, row.project, row.notes, _TAGS.decode(row.tags),
        row.created_ns, named, its,
    )  # fmt: skip


def _version(row: AnyRow, files: list[ModelFile]) -> ModelVersion:
    return ModelVersion(
        row.model, row.number, row.sha256, files, _FACTS.decode(row.facts), _CONFIGURATION.decode(row.configuration),
        _SOURCE.decode(row.source), _LINEAGE.decode(row.lineage) if row.lineage else None, row.notes, row.creator,
        row.created_ns,
    )  # fmt: skip


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _chosen(model: RegisteredModel, number: int | None) -> list[ModelVersion]:
    return model.versions if number is None else [_numbered(model, number)]


def _numbered(model: RegisteredModel, number: int) -> ModelVersion:
    found = [version for version in model.versions if version.number == number]
    if not found:
        raise NotFound(
            msg("queue.no_version_3", f"{model.name} has no version {number}"),
            msg("queue.visualprof_model_versions", f"visualprof model versions {model.name}"),
        )
    return found[0]


def _version_at(model: RegisteredModel, mark: str, which: str) -> ModelVersion:
    if mark == "@" and which in model.aliases:
        return _numbered(model, model.aliases[which])
    if mark == "@":
        raise NotFound(
            msg("queue.no_alias", f"{model.name} has no alias {which[:60]!r}"),
            msg("queue.it_has_2", f"it has: {', '.join(model.aliases) or 'none'}"),
        )
    if mark == "/":
        return _numbered(model, int(which))
    if not model.versions:
        raise NotFound(
            msg("queue.no_version_2", f"{model.name} has no version"),
            msg("queue.add_one_visualprof_model", "add one: visualprof model add"),
        )
    return model.versions[0]


def _split(address: str) -> tuple[str, str, str]:
    """Name, mark and what follows it of an address.

    Raises: BadParameter.
    """
    match = re.fullmatch(r"([^/@]+)(?:(/)(\d{1,9})|(@)(.+))?", address.strip())
    if match is None:
        raise BadParameter(
            msg("queue.no_address_model", f"{address[:80]!r} is no address of a model"),
            msg("queue.name_3_name_production", "NAME/3, NAME@production, or NAME: its newest"),
        )
    name, slash, number, at, alias = match.groups("")
    return name, slash or at, number or alias


def _name(name: str) -> str:
    name = name.strip()
    if not (name.isprintable() and 0 < len(name) <= NAME_MAX) or set(name) & set("/@"):
        raise BadParameter(msg("queue.name_1_200_visible", "name: 1 to 200 visible characters, without '/' and '@'"))
    return name


def _tags(tags: Sequence[str]) -> list[str]:
    tags = list(dict.fromkeys(tag.strip() for tag in tags))
    if len(tags) > TAGS_MAX or not all(tag.isprintable() and 0 < len(tag) <= 60 for tag in tags):
        raise BadParameter(msg("queue.tags_most_50_1", "tags: at most 50, of 1 to 60 visible characters"))
    return tags


def _refuse_long(notes: str) -> None:
    if len(notes) > NOTES_MAX:
        raise BadParameter(msg("queue.notes_most_10_000", "notes: at most 10,000 characters"))
