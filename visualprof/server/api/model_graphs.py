"""The routes for models as graphs."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, unquote

import msgspec
from flask import request
from msgspec import Meta

from visualprof.errors import Forbidden, NotFound
from visualprof.messages import msg
from visualprof.reader.graph import ModelGraph
from visualprof.server.api.models import ModelEntry, Models
from visualprof.server.api.runs import SkippedFile
from visualprof.server.api.spans import check_range, load_trace
from visualprof.server.identity import current_principal
from visualprof.server.routes import READ_ONLY_ERROR, SPAN_ERRORS, Query, Resource, SpanQuery, get, mutation
from visualprof.server.services import Services
from visualprof.views import graph
from visualprof.views.measure.graphs.compare import GraphComparison, compare_graphs
from visualprof.views.measure.graphs.node_times import GraphProfile, measured
from visualprof.views.measure.graphs.recorded_modules import recorded_modules

RECORDED_PREFIX = "modules:"  # of the id of a recording's modules; RUN/WORKER/SPAN follow


class ModelsAnswer(msgspec.Struct):
    """Models of the log directories and uploaded models."""

    models: list[ModelEntry]
    skipped: list[SkippedFile]


class UploadQuery(Query):
    """The name of an upload."""

    name: Annotated[str, Meta(description="name of the file")]


class ModelQuery(Query):
    """A model."""

    model: Annotated[str, Meta(description="id of a model")]
    hint = msg("server.ids_listed_api_v1_models", "ids are listed by /api/v1/models")


class NodeQuery(ModelQuery):
    """A node of a model."""

    node: Annotated[int, Meta(ge=0, description="number of a node")]


class ModelSpanQuery(SpanQuery, kw_only=True):
    """A model and a span."""

    model: Annotated[str, Meta(description="id of a model")]


class ComparisonQuery(ModelQuery):
    """Two models."""

    other: Annotated[str, Meta(description="id of the model to compare with")]


class Graphs(Resource):
    """The routes for models as graphs."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._models = services.get(Models)

    @get("/models", needs="link")
    def models(self) -> ModelsAnswer:
        """List every model."""
        entries, skipped = self._models.listing()
        return ModelsAnswer([model for model, _ in entries], skipped)

    @mutation(
        "POST",
        "/models",
        status=201,
        content="application/octet-stream",
        errors={
            **READ_ONLY_ERROR,
            413: "too large",
            429: "a quota is used up",
            422: SPAN_ERRORS[422],
            503: "too many concurrent uploads",
        },
    )
    def upload_model(self, query: UploadQuery) -> ModelEntry:
        """Upload a model."""
        if self._settings.access.read_only:
            raise Forbidden(
                msg("server.server_read_only_2", "this server is read-only"),
                msg("server.put_file_into_log", "put the file into the log directory"),
            )
        self._visible.check_upload_quota(
            (request.content_length or 0) + self._models.uploaded_bytes(current_principal().user)
        )
        return self._models.save_upload(query.name, request.stream.read)

    @get("/graph", errors=SPAN_ERRORS, needs="link")
    def graph(self, query: ModelQuery) -> graph.Graph:
        """Return a model as a graph."""
        return graph.drawn(self._graph(query.model), query.model)

    @get("/graph/node", errors=SPAN_ERRORS, needs="link")
    def node(self, query: NodeQuery) -> graph.NodeDetails:
        """Return the details of a node."""
        model = self._graph(query.model)
        return graph.node_details(
            model, check_range("node", query.node, len(graph.cached_hierarchy(model).drawn_nodes) - 1)
        )

    @get("/graph/profile", errors=SPAN_ERRORS, needs="link")
    def profile(self, query: ModelSpanQuery) -> GraphProfile:
        """Return the measured times of a model's nodes."""
        model = self._graph(query.model)
        span = self._visible.listing().find(query.run, query.worker, query.span)
        return measured(model, load_trace(self._logdir, span))

    @get("/graph/compare", errors=SPAN_ERRORS, needs="link")
    def comparison(self, query: ComparisonQuery) -> GraphComparison:
        """Compare two models."""
        return compare_graphs(self._graph(query.model), self._graph(query.other))

    def _graph(self, name: str) -> ModelGraph:
        """Return a model, or the modules of a recording, by its id.

        Raises:
            NotFound: There is no such model or recording.
        """
        if not name.startswith(RECORDED_PREFIX):
            return self._models.graph(name)
        parts = [unquote(part) for part in name.removeprefix(RECORDED_PREFIX).split("/")]
        if len(parts) != 3:
            raise NotFound(
                msg("server.there_no_model", f"there is no model {name!r}"),
                msg("server.ids_listed_api_v1_models", "ids are listed by /api/v1/models"),
            )
        return recorded_modules(load_trace(self._logdir, self._visible.listing().find(*parts)))


def recorded_id(query: SpanQuery) -> str:
    """Return the id of the modules of a recording as a model."""
    return RECORDED_PREFIX + "/".join(quote(part, safe="") for part in (query.run, query.worker, query.span))
