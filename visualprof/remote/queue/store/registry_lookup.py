"""Find registered models and versions by name, id or address."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.remote.queue.errors import Conflict
from visualprof.remote.queue.store.model_records import (
    Configuration,
    Lineage,
    ModelFacts,
    ModelFile,
    ModelVersion,
    Origin,
    RegisteredModel,
    Requester,
)
from visualprof.remote.queue.store.model_tables import aliases, models, version_files, versions
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import blobs
from visualprof.remote.queue.store.visibility import visible_models

LIST_HINT = msg("queue.visualprof_model_list_shows", "visualprof model list shows all models")
# Decoders are built once, at import: see `reader.trace.codec`.
_TAGS = msgspec.json.Decoder(list[str])
_FACTS, _CONFIGURATION = msgspec.json.Decoder(ModelFacts), msgspec.json.Decoder(Configuration)
_SOURCE, _LINEAGE = msgspec.json.Decoder(Origin), msgspec.json.Decoder(Lineage)


def load_model(connection: Connection, model: str, viewer: str | None) -> RegisteredModel:
    """Return the visible model of an id.

    Raises:
        NotFound: There is no such model, or the viewer may not see it.
    """
    matches = load_models(connection, visible_models(viewer).where(models.c.id == model))
    if not matches:
        raise NotFound(
            msg("queue.there_no_registered_model", f"there is no registered model {model[:60]!r}"), LIST_HINT
        )
    return matches[0]


def find_by_name(connection: Connection, name: str, requester: Requester, excluded: str = "") -> RegisteredModel | None:
    """Return the requester's model of this name, else the only visible one.

    Raises:
        Conflict: Several visible models have this name.
    """
    has_name = func.lower(models.c.name) == name.lower()
    candidates = load_models(connection, visible_models(requester.viewer).where(has_name, models.c.id != excluded))
    candidates = [model for model in candidates if model.owner == requester.user] or candidates
    if len(candidates) > 1:
        raise Conflict(
            msg("queue.models_called", f"{len(candidates)} models are called {name!r}"),
            msg("queue.rename_one_them", "rename all but one model"),
        )
    return candidates[0] if candidates else None


def load_models(connection: Connection, query: Any) -> list[RegisteredModel]:
    """Return the models that a query selects, by name, with their versions and aliases."""
    rows = connection.execute(query.order_by(func.lower(models.c.name), models.c.id)).all()
    ids = [row.id for row in rows]
    files = defaultdict[tuple[str, int], list[ModelFile]](list)
    aliases_by_model, versions_by_model = (
        defaultdict[str, dict[str, int]](dict),
        defaultdict[str, list[ModelVersion]](list),
    )
    file_query = select(version_files, blobs.c.size_bytes).outerjoin(blobs, blobs.c.sha256 == version_files.c.sha256)
    for row in _rows_of_models(connection, file_query.order_by(version_files.c.place), version_files.c.model, ids):
        files[row.model, row.number].append(ModelFile(row.path, row.sha256, row.size_bytes or 0))
    for row in _rows_of_models(connection, select(aliases).order_by(aliases.c.name), aliases.c.model, ids):
        aliases_by_model[row.model][row.name] = row.number
    for row in _rows_of_models(connection, select(versions).order_by(versions.c.number.desc()), versions.c.model, ids):
        versions_by_model[row.model].append(_version_from_row(row, files[row.model, row.number]))
    return [_model_from_row(row, aliases_by_model[row.id], versions_by_model[row.id]) for row in rows]


def _rows_of_models(connection: Connection, query: Any, column: Any, ids: Sequence[str]) -> Iterable[AnyRow]:
    return connection.execute(query.where(column.in_(ids))).all()


def _model_from_row(row: AnyRow, aliases: dict[str, int], versions: list[ModelVersion]) -> RegisteredModel:
    return RegisteredModel(
        id=row.id,
        owner=row.owner,
        name=row.name,
        visibility=row.visibility,
        project=row.project,
        notes=row.notes,
        tags=_TAGS.decode(row.tags),
        created_ns=row.created_ns,
        aliases=aliases,
        versions=versions,
    )


def _version_from_row(row: AnyRow, files: list[ModelFile]) -> ModelVersion:
    return ModelVersion(
        model=row.model,
        number=row.number,
        sha256=row.sha256,
        files=files,
        facts=_FACTS.decode(row.facts),
        configuration=_CONFIGURATION.decode(row.configuration),
        source=_SOURCE.decode(row.source),
        lineage=_LINEAGE.decode(row.lineage) if row.lineage else None,
        notes=row.notes,
        creator=row.creator,
        created_ns=row.created_ns,
    )


def select_versions(model: RegisteredModel, number: int | None) -> list[ModelVersion]:
    """Return the version of a number, or all versions for None."""
    return model.versions if number is None else [version_by_number(model, number)]


def version_by_number(model: RegisteredModel, number: int) -> ModelVersion:
    """Return the version of a number.

    Raises:
        NotFound: The model has no such version.
    """
    matches = [version for version in model.versions if version.number == number]
    if not matches:
        raise NotFound(
            msg("queue.no_version_3", f"{model.name} has no version {number}"),
            msg("queue.visualprof_model_versions", f"visualprof model versions {model.name}"),
        )
    return matches[0]


def version_by_reference(model: RegisteredModel, separator: str, reference: str) -> ModelVersion:
    """Return the version that an address names by number or alias; the newest one without a reference.

    Raises:
        NotFound: The model has no such version or alias.
    """
    if separator == "@" and reference in model.aliases:
        return version_by_number(model, model.aliases[reference])
    if separator == "@":
        raise NotFound(
            msg("queue.no_alias", f"{model.name} has no alias {reference[:60]!r}"),
            msg("queue.it_has_2", f"it has: {', '.join(model.aliases) or 'none'}"),
        )
    if separator == "/":
        return version_by_number(model, int(reference))
    if not model.versions:
        raise NotFound(
            msg("queue.no_version_2", f"{model.name} has no version"),
            msg("queue.add_one_visualprof_model", "add one: visualprof model add"),
        )
    return model.versions[0]


def split_address(address: str) -> tuple[str, str, str]:
    """Return the name, the separator and the reference of an address.

    Raises:
        BadParameter: The address is invalid.
    """
    match = re.fullmatch(r"([^/@]+)(?:(/)(\d{1,9})|(@)(.+))?", address.strip())
    if match is None:
        raise BadParameter(
            msg("queue.no_address_model", f"{address[:80]!r} is no address of a model"),
            msg("queue.name_3_name_production", "NAME/3, NAME@production, or NAME: its newest"),
        )
    name, slash, number, at, alias = match.groups("")
    return name, slash or at, number or alias
