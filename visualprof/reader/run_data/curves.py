"""Counts of precision-recall and ROC curves.

The stored rates are not read, because some writers compute them wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visualprof.reader.protobuf import ProtobufError
from visualprof.reader.run_data.samples import StoredValue
from visualprof.reader.run_data.tensors import tensor_values
from visualprof.reader.trace import Floats


class CurveCounts(NamedTuple):
    """Counts of a classifier's answers by threshold, ascending; all columns are (n,).

    Attributes:
        threshold: Smallest score that counts as positive.
        true_positive: Positive examples with at least this score.
        false_positive: Negative examples with at least this score.
        true_negative: Negative examples below it.
        false_negative: Positive examples below it.
    """

    threshold: Floats
    true_positive: Floats
    false_positive: Floats
    true_negative: Floats
    false_negative: Floats


def parse_curve(value: StoredValue) -> CurveCounts:
    """Return the counts of a precision-recall or ROC curve.

    The thresholds are equally spaced from 0 to 1 in both formats.

    Raises:
        ProtobufError: The value is not such a curve.
    """
    if value.file_kind == "visualdl":
        columns = [np.array(list(value.body.numbers(field)), np.float64) for field in (1, 2, 3, 4)]
    else:
        numbers = tensor_values(value.body)
        columns = list(numbers.reshape(6, -1)[:4]) if len(numbers) % 6 == 0 else []
    if len({len(column) for column in columns}) != 1:
        raise ProtobufError("a curve with columns of different lengths")
    if any(not np.isfinite(column).all() or (column < 0).any() for column in columns):
        raise ProtobufError("a curve with impossible counts")
    true_positive, false_positive, true_negative, false_negative = columns
    threshold = np.linspace(0, 1, len(true_positive))
    return CurveCounts(threshold, true_positive, false_positive, true_negative, false_negative)
