"""Files become versions of registered models: uploaded ones, those of jobs, and those that lie on this machine."""

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


def store_local_files(remote: JobService, user: str | None, files: Mapping[str, Path]) -> ModelRef:
    """Keeps files of this machine as if somebody had uploaded them.

    Args:
        remote: of the server.
        user: whose they become; None without accounts.
        files: by their names: the model first, then those with weights of it, as it names them.

    Raises: VisualprofError: the first is no model that can be used, or they are too many bytes.
    """
    model, *parts = save_local_files(remote, files)
    if user is not None:
        sizes = {upload.blob: (upload.name, upload.size) for upload in (model, *parts)}
        remote.open().blobs.add_holder(user, sizes)
    paths = list(files)[1:]
    return ModelRef(model.blob, model.name, [Part(path, part.blob) for path, part in zip(paths, parts, strict=True)])


def register_model(
    remote: JobService,
    by: Requester,
    name: str,
    model: ModelRef,
    *,
    source: Origin,
    lineage: Lineage | None = None,
    notes: str = "",
    configuration: Configuration | None = None,
) -> tuple[RegisteredModel, ModelVersion, bool]:
    """A version of the model of that name, which is made where there is none.

    Gives also whether it is new: the same content is the same version.

    Args:
        remote: of the server.
        by: whose it becomes. Whether they may use these files is asked before.
        name: of the registered model.
        model: files that are kept.
        source: where they come from. lineage: of which version they were made, and how. notes: for people.
        configuration: what the next job begins with; None: what the model's file says.

    Raises: NotFound: a file is not here. BadParameter: they are no whole model, or the name is none. Forbidden: the
        model is another's. Conflict: several are called so.
    """
    from visualprof.remote.queue.store.registry import NewVersion  # with the libraries of the database

    queue = remote.open()
    content = _content(queue, model)
    facts = ModelFacts(content.format, content.parameters, content.operators)
    new = NewVersion(model, facts, configuration or configuration_from_model(content), source, lineage, notes)
    return queue.registry.add_version(name, new, by)


def configuration_from_model(model: InspectedModel) -> Configuration:
    """What a model's file says of its inputs."""
    return Configuration([ConfiguredInput(t.name, t.dtype, _all_known(t.dims)) for t in model.inputs])


def _all_known(dims: list[int | str | None] | None) -> list[int | str] | None:
    """Dimensions that are all known, else none."""
    return None if dims is None or None in dims else [dim for dim in dims if dim is not None]


def configuration_from_request(request: Request) -> Configuration:
    """What a job asked for."""
    sizes = request.sweep.values if request.sweep.dim else []
    inputs = [ConfiguredInput(i.name, i.dtype, i.dims) for i in request.inputs]
    return Configuration(
        inputs, request.sweep.dim, min(sizes, default=None), max(sizes, default=None), dict(request.dims)
    )


def draft_from_version(model: RegisteredModel, version: ModelVersion) -> Draft:
    """What somebody would type to measure a version."""
    configured = version.configuration
    sizes = [str(size) for size in (configured.min_batch, configured.max_batch) if size is not None]
    return Draft(
        model=version.ref.blob,
        model_name=version.ref.name,
        parts={part.path: part.blob for part in version.ref.parts},
        name=f"{model.name}/{version.number}",
        inputs=[
            DraftInput(i.name, i.dtype, None if i.dims is None else dims_text(i.dims)) for i in configured.inputs
        ] or None,
        sweep=configured.sweep,
        sizes=":".join(dict.fromkeys(sizes)) if sizes and configured.sweep != "" else None,
        dims={dim: str(size) for dim, size in configured.dims.items()},
    )  # fmt: skip


def _content(queue: JobServices, model: ModelRef) -> InspectedModel:
    """Raises: NotFound, BadParameter."""
    errors = list(model_errors(model))
    if errors:
        raise InvalidRequest(errors)
    content = inspected_model(queue, model.blob, model.name)
    if content is None:
        known = queue.blobs.inspection(model.blob) is not None
        error = (
            msg("queue.no_model", f"{model.name} is no model")
            if known
            else msg("queue.file_not_here_2", f"the file {model.blob[:64]!r} is not here")
        )
        raise BadParameter(error) if known else NotFound(error, msg("queue.upload_first", "upload it first"))
    for part in model.parts:
        if queue.blobs.inspection(part.blob) is None:
            raise NotFound(
                msg("queue.file_not_here_2", f"the file {part.blob[:64]!r} is not here"),
                msg("queue.upload_first", "upload it first"),
            )
    given = {part.path for part in model.parts}
    lacking = [file.path for file in content.external if file.path not in given]
    if lacking:
        hint = msg("queue.upload_together_model_both", "upload it together with the model, or both in a zip")
        raise BadParameter(
            msg("queue.missing_weights_model_lie", f"{lacking[0]} is missing: weights of the model lie in it"), hint
        )
    return content
