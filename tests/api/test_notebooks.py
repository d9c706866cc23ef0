"""The example notebooks run in a kernel from the first cell to the last, and the magic answers there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, SAMPLES
from visualprof import notebook
from visualprof.api import magic
from visualprof.errors import BadParameter

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
CNN = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_example_runs(path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    for package in ("ipykernel", "pandas", "pyecharts", "duckdb"):
        pytest.importorskip(package)
    document: Any = nbformat.read(path, as_version=4)
    assert all(not cell["outputs"] for cell in document["cells"] if cell["cell_type"] == "code"), "saved with outputs"
    resources = {"metadata": {"path": ROOT}}
    done: Any = nbclient.NotebookClient(document, timeout=300, resources=resources).execute()
    outputs = [output for cell in done["cells"] for output in cell.get("outputs", [])]
    shown = [str(output.get("data", {}).get("text/html", "")) for output in outputs]
    assert any("<table" in text for text in shown)
    if path.stem in ("tour", "roofline"):
        assert any("srcdoc=" in text for text in shown)  # a chart


def test_there_are_four_examples() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["layers", "ranks", "roofline", "tour"]


def test_the_magic_takes_paths_parameters_and_a_name_for_the_result() -> None:
    pytest.importorskip("duckdb")
    namespace: dict[str, Any] = {}
    sql = "SELECT count(*) AS n FROM kernel WHERE dur > $least"
    result = magic.run_cell(namespace, f"sql {CNN} -p least=0 --into answer", sql)
    assert namespace["answer"] is result
    assert result.rows[0][0] > 0
    import visualprof

    namespace["trace"] = visualprof.open(CNN)
    both = magic.run_cell(namespace, f"sql trace {CNN} -p least=0", sql)
    assert both.rows[0][0] == 2 * result.rows[0][0]


@pytest.mark.parametrize("line", ["", "sql", "table x", "sql x --unknown", f"sql {CNN} -p least"])
def test_a_wrong_line_is_explained(line: str) -> None:
    with pytest.raises(BadParameter) as error:
        magic.run_cell({}, line, "SELECT 1")
    assert "%%visualprof sql" in error.value.hint


def test_a_page_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadParameter, match="no page 'kernels'"):
        notebook.show(CNN, page="kernels")
    with pytest.raises(BadParameter, match="first page"):
        notebook.show(CNN, page="kernel", static=True)
