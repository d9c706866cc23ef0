"""Uploads: models and arrays for jobs; the models are also on the Graph page."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Literal

import msgspec
from flask import request

from visualprof.errors import VisualprofError
from visualprof.remote.queue.check.inspect import InspectedArray, InspectedModel
from visualprof.remote.queue.service import Remote
from visualprof.remote.queue.uploads import GRAPH, Upload, kept, kept_models, take
from visualprof.server.api.models import Entry, Models, UploadQuery
from visualprof.server.routes import READ_ONLY, Resource, change, get

_log = logging.getLogger(__name__)


class TensorEntry(msgspec.Struct):
    """An input or output of a model, as its file declares it.

    dtype: "" and dims: null where the file does not say. A text among dims names a dimension; a null is unknown.
    """

    name: str
    dtype: str
    dims: list[int | str | None] | None


class UploadedModel(msgspec.Struct):
    """What the file of a model says. dims: named dimensions with a size to start from. backends: that load it.

    fixed_inputs: whether it says names, types and dimensions of its inputs for good; else a job may change them.
    """

    format: str
    inputs: list[TensorEntry]
    outputs: list[TensorEntry]
    dims: dict[str, int]
    backends: list[str]
    warnings: list[str]
    fixed_inputs: bool


class UploadedArray(msgspec.Struct):
    """What the head of an .npy file says."""

    dtype: str
    shape: list[int]


class UploadAnswer(msgspec.Struct):
    """A file that was kept; its blob is named by jobs. graph: id of the model for the Graph page, null for arrays."""

    blob: str
    name: str
    size_bytes: int
    kind: Literal["model", "array"]
    model: UploadedModel | None
    array: UploadedArray | None
    graph: str | None


class FilesAnswer(msgspec.Struct):
    """What a job was submitted with, the model first; files that are gone are left out."""

    files: list[UploadAnswer]


class Uploads(Resource):
    """The routes; models: those of the Graph page, which then has the uploaded ones too."""

    def __init__(self, remote: Remote, models: Models) -> None:
        self._remote = remote
        models.also(lambda: _entries(remote))

    @change(
        "POST", "/uploads", status=201, content="application/octet-stream",
        refuses={**READ_ONLY, 413: "too large", 422: "no model or array that can be used", 507: "the disk is full"},
    )  # fmt: skip
    def upload(self, query: UploadQuery) -> UploadAnswer:
        """Keep a model or an array for jobs."""
        return _shown(take(self._remote, query.name, request.stream.read))

    @get("/jobs/<job>/files", refuses={404: "there is no such job"})
    def files(self, job: str) -> FilesAnswer:
        """The model and arrays of a job."""
        submitted = self._remote.needed("no job was ever submitted here").jobs.one(job).request
        arrays = [filled.blob for filled in submitted.inputs if filled.fill == "file"]
        return FilesAnswer([_shown(upload) for upload in kept(self._remote, [submitted.model.blob, *arrays])])


def _entries(remote: Remote) -> list[Entry]:
    """The uploaded models; without them the Graph page still has those of the log directories."""
    try:
        found = kept_models(remote)
    except VisualprofError as error:
        _log.warning("uploaded models are not shown: %s", error.error)
        return []
    return [Entry(m.id, m.name, m.path, m.format, "", m.size, m.kept_ns, uploaded=True) for m in found]


def _shown(upload: Upload) -> UploadAnswer:
    model, array = None, None
    if isinstance(upload.content, InspectedModel):
        model = msgspec.convert(asdict(upload.content), UploadedModel)
    else:
        array = UploadedArray(upload.content.dtype, upload.content.shape)
    kind = "array" if isinstance(upload.content, InspectedArray) else "model"
    graph = GRAPH + upload.blob if model else None
    return UploadAnswer(upload.blob, upload.name, upload.size, kind, model, array, graph)
