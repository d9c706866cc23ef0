"""Uploads: models and arrays for jobs; the models are also on the Graph page."""

from __future__ import annotations

import logging
from dataclasses import asdict

import msgspec
from flask import Blueprint, Response, request

from visualprof.errors import VisualprofError
from visualprof.remote.queue.check.inspect import InspectedArray, InspectedModel
from visualprof.remote.queue.service import Remote
from visualprof.remote.queue.uploads import GRAPH, Upload, kept, kept_models, take
from visualprof.server.answers import answer
from visualprof.server.api import job_schema
from visualprof.server.api.models import Entry, Models
from visualprof.server.api.spans import required

_log = logging.getLogger(__name__)


def blueprint(remote: Remote, models: Models) -> Blueprint:
    """The routes; models: those of the Graph page, which then has the uploaded ones too."""
    routes = Blueprint("uploads", __name__, url_prefix="/api/v1")
    models.also(lambda: _entries(remote))

    @routes.post("/uploads")
    def upload() -> Response:
        return answer(_shown(take(remote, required("name"), request.stream.read)), 201)

    @routes.get("/jobs/<job>/files")
    def files(job: str) -> Response:
        wanted = remote.needed("no job was ever submitted here").jobs.one(job).request
        blobs = [wanted.model.blob, *(each.blob for each in wanted.inputs if each.fill == "file")]
        return answer(job_schema.FilesAnswer([_shown(each) for each in kept(remote, blobs)]))

    return routes


def _entries(remote: Remote) -> list[Entry]:
    """The uploaded models; without them the Graph page still has those of the log directories."""
    try:
        found = kept_models(remote)
    except VisualprofError as error:
        _log.warning("uploaded models are not shown: %s", error.error)
        return []
    return [Entry(m.id, m.name, m.path, m.format, "", m.size, m.kept_ns, uploaded=True) for m in found]


def _shown(upload: Upload) -> job_schema.UploadAnswer:
    model, array = None, None
    if isinstance(upload.content, InspectedModel):
        model = msgspec.convert(asdict(upload.content), job_schema.UploadedModel)
    else:
        array = job_schema.UploadedArray(upload.content.dtype, upload.content.shape)
    kind = "array" if isinstance(upload.content, InspectedArray) else "model"
    graph = GRAPH + upload.blob if model else None
    return job_schema.UploadAnswer(upload.blob, upload.name, upload.size, kind, model, array, graph)
