"""Input shapes of a MegEngine timeline, which records them as operands."""

from __future__ import annotations

import pytest

from tests.conftest import SAMPLES, answer
from visualprof.cli import main

RECORDING = SAMPLES / "megengine-train" / "1890.chrome_timeline.json.gz"


def test_operators_are_listed_by_input_shapes() -> None:
    """The linear layers of LeNet have 400, 120, 84 and 10 features; the batch has 8 rows."""
    by_name, by_shape = (answer("operator", RECORDING, group=group)["columns"] for group in ("name", "shape"))
    products = [
        shapes
        for name, shapes in zip(by_shape["name"], by_shape["input_shapes"], strict=True)
        if name == "MatrixMul" and shapes
    ]
    assert {"[[8,400],[120,400]]", "[[8,120],[84,120]]", "[[8,84],[10,84]]"} <= set(products)
    assert sum(by_shape["calls"]) == sum(by_name["calls"])


def test_a_query_has_the_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select count(*) from op where name = 'MatrixMul' and input_shapes = '[[8,84],[10,84]]'"
    assert main(["query", str(RECORDING), sql, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "3"
