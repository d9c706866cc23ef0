"""Registered models: named models with immutable versions, their lineage, and their measurements."""

from __future__ import annotations

import re
from dataclasses import asdict, replace

import msgspec
from flask import Response, send_file
from msgspec import UNSET

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.remote.protocol import ModelRef, Part
from visualprof.remote.queue.draft.forms import Draft
from visualprof.remote.queue.model_registration import configuration_from_request, draft_from_version, register_model
from visualprof.remote.queue.store.model_records import Lineage, ModelVersion, Origin, RegisteredModel
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.registry_row_builder import RowBuilder
from visualprof.server.api.registry_rows import (
    AddressQuery,
    AliasTarget,
    FileQuery,
    ForceQuery,
    ModelChange,
    NewVersionBody,
    RegisteredAnswer,
    RegistryAnswer,
    RemovalImpact,
    VersionAnswer,
    VersionChange,
    current_requester,
)
from visualprof.server.api.uploads import FilesAnswer, job_files
from visualprof.server.identity import current_principal
from visualprof.server.job_service import JobServices
from visualprof.server.responses import json_response
from visualprof.server.routes import READ_ONLY_ERROR, Resource, get, mutation
from visualprof.server.services import Services

MODEL_ERRORS = {404: msg("server.there_no_such_model", "there is no such model or version")}
CHANGE_ERRORS = {
    **READ_ONLY_ERROR,
    **MODEL_ERRORS,
    403: "the server is read-only, or the model belongs to another user",
}
_NO_MODELS = msg("server.no_model_ever_registered", "no model was ever registered here")


