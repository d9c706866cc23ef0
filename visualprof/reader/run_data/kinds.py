"""The kinds of logged values other than scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from visualprof.reader.run_data import events, records
from visualprof.reader.run_data.framing import Kind

SampleKind = Literal["image", "audio", "text", "histogram", "pr_curve", "roc_curve", "trial", "embedding", "layout"]
DataKind = Literal[SampleKind, "scalar"]

_EVENT_FIELDS: Mapping[int, SampleKind] = {
    events.IMAGE: "image",
    events.HISTOGRAM: "histogram",
    events.AUDIO: "audio",
}
_PLUGINS: Mapping[str, SampleKind] = {
    "images": "image",
    "audio": "audio",
    "text": "text",
    "histograms": "histogram",
    "pr_curves": "pr_curve",
    "roc_curves": "roc_curve",
    "custom_scalars": "layout",
}
_RECORD_FIELDS: Mapping[int, SampleKind] = {
    records.IMAGE: "image",
    records.AUDIO: "audio",
    records.TEXT: "text",
    records.HISTOGRAM: "histogram",
    records.PR_CURVE: "pr_curve",
    records.ROC_CURVE: "roc_curve",
    records.HPARAM: "trial",
    records.EMBEDDINGS: "embedding",
}


def sample_kind(file_kind: Kind, plugin: str, field: int) -> SampleKind | None:
    """Return the kind of a value, `None` for values that no page shows.

    Args:
        file_kind: Format of the file.
        plugin: Plugin of the series, "" if unknown.
        field: Number of the field that holds the value.
    """
    if file_kind == "visualdl":
        return _RECORD_FIELDS.get(field)
    return _PLUGINS.get(plugin) if field == events.TENSOR else _EVENT_FIELDS.get(field)
