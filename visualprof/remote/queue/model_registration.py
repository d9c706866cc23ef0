"""Registration of files as versions of models: uploads, results of jobs, and files of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.remote.protocol import ModelRef, Part, Request
from visualprof.remote.queue.check.inspect import InspectedModel
from visualprof.remote.queue.check.limits import model_errors
from visualprof.remote.queue.check.request_json import InvalidRequest
from visualprof.remote.queue.draft.forms import Draft, DraftInput
from visualprof.remote.queue.draft.grammar import dims_text
from visualprof.remote.queue.service import JobService
from visualprof.remote.queue.store.model_records import (
    Configuration,
    ConfiguredInput,
    Lineage,
    ModelFacts,
    ModelVersion,
    Origin,
    RegisteredModel,
    Requester,
)
from visualprof.remote.queue.uploads import inspected_model, save_local_files

if TYPE_CHECKING:
    from visualprof.remote.queue.job_services import JobServices


def store_local_files(job_service: JobService, user: str | None, files: Mapping[str, Path]) -> ModelRef:
    """Store files of this machine as if a user had uploaded them.

    Args:
        job_service: Job service of the server.
        user: The owner; None without accounts.
        files: Paths by name: the model first, then its weight files under the names that the model uses.

    Raises:
        VisualprofError: The model cannot be used, or the files exceed a quota.
    """
    model, *parts = save_local_files(job_service, files)
    if user is not None:
        sizes = {upload.blob: (upload.name, upload.size) for upload in (model, *parts)}
        job_service.open().blobs.add_holder(user, sizes)
    paths = list(files)[1:]
    return ModelRef(model.blob, model.name, [Part(path, part.blob) for path, part in zip(paths, parts, strict=True)])


def register_model(
    job_service: JobService,
    requester: Requester,
    name: str,
    model: ModelRef,
    *,
    source: Origin,
    lineage: Lineage | None = None,
    notes: str = "",
    configuration: Configuration | None = None,
) -> tuple[RegisteredModel, ModelVersion, bool]:
    """Add a version to a registered model; create the model if necessary.

    Args:
        job_service: Job service of the server.
        requester: The owner. The caller has checked that they may use the files.
        name: Name of the registered model.
        model: Stored files.
        source: Origin of the files.
        lineage: From which version they were derived, and how.
        notes: Notes for users.
        configuration: Defaults of the next job; None is what the model's file says.

    Returns:
        The model, the version, and whether the version is new; the same content is the same version.

    Raises:
        NotFound: A file is not stored.
        BadParameter: The model is incomplete, or the name is invalid.
        Forbidden: The model belongs to another user.
        Conflict: Several models have this name.
    """
    from visualprof.remote.queue.store.registry import NewVersion  # loads the database's libraries

    services = job_service.open()
    content = _inspect_model(services, model)
    facts = ModelFacts(content.format, content.parameters, content.operators)
    version = NewVersion(model, facts, configuration or configuration_from_model(content), source, lineage, notes)
    return services.registry.add_version(name, version, requester)


def configuration_from_model(model: InspectedModel) -> Configuration:
    """Return the configuration of the inputs that a model's file declares."""
    return Configuration([ConfiguredInput(t.name, t.dtype, _known_dims(t.dims)) for t in model.inputs])


def _known_dims(dims: list[int | str | None] | None) -> list[int | str] | None:
    """Return dimensions if all are known, else None."""
    return None if dims is None or None in dims else [dim for dim in dims if dim is not None]


def configuration_from_request(request: Request) -> Configuration:
    """Return the configuration that a job requested."""
    sizes = request.sweep.values if request.sweep.dim else []
    inputs = [ConfiguredInput(i.name, i.dtype, i.dims) for i in request.inputs]
    return Configuration(
        inputs, request.sweep.dim, min(sizes, default=None), max(sizes, default=None), dict(request.dims)
    )


def draft_from_version(model: RegisteredModel, version: ModelVersion) -> Draft:
    """Return the draft of a job that measures a version."""
    configuration = version.configuration
    sizes = [str(size) for size in (configuration.min_batch, configuration.max_batch) if size is not None]
    return Draft(
        model=version.ref.blob,
        model_name=version.ref.name,
        parts={part.path: part.blob for part in version.ref.parts},
        name=f"{model.name}/{version.number}",
        inputs=[
            DraftInput(i.name, i.dtype, None if i.dims is None else dims_text(i.dims)) for i in configuration.inputs
        ]
        or None,
        sweep=configuration.sweep,
        sizes=":".join(dict.fromkeys(sizes)) if sizes and configuration.sweep != "" else None,
        dims={dim: str(size) for dim, size in configuration.dims.items()},
    )


def _inspect_model(services: JobServices, model: ModelRef) -> InspectedModel:
    """Return the inspection of a model whose weight files are complete.

    Raises:
        NotFound: A file is not stored.
        BadParameter: The model is invalid or incomplete.
    """
    errors = list(model_errors(model))
    if errors:
        raise InvalidRequest(errors)
    content = inspected_model(services, model.blob, model.name)
    if content is None:
        is_stored = services.blobs.inspection(model.blob) is not None
        error = (
            msg("queue.no_model", f"{model.name} is no model")
            if is_stored
            else msg("queue.file_not_here_2", f"the file {model.blob[:64]!r} is not here")
        )
        raise BadParameter(error) if is_stored else NotFound(error, msg("queue.upload_first", "upload it first"))
    for part in model.parts:
        if services.blobs.inspection(part.blob) is None:
            raise NotFound(
                msg("queue.file_not_here_2", f"the file {part.blob[:64]!r} is not here"),
                msg("queue.upload_first", "upload it first"),
            )
    paths = {part.path for part in model.parts}
    missing = [file.path for file in content.external if file.path not in paths]
    if missing:
        hint = msg("queue.upload_together_model_both", "upload it together with the model, or both in a zip")
        raise BadParameter(
            msg("queue.missing_weights_model_lie", f"{missing[0]} is missing: weights of the model lie in it"), hint
        )
    return content
