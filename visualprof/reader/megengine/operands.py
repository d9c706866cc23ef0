"""What operators of a MegEngine timeline take and give: tensors from the marks inside them, parameters of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np

from visualprof.reader.chrome.document import Document
from visualprof.reader.megengine.tensors import around
from visualprof.reader.trace import Ints
from visualprof.reader.trace.builder import TraceBuilder

PARAMETERS = (
    "mode", "pad_h", "pad_w", "stride_h", "stride_w", "dilate_h", "dilate_w", "window_h", "window_w",
    "sparse", "format", "compute_mode", "transposeA", "transposeB", "axis", "keepdim", "data_type",
    "fwd_mode", "param_dim", "epsilon", "avg_factor", "scale", "bias", "ndim", "affine", "eps",
    "normalized_dim", "normalized_size", "value",
)  # fmt: skip
MOST = 16  # tensors of an operator that is described
NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?")


def add_operands(doc: Document, builder: TraceBuilder, begin: Ints, end: Ints) -> None:
    """Adds shapes, types and parameters as JSON: `operand_shapes`, `input_dtypes`, `result_shapes`, `parameters`.

    Args: begin, end: rows of the marks of the operators on the host.
    """
    if not len(begin):
        return
    for mark, shown in (("Input ", "operand_shapes"), ("Output ", "result_shapes")):
        marks = doc.each_kind(lambda kind, mark=mark: int(kind.ph == "B" and kind.name.startswith(mark)))
        rows = np.intersect1d(np.flatnonzero(marks), doc.arg("shape")[0])
        owner = around(doc, begin, end, rows).astype(np.int64)
        rows, owner = rows[owner >= 0], owner[owner >= 0]
        pairs = np.stack([doc.at(name, rows, 0).astype(np.int64) for name in ("shape", "dtype")], axis=1)
        kinds, kind = np.unique(pairs, axis=0, return_inverse=True)
        shape_ids: list[int] = kinds[:, 0].tolist()
        type_ids: list[int] = kinds[:, 1].tolist()
        operators, lists = _lists(owner, kind.ravel())
        _add(builder, shown, operators, lists, partial(_chosen, [_sides(doc.texts[i]) for i in shape_ids]))
        if mark == "Input ":
            _add(builder, "input_dtypes", operators, lists, partial(_chosen, [doc.texts[i] for i in type_ids]))
    values = np.stack([doc.at(name, end, 0).astype(np.int64) for name in PARAMETERS], axis=1)
    known = (values > 0).any(axis=1)
    _add(builder, "parameters", begin[known], values[known], partial(_parameters, doc.texts))


def _lists(owner: Ints, kind: Ints) -> tuple[Ints, Ints]:
    """Operators, and what each has in the order of the file, (n, 16), -1 where there is no more."""
    order = np.argsort(owner, kind="stable")
    operators, first, count = np.unique(owner[order], return_index=True, return_counts=True)
    place = np.arange(len(owner)) - np.repeat(first, count)
    lists = np.full((len(operators), MOST), -1, np.int64)
    fits = place < MOST
    lists[np.repeat(np.arange(len(operators)), count)[fits], place[fits]] = kind[order][fits]
    return operators[count <= MOST], lists[count <= MOST]


def _add(builder: TraceBuilder, name: str, rows: Ints, lists: Ints, told: Callable[[list[int]], object]) -> None:
    """An argument of some rows, written once for each list that differs."""
    if len(rows):
        distinct, which = np.unique(lists, axis=0, return_inverse=True)
        texts = [msgspec.json.encode(told(one)).decode() for one in distinct.tolist()]
        builder.arg(name, rows, builder.strings(texts)[which.ravel()], text=True)


def _chosen(table: Sequence[object], places: list[int]) -> list[object]:
    return [table[place] for place in places if place >= 0]


def _sides(text: str) -> list[int] | None:
    """`{2,3}` as [2, 3]; None of what is no shape."""
    sides = text.strip("{}").split(",")
    return [int(side) for side in sides] if all(re.fullmatch(r"\d{1,15}", side) for side in sides) else None


def _parameters(words: Sequence[str], values: list[int]) -> dict[str, object]:
    """Parameters of an operator, without lists, which the profiler writes as `{std::vector}`."""
    texts = {name: words[value] for name, value in zip(PARAMETERS, values, strict=True) if value > 0}
    return {name: _value(text) for name, text in texts.items() if not text.startswith("{")}


def _value(text: str) -> object:
    if not NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)
