"""JSON of answers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from visualprof.views.answers.encoding import encode


@pytest.mark.parametrize("name", ["plain", "cut \udc80 in half"])
def test_unknown_numbers_are_null_whatever_the_names(name: str) -> None:
    column = np.array([1.5, np.nan, np.inf])
    answer = encode({"name": name, "column": column, "list": [float("nan"), 2], "one": np.float64("-inf")})
    assert json.loads(answer, parse_constant=pytest.fail) == {
        "name": name.encode("utf-8", "replace").decode(), "column": [1.5, None, None], "list": [None, 2], "one": None,
    }  # fmt: skip
