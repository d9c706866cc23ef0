"""Results of SQL and views of an opened profile."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

import visualprof
from tests.conftest import SAMPLES, answer, json_of
from visualprof.api import OpenedProfile
from visualprof.api.results import html_table
from visualprof.errors import BadParameter, MissingData, NotFound
from visualprof.query.errors import QueryError

pytest.importorskip("duckdb")
CNN = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
TRANSFORMER = SAMPLES / "pytorch-h200" / "transformer.pt.trace.json.gz"
SQL = "SELECT name, count(*) AS n, sum(dur) AS total FROM kernel GROUP BY name ORDER BY total DESC, name"


@pytest.fixture(scope="module")
def opened() -> OpenedProfile:
    return visualprof.open(CNN)


def test_all_forms_of_a_result_are_equal(opened: OpenedProfile) -> None:
    result = opened.sql(SQL)
    rows = result.rows
    assert (result.columns, len(result), list(result)) == (["name", "n", "total"], len(rows), rows)
    assert list(csv.reader(io.StringIO(result.csv()))) == [result.columns, *([str(v) for v in row] for row in rows)]
    pytest.importorskip("pandas")
    frame = result.df()
    assert list(frame.itertuples(index=False, name=None)) == rows
    assert str(frame["total"].dtype) == "int64"


def test_arrow_and_polars(opened: OpenedProfile) -> None:
    arrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    result = opened.sql(SQL)
    table = result.arrow()
    assert table.schema.field("total").type == arrow.int64()
    assert list(zip(*table.to_pydict().values(), strict=True)) == result.rows
    assert arrow.table(result).equals(table)  # by the Arrow stream
    assert result.polars().rows() == result.rows
    assert polars.DataFrame(result).rows() == result.rows


def test_columns_of_the_same_name_stay_apart(opened: OpenedProfile) -> None:
    result = opened.sql('SELECT sum(dur), sum(dur), 1 AS "sum(dur)_1" FROM kernel')
    assert len(set(result.columns)) == 3
    pytest.importorskip("pandas")
    assert len(set(result.df().columns)) == 3


def test_parameters_and_stored_queries(opened: OpenedProfile) -> None:
    ((n,),) = opened.sql("SELECT count(*) FROM kernel WHERE dur > $least", {"least": 10_000})
    assert n == sum(row[0] > 10_000 for row in opened.sql("SELECT dur FROM kernel"))
    assert opened.stored("top_kernels").rows[0][0] == opened.sql(SQL).rows[0][0]
    assert opened.stored("kernel_pairs", max_ns=0).rows == []


def test_a_cell_shows_some_rows_and_escapes_names(opened: OpenedProfile) -> None:
    shown = opened.sql("SELECT '<b>' AS name FROM range(100)")._repr_html_()
    assert shown.count("&lt;b&gt;") == 20
    assert "<b>" not in shown
    assert shown.endswith("<p>more rows exist</p>")
    assert repr(opened.sql("SELECT 1 AS a")) == "a\n1"
    assert html_table(["a"], [(None,)], more=False).endswith("<tbody><tr><td></td></tr></tbody></table>")


def test_a_view_has_the_numbers_of_the_command(opened: OpenedProfile) -> None:
    pytest.importorskip("pandas")
    view = opened.view("overview", step=3)
    expected = answer("overview", CNN, step="3")
    assert view.tables["steps"].columns == expected["steps"]
    assert view.df("steps")["kernel_ns"].tolist() == expected["steps"]["kernel_ns"]
    assert view.tables["steps"].kinds["kernel_ns"] == "ns"
    kernels = opened.view("kernel").df()
    assert kernels["total_ns"].sum() == opened.sql("SELECT sum(dur) FROM kernel").rows[0][0]


def test_two_profiles_are_compared(opened: OpenedProfile) -> None:
    pytest.importorskip("pandas")
    difference = visualprof.open([CNN, TRANSFORMER]).diff()
    median_ns = opened.view("overview").df("steps")["total_ns"].median()
    assert json_of(difference.answer)["step"]["base_ns"] == pytest.approx(median_ns, rel=0.2)
    assert len(visualprof.open([CNN, CNN]).diff("kernel").tables) > 0
    with pytest.raises(NotFound, match="no charts"):
        difference.chart("steps")
    with pytest.raises(BadParameter, match="two profiles"):
        opened.diff()


def test_errors_say_what_to_do(opened: OpenedProfile, tmp_path: Path) -> None:
    with pytest.raises(QueryError) as error:
        opened.sql("SELECT duration FROM kernel")
    assert "nearest column is dur" in error.value.hint or "column" in error.value.hint
    with pytest.raises(NotFound, match="no file or folder"):
        visualprof.open(tmp_path / "missing.json")
    with pytest.raises(BadParameter, match="no path"):
        visualprof.open([])
    with pytest.raises(BadParameter, match="shows one run"):
        visualprof.open([CNN, TRANSFORMER]).view("overview")
    with pytest.raises(MissingData, match="no data for the view 'serving'"):
        opened.view("serving")


def test_the_package_and_its_commands_load_neither_duckdb_nor_pandas() -> None:
    program = f"""
import sys, visualprof
from visualprof.cli import main
import visualprof.api, visualprof.server.app, visualprof.remote.agent.agent_main
main(["view", "overview", {str(CNN)!r}])
sys.stdout.flush()
heavy = {{"duckdb", "pandas", "pyecharts", "pyarrow", "polars", "IPython"}} & set(sys.modules)
sys.stderr.write(",".join(sorted(heavy)))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stderr == ""
