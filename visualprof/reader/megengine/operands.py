"""Operands of the operators in a MegEngine timeline: tensors from the marks inside them, and parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np

from visualprof.reader.chrome.document import Document
from visualprof.reader.megengine.tensors import enclosing_marks
from visualprof.reader.trace import Ints
from visualprof.reader.trace.builder import TraceBuilder

PARAMETERS = tuple(
    """
    mode pad_h pad_w stride_h stride_w dilate_h dilate_w window_h window_w sparse format compute_mode
    transposeA transposeB axis keepdim data_type fwd_mode param_dim epsilon avg_factor scale bias ndim
    affine eps normalized_dim normalized_size value
    """.split()
)
MAX_TENSORS = 16  # operators with more tensors get no shapes
NUMBER_TEXT = re.compile(r"-?\d{1,18}(\.\d{1,18})?")


def add_operands(doc: Document, builder: TraceBuilder, begin: Ints, end: Ints) -> None:
    """Add shapes, types and parameters as JSON: `operand_shapes`, `input_dtypes`, `result_shapes`, `parameters`.

    Args:
        doc: The file's events.
        builder: Gets the arguments.
        begin: Rows of the begin marks of the operators on the host.
        end: Rows of their end marks.
    """
    if not len(begin):
        return
    for mark, argument in (("Input ", "operand_shapes"), ("Output ", "result_shapes")):
        marks = doc.map_kinds(lambda kind, mark=mark: int(kind.ph == "B" and kind.name.startswith(mark)))
        rows = np.intersect1d(np.flatnonzero(marks), doc.arg("shape")[0])
        owner = enclosing_marks(doc, begin, end, rows).astype(np.int64)
        rows, owner = rows[owner >= 0], owner[owner >= 0]
        pairs = np.stack([doc.arg_at(name, rows, 0).astype(np.int64) for name in ("shape", "dtype")], axis=1)
        kinds, kind = np.unique(pairs, axis=0, return_inverse=True)
        shape_ids: list[int] = kinds[:, 0].tolist()
        type_ids: list[int] = kinds[:, 1].tolist()
        operators, lists = _group_by_operator(owner, kind.ravel())
        _add_json_argument(
            builder, argument, operators, lists, partial(_select, [_parse_shape(doc.texts[i]) for i in shape_ids])
        )
        if mark == "Input ":
            _add_json_argument(
                builder, "input_dtypes", operators, lists, partial(_select, [doc.texts[i] for i in type_ids])
            )
    values = np.stack([doc.arg_at(name, end, 0).astype(np.int64) for name in PARAMETERS], axis=1)
    has_parameters = (values > 0).any(axis=1)
    _add_json_argument(
        builder, "parameters", begin[has_parameters], values[has_parameters], partial(_parameters, doc.texts)
    )


def _group_by_operator(owner: Ints, kind: Ints) -> tuple[Ints, Ints]:
    """Return operators, and the values of each in the order of the file, (n, 16), padded with -1."""
    order = np.argsort(owner, kind="stable")
    operators, first, count = np.unique(owner[order], return_index=True, return_counts=True)
    index = np.arange(len(owner)) - np.repeat(first, count)
    lists = np.full((len(operators), MAX_TENSORS), -1, np.int64)
    fits = index < MAX_TENSORS
    lists[np.repeat(np.arange(len(operators)), count)[fits], index[fits]] = kind[order][fits]
    return operators[count <= MAX_TENSORS], lists[count <= MAX_TENSORS]


def _add_json_argument(
    builder: TraceBuilder, name: str, rows: Ints, lists: Ints, describe: Callable[[list[int]], object]
) -> None:
    """Add an argument of some rows; its text is encoded once per distinct list."""
    if len(rows):
        distinct, index = np.unique(lists, axis=0, return_inverse=True)
        texts = [msgspec.json.encode(describe(values)).decode() for values in distinct.tolist()]
        builder.arg(name, rows, builder.strings(texts)[index.ravel()], text=True)


def _select(table: Sequence[object], indices: list[int]) -> list[object]:
    return [table[index] for index in indices if index >= 0]


def _parse_shape(text: str) -> list[int] | None:
    """Return `{2,3}` as [2, 3], or `None` if the text is not a shape."""
    sizes = text.strip("{}").split(",")
    return [int(side) for side in sizes] if all(re.fullmatch(r"\d{1,15}", side) for side in sizes) else None


def _parameters(words: Sequence[str], values: list[int]) -> dict[str, object]:
    """Return an operator's parameters, without lists, which the profiler writes as `{std::vector}`."""
    texts = {name: words[value] for name, value in zip(PARAMETERS, values, strict=True) if value > 0}
    return {name: _parse_value(text) for name, text in texts.items() if not text.startswith("{")}


def _parse_value(text: str) -> object:
    if not NUMBER_TEXT.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)
