"""Embeddings that a training program logged: their sizes and labels."""

from __future__ import annotations

from dataclasses import dataclass

from visualprof.errors import MissingData
from visualprof.messages import msg
from visualprof.reader.run_data.embeddings import list_embeddings
from visualprof.reader.run_data.run import RunData
from visualprof.views import Params, View
from visualprof.views.answers.kinds import CountColumn, NameColumn, TextColumn
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.run_data.lines import compile_pattern, line_name, needs_run_data


@dataclass(frozen=True)
class EmbeddingsParams(Params):
    """Parameters of the view.

    Attributes:
        tag: Regular expression that a part of the name must match.
    """

    tag: str = ""


class EmbeddingsColumns(Columns):
    """Embeddings, by run, name and step.

    Attributes:
        points: Number of vectors.
        dimensions: Size of a vector.
        labels: Names of the label columns.
    """

    tag: NameColumn
    run: NameColumn
    step: CountColumn
    points: CountColumn
    dimensions: CountColumn
    labels: TextColumn


class EmbeddingsAnswer(Table[EmbeddingsColumns]):
    """Embeddings of the matching names.

    Attributes:
        warnings: Skipped parts of the files.
    """

    warnings: list[str]


def compute(data: RunData, params: EmbeddingsParams) -> EmbeddingsAnswer:
    """Return the embeddings, sorted by line, name and step."""
    pattern = compile_pattern(params.tag)
    sources = [source for source in list_embeddings(data) if pattern.search(source.tag)]
    if not sources:
        raise MissingData(
            msg("views.no_embeddings", "no embedding has a matching name"),
            msg("views.log_embeddings", "log some with `add_embedding` or `add_embeddings`"),
        )
    rows: list[list[object]] = []
    for source in sources:
        embedding = source.load()
        size = embedding.vectors.shape[1]
        labels = ", ".join(filter(None, embedding.header)) or None
        rows.append([source.tag, line_name(source.line, ""), source.step, embedding.total, size, labels])
    return EmbeddingsAnswer(columns=from_rows(EmbeddingsColumns, rows), warnings=data.warnings())


VIEW = View("embeddings", 10, needs_run_data, EmbeddingsParams, compute, subject="data")