class Registry(Resource):
    """The routes for registered models."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._reports = services.get(Reports)

    @get("/registry")
    def models(self) -> RegistryAnswer:
        """List every registered model."""
        queue, problem = self._job_service.open_existing(), self._job_service.problem
        visible = queue.registry.list_visible(current_principal().viewer) if queue else []
        row_builder = RowBuilder(visible, self._reports.current()[1])
        return RegistryAnswer([row_builder.model(model) for model in visible], *(problem or (None, None)))

    @get("/registry/version", errors=MODEL_ERRORS)
    def at(self, query: AddressQuery) -> VersionAnswer:
        """Return a version by its address."""
        model, version = self._queue().registry.resolve(query.address, current_requester())
        return self._version(model, version)

    @mutation(
        "POST",
        "/registry",
        status=201,
        errors={
            **READ_ONLY_ERROR,
            403: "the server is read-only, or the model belongs to another user",
            404: "a file is not here",
        },
    )
    def add(self, body: NewVersionBody) -> Response:
        """Add a version of a model. Answers 200 with the existing version if its content is the same."""
        queue, requester = self._open_writable_queue(), current_requester()
        ref = ModelRef(body.blob, body.file, [Part(path, blob) for path, blob in body.parts.items()])
        source, configuration = Origin("path" if body.path else "upload", body.path[:1000]), body.configuration
        if body.job:
            request = self._visible.job(queue, body.job).request
            ref, source = request.model, Origin("job", job=body.job)
            configuration = configuration or configuration_from_request(request)
        for blob in (ref.blob, *(part.blob for part in ref.parts)):
            if not self._visible.has_upload(blob):
                raise NotFound(
                    msg("server.file_not_here_2", f"the file {blob[:64]!r} is not here"),
                    msg("server.upload_first", "upload it first"),
                )
        if not ref.name:
            inspection = queue.blobs.inspection(ref.blob) or {}
            ref = replace(ref, name=self._visible.upload_name(ref.blob) or str(inspection.get("name", "")))
        lineage = body.lineage
        if body.parent:
            lineage = replace(lineage or Lineage(), parent=queue.registry.resolve(body.parent, requester)[1].sha256)
        model, version, new = register_model(
            self._job_service,
            requester,
            body.name,
            ref,
            source=source,
            lineage=lineage,
            notes=body.notes,
            configuration=configuration,
        )
        return json_response(self._version(model, version, new), 201 if new else 200)

    @get("/registry/<model>", errors=MODEL_ERRORS)
    def model(self, model: str) -> RegisteredAnswer:
        """Return a model with its versions."""
        return self._registered(self._queue().registry.get(model, current_principal().viewer))

    @mutation("PATCH", "/registry/<model>", errors={**CHANGE_ERRORS, 409: "the name is taken"})
    def edit(self, model: str, body: ModelChange) -> RegisteredAnswer:
        """Change the name, notes, tags or visibility of a model."""
        values = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}
        if body.visibility is UNSET:
            values.pop("project")
        elif (body.visibility == "project") != (body.project is not None):
            raise BadParameter(
                msg("server.project_named_visibility_no", "project: to be named for this visibility, and for no other")
            )
        else:
            self._accounts.projects.require_visible(body.project, current_principal().viewer)
        return self._registered(self._open_writable_queue().registry.update(model, current_requester(), **values))

    @mutation("DELETE", "/registry/<model>", errors={**CHANGE_ERRORS, 409: "a job uses a version"})
    def remove(self, model: str, query: ForceQuery) -> RemovalImpact:
        """Delete a model with all its versions."""
        return self._remove(model, None, query.force)

    @get("/registry/<model>/losses", errors=MODEL_ERRORS)
    def losses(self, model: str) -> RemovalImpact:
        """Return what deleting a model would affect."""
        return self._losses(model, None)

    @mutation("PUT", "/registry/<model>/aliases/<alias>", errors=CHANGE_ERRORS)
    def alias(self, model: str, alias: str, body: AliasTarget) -> RegisteredAnswer:
        """Move an alias to a version."""
        return self._registered(
            self._open_writable_queue().registry.set_alias(model, alias, body.number, current_requester())
        )

    @mutation("DELETE", "/registry/<model>/aliases/<alias>", errors=CHANGE_ERRORS)
    def unalias(self, model: str, alias: str) -> RegisteredAnswer:
        """Delete an alias."""
        return self._registered(self._open_writable_queue().registry.set_alias(model, alias, None, current_requester()))

    @mutation("PATCH", "/registry/<model>/<version>", errors=CHANGE_ERRORS)
    def annotate(self, model: str, version: str, body: VersionChange) -> RegisteredAnswer:
        """Change the notes of a version, or the configuration that its next job starts with."""
        values = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}
        return self._registered(
            self._open_writable_queue().registry.update_version(model, _number(version), current_requester(), **values)
        )

    @mutation("DELETE", "/registry/<model>/<version>", errors={**CHANGE_ERRORS, 409: "a job uses it"})
    def remove_version(self, model: str, version: str, query: ForceQuery) -> RemovalImpact:
        """Delete a version."""
        return self._remove(model, _number(version), query.force)

    @get("/registry/<model>/<version>/losses", errors=MODEL_ERRORS)
    def losses_of_version(self, model: str, version: str) -> RemovalImpact:
        """Return what deleting a version would affect."""
        return self._losses(model, _number(version))

    @get("/registry/<model>/<version>/draft", errors=MODEL_ERRORS)
    def draft(self, model: str, version: str) -> Draft:
        """Return the job form that measures a version."""
        return draft_from_version(*self._find_version(model, version))

    @get("/registry/<model>/<version>/files", errors=MODEL_ERRORS)
    def files(self, model: str, version: str) -> FilesAnswer:
        """List the files of a version in the form that jobs use."""
        model_version = self._find_version(model, version)[1]
        return job_files(
            self._job_service,
            model_version.ref,
            [file.sha256 for file in model_version.files[1:]],
            current_principal().viewer,
        )

    @get("/registry/<model>/<version>/file", media=("application/octet-stream",), errors=MODEL_ERRORS)
    def file(self, model: str, version: str, query: FileQuery) -> Response:
        """Download a file of a version."""
        version_files = self._find_version(model, version)[1].files
        files = [file for file in version_files if file.path == query.path] if query.path else version_files[:1]
        if not files:
            raise NotFound(msg("server.version_no_file", f"the version has no file {query.path[:100]!r}"))
        path, name = self._queue().blobs.path(files[0].sha256), files[0].path.rpartition("/")[2]
        response = send_file(path, "application/octet-stream", as_attachment=True, download_name=name, conditional=True)
        response.headers["Cache-Control"] = "private, no-store"
        return response

    def _queue(self) -> JobServices:
        return self._job_service.require(_NO_MODELS)

    def _open_writable_queue(self) -> JobServices:
        self._job_service.require_writable()
        return self._job_service.open()

    def _find_version(self, model: str, version: str) -> tuple[RegisteredModel, ModelVersion]:
        registered, number = self._queue().registry.get(model, current_principal().viewer), _number(version)
        for model_version in registered.versions:
            if model_version.number == number:
                return registered, model_version
        raise NotFound(msg("server.no_version", f"{registered.name} has no version {number}"))

    def _registered(self, model: RegisteredModel) -> RegisteredAnswer:
        row_builder = RowBuilder(
            self._queue().registry.list_visible(current_principal().viewer), self._reports.current()[1]
        )
        return RegisteredAnswer(
            row_builder.model(model), [row_builder.version(model, version) for version in model.versions]
        )

    def _version(self, model: RegisteredModel, version: ModelVersion, new: bool = False) -> VersionAnswer:
        row_builder = RowBuilder(
            self._queue().registry.list_visible(current_principal().viewer), self._reports.current()[1]
        )
        return VersionAnswer(row_builder.model(model), row_builder.version(model, version), new)

    def _remove(self, model: str, number: int | None, force: bool) -> RemovalImpact:
        before = self._losses(model, number)
        self._open_writable_queue().registry.delete(model, number, current_requester(), force)
        return before

    def _losses(self, model: str, number: int | None) -> RemovalImpact:
        registry, viewer = self._queue().registry, current_principal().viewer
        impact, registered = registry.removal_impact(model, number, viewer), registry.get(model, viewer)
        deleted = [version for version in registered.versions if number in (None, version.number)]
        files = {version.files[0].sha256 for version in deleted}
        reports = [report.id for report in self._reports.current()[1] if report.model_sha256 in files]
        return RemovalImpact(
            [f"{registered.name}/{version.number}" for version in deleted], **asdict(impact), evaluations=reports
        )


def _number(version: str) -> int:
    if not re.fullmatch(r"\d{1,9}", version):
        raise NotFound(
            msg("server.there_no_version", f"there is no version {version[:40]!r}"),
            msg("server.versions_numbers_1", "versions have numbers from 1"),
        )
    return int(version)
