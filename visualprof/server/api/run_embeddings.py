"""Embeddings of runs: labels, pictures, neighbors, and projections that are computed in child processes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from flask import Response
from msgspec import Meta

from visualprof.errors import FormatError, NotFound
from visualprof.messages import msg
from visualprof.reader.run_data.embeddings import MAX_FILE_BYTES, Embedding, EmbeddingSource, list_embeddings
from visualprof.reader.run_data.media import MAX_PIXELS, image_head
from visualprof.server.projections import Projections
from visualprof.server.responses import bytes_response
from visualprof.server.routes import Query, Resource, get, mutation
from visualprof.server.run_data_store import RUN_DATA_ERRORS, RunDataStore, RunsQuery
from visualprof.server.services import Services
from visualprof.views.answers.kinds import CountColumn
from visualprof.views.measure.run_data.lines import line_name
from visualprof.views.measure.run_data.projection import (
    MAX_TSNE_POINTS,
    Method,
    Metric,
    ProjectionRequest,
    available_methods,
    nearest,
)

_MAX_LOADED = 4
_ERRORS = RUN_DATA_ERRORS | {404: "there is no such run or embedding", 422: "the embedding is damaged"}


class EmbeddingQuery(Query):
    """An embedding."""

    run: Annotated[str, Meta(description="id of a run")]
    line: Annotated[str, Meta(description="name of a line, `.` for the run's own folder", max_length=4096)]
    tag: Annotated[str, Meta(description="name of an embedding", max_length=1024)]
    step: Annotated[int, Meta(description="the step; absent if unknown")] | None = None


class ProjectionQuery(EmbeddingQuery, kw_only=True):
    """An embedding and a projection."""

    method: Annotated[Method, Meta(description="method")] = "pca"
    dimensions: Annotated[Literal["2", "3"], Meta(description="dimensions of the positions")] = "2"
    perplexity: Annotated[float, Meta(ge=2, le=100, description="number of neighbors that t-SNE tries to keep")] = 30.0


class NeighborsQuery(EmbeddingQuery, kw_only=True):
    """An embedding and a point."""

    point: Annotated[int, Meta(ge=0, description="index of the point")]
    count: Annotated[int, Meta(ge=1, le=200, description="number of neighbors")] = 20
    metric: Annotated[Metric, Meta(description="distance")] = "cosine"


class EmbeddingLine(msgspec.Struct):
    """An embedding.

    Attributes:
        run: Id of the run.
        line: Name of the line within the run.
        tag: Name of the embedding.
        step: The step, or null if unknown.
    """

    run: str
    line: str
    tag: str
    step: int | None


class EmbeddingsList(msgspec.Struct):
    """Embeddings of runs.

    Attributes:
        complete: Whether all files were read; if not, ask again.
        embeddings: The embeddings.
    """

    complete: bool
    embeddings: list[EmbeddingLine]


class SpriteSize(msgspec.Struct):
    """Size of the pictures in the image of all points, in pixels."""

    width: int
    height: int


class EmbeddingDescription(msgspec.Struct):
    """An embedding without its vectors.

    Attributes:
        points: Number of points that are shown.
        total: Number of points in the file.
        dimensions: Size of the vectors.
        header: Names of the label columns; a single name may be empty.
        labels: Labels per point.
        sprite: Size of the points' pictures, or null without any.
        methods: Available methods.
        max_tsne_points: Points that t-SNE projects; it leaves out the others evenly.
    """

    points: int
    total: int
    dimensions: int
    header: list[str]
    labels: list[list[str]]
    sprite: SpriteSize | None
    methods: list[Method]
    max_tsne_points: int


class ProjectionAnswer(msgspec.Struct, kw_only=True):
    """A projection.

    Attributes:
        state: The state; ask again while it is running.
        progress: Share that is done, 0..1.
        error: The problem, or null.
        axes: Positions of the points per dimension, null for points that are left out; empty until ready.
        explained: Share of the variance per dimension, for PCA.
    """

    state: Literal["running", "ready", "failed", "canceled"]
    progress: float
    error: str | None = None
    axes: list[CountColumn] = []
    explained: list[float] = []


class NeighborsAnswer(msgspec.Struct):
    """The nearest neighbors of a point.

    Attributes:
        point: Indexes of the neighbors, the nearest first.
        distance: Their distances, or null if unknown.
    """

    point: CountColumn
    distance: CountColumn


class CancelProjectionAnswer(msgspec.Struct):
    """Whether a projection was canceled.

    Attributes:
        canceled: Whether it was running.
    """

    canceled: bool


class CancelProjectionRequest(msgspec.Struct, kw_only=True):
    """The projection to cancel, as in its query."""

    run: str
    line: str
    tag: str
    step: int | None = None
    method: Method = "pca"
    dimensions: Literal["2", "3"] = "2"
    perplexity: float = 30.0


class RunEmbeddings(Resource):
    """The routes for embeddings."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._store = services.get(RunDataStore)
        self._projections = services.get(Projections)
        self._loaded: OrderedDict[tuple[object, ...], Embedding] = OrderedDict()
        self._lock = threading.Lock()

    @get("/data/embeddings", errors=RUN_DATA_ERRORS, needs="link")
    def embeddings(self, query: RunsQuery) -> EmbeddingsList:
        """List the embeddings of runs."""
        runs, is_complete = self._store.load_all(query.runs)
        sources = [(run, source) for run, data in runs.items() for source in list_embeddings(data)]
        lines = [EmbeddingLine(run, line_name(source.line, ""), source.tag, source.step) for run, source in sources]
        return EmbeddingsList(is_complete, lines)

    @get("/data/embedding", errors=_ERRORS, needs="link")
    def embedding(self, query: EmbeddingQuery) -> EmbeddingDescription:
        """Describe an embedding: its sizes and labels."""
        source = self._find(query)
        embedding = self._load(source)
        return EmbeddingDescription(
            points=len(embedding.vectors),
            total=embedding.total,
            dimensions=embedding.vectors.shape[1],
            header=embedding.header,
            labels=embedding.labels,
            sprite=SpriteSize(source.sprite.width, source.sprite.height) if source.sprite else None,
            methods=available_methods(),
            max_tsne_points=MAX_TSNE_POINTS,
        )

    @get("/data/sprite", media=("image/png",), errors=_ERRORS, needs="link")
    def sprite(self, query: EmbeddingQuery) -> Response:
        """Return the image with the pictures of all points."""
        source = self._find(query)
        if source.sprite is None:
            raise NotFound(msg("server.no_sprite", "the embedding has no pictures"))
        path = Path(source.sprite.path)
        content = path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else b""
        head = image_head(memoryview(content))
        if head.width * head.height > MAX_PIXELS:
            raise FormatError(
                msg(
                    "server.image_too_large",
                    f"the image has {head.width:,} x {head.height:,} pixels, which is too large to show",
                )
            )
        return bytes_response(content, head.mime)

    @get("/data/neighbors", errors=_ERRORS, needs="link")
    def neighbors(self, query: NeighborsQuery) -> NeighborsAnswer:
        """Return the nearest neighbors of a point in all dimensions."""
        vectors = self._load(self._find(query)).vectors
        if query.point >= len(vectors):
            raise NotFound(msg("server.no_such_point", f"there is no such point (number of points: {len(vectors):,})"))
        point, distance = nearest(vectors, query.point, query.count, query.metric)
        return NeighborsAnswer(point, distance)

    @get("/data/projection", errors=_ERRORS, needs="link")
    def projection(self, query: ProjectionQuery) -> ProjectionAnswer:
        """Return a projection; the first request starts it."""
        source = self._find(query)
        path = source.tensor_path or (source.series.files[0].path if source.series else "")

        def prepare() -> ProjectionRequest:
            return ProjectionRequest(
                vectors=self._load(source).vectors,
                method=query.method,
                dimensions=int(query.dimensions),
                perplexity=query.perplexity,
            )

        job = self._projections.start(_key(source, query), path, prepare)
        if job.result is None:
            return ProjectionAnswer(
                state=job.state, progress=job.progress, error=job.failure.error if job.failure else None
            )
        position = job.result.position.astype(np.float64)
        axes: list[CountColumn] = [np.round(position[:, axis], 5) for axis in range(position.shape[1])]
        return ProjectionAnswer(state=job.state, progress=1.0, axes=axes, explained=job.result.explained)

    @mutation("POST", "/data/projection/cancel", errors=_ERRORS, needs="link")
    def cancel(self, body: CancelProjectionRequest) -> CancelProjectionAnswer:
        """Cancel a projection."""
        query = ProjectionQuery(**msgspec.structs.asdict(body))
        return CancelProjectionAnswer(self._projections.cancel(_key(self._find(query), query)))

    def _find(self, query: EmbeddingQuery) -> EmbeddingSource:
        """Return the embedding of a request.

        Raises:
            NotFound: There is no such embedding.
        """
        data, _ = self._store.load(query.run)
        for source in list_embeddings(data):
            if (line_name(source.line, ""), source.tag, source.step) == (query.line, query.tag, query.step):
                return source
        raise NotFound(msg("server.no_such_embedding", f"there is no embedding called {query.tag[:200]!r}"))

    def _load(self, source: EmbeddingSource) -> Embedding:
        """Return an embedding; the last ones are cached."""
        with self._lock:
            version = source.version
            embedding = self._loaded.get(version)
            if embedding is None:
                embedding = self._loaded[version] = source.load()
            self._loaded.move_to_end(version)
            if len(self._loaded) > _MAX_LOADED:
                self._loaded.popitem(last=False)
        return embedding


def _key(source: EmbeddingSource, query: ProjectionQuery) -> tuple[object, ...]:
    """Return a key that changes with the vectors and the settings of a projection."""
    perplexity = query.perplexity if query.method == "tsne" else None
    return (query.run, *source.version, query.method, query.dimensions, perplexity)
