"""A recording: one or several profiles with their tables, views and charts, for programs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visualprof.api.results import Result, ViewResult
from visualprof.errors import BadParameter, MissingData, NotFound
from visualprof.query.schema import TABLES

if TYPE_CHECKING:
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]

    from visualprof.api.view_chart import ViewChart
    from visualprof.query.engine import Engine
    from visualprof.query.tables import Source
    from visualprof.reader.trace import Trace
    from visualprof.views.answers.table import Answer

PathLike = str | os.PathLike[str]


def open_recording(path: PathLike | Sequence[PathLike], *, worker: str = "", step_range: str = "") -> OpenedProfile:
    """Open a profile, the folder of a run, or several of them.

    Args:
        path: A file, a folder, or a list of these.
        worker: Worker to read (default: all workers of a run).
        step_range: Pattern of the names of ranges to use as steps.

    Raises:
        VisualprofError: A file is missing or cannot be read.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not paths:
        raise BadParameter("there is no path to open", "name a profile or a folder")
    for item in paths:
        if "://" not in os.fspath(item) and not Path(item).exists():
            raise NotFound(f"there is no file or folder {os.fspath(item)!r}")
    return OpenedProfile([os.fspath(item) for item in paths], worker, step_range)


class OpenedProfile:
    """One or several profiles. Everything is read when it is first needed.

    Args:
        paths: Files or folders of runs.
        worker: Worker to read, "" for all workers of a run.
        step_range: Pattern of the names of ranges to use as steps, "" for the steps of the file.

    Attributes:
        paths: Files or folders of runs.
    """

    def __init__(self, paths: Sequence[str], worker: str = "", step_range: str = "") -> None:
        self.paths = list(paths)
        self._worker, self._step_range = worker, step_range

    def __repr__(self) -> str:
        return f"visualprof.open({self.paths if len(self.paths) > 1 else self.paths[0]!r})"

    @property
    def traces(self) -> list[Trace]:
        """Return the columns of each trace, as `visualprof.read_trace` does."""
        return [source.trace for source in self._sources]

    @property
    def events(self) -> pd.DataFrame:
        """Return all events as a pandas frame: the table `slice`."""
        columns = ("id", "ts", "dur", "name", "category", "track_id", "depth", "parent_id", "step_id", "rank", "trace")
        return self.table("slice", columns)

    @property
    def kernels(self) -> pd.DataFrame:
        """Return the kernels of devices as a pandas frame: the table `kernel`."""
        return self.table("kernel")

    @property
    def operators(self) -> pd.DataFrame:
        """Return the operators as a pandas frame: the table `op` without its column `stack`."""
        return self.table("op")

    @property
    def steps(self) -> pd.DataFrame:
        """Return the steps as a pandas frame: the table `step`."""
        return self.table("step")

    @property
    def allocations(self) -> pd.DataFrame:
        """Return the allocations as a pandas frame: the table `allocation` without its column `stack`."""
        return self.table("allocation")

    @property
    def modules(self) -> pd.DataFrame:
        """Return the calls of modules as a pandas frame: the table `module`."""
        return self.table("module")

    @property
    def collectives(self) -> pd.DataFrame:
        """Return the collectives as a pandas frame: the table `collective`."""
        return self.table("collective")

    @property
    def gaps(self) -> pd.DataFrame:
        """Return the gaps between device work as a pandas frame: the table `gap`."""
        return self.table("gap")

    @property
    def scalars(self) -> pd.DataFrame:
        """Return the logged scalars as a pandas frame: the table `scalar`."""
        return self.table("scalar")

    def table(self, name: str, columns: Sequence[str] = ()) -> pd.DataFrame:
        """Return a table of docs/query-schema.md as a pandas frame.

        Numbers that the trace stores as they are share its memory and are read-only.

        Args:
            name: Name of the table. `args` and `trace` are only available in SQL.
            columns: Names of columns (default: all but `stack`; `rank` and `trace` only with several traces).

        Raises:
            NotFound: There is no such table or column.
            MissingData: pandas is not installed.
        """
        from visualprof.api.frames import table_frame

        if name not in TABLES or name in ("args", "trace"):
            raise NotFound(f"there is no table {name!r}", f"tables: {', '.join(TABLES)}")
        for column in columns:
            if column not in TABLES[name].columns:
                raise NotFound(
                    f"the table {name} has no column {column!r}", f"columns: {', '.join(TABLES[name].columns)}"
                )
        return table_frame(self._sources, name, columns)

    def sql(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Result:
        """Run one SELECT statement over the tables of docs/query-schema.md.

        Args:
            sql: The statement.
            parameters: Values of parameters, which the statement writes as $name.

        Raises:
            QueryError: The statement is wrong.
            DuckDbMissing: DuckDB is not installed.
        """
        return Result(self._engine, sql, parameters)

    def stored(self, name: str, **parameters: Any) -> Result:
        """Run a stored query, see `visualprof query --list`.

        Raises:
            NotFound: There is no such query.
        """
        from visualprof.query.stored import stored_query

        chosen = stored_query(name)
        return self.sql(chosen.text, chosen.values({key: str(value) for key, value in parameters.items()}))

    def view(self, name: str, **parameters: Any) -> ViewResult:
        """Compute a view, see docs/views.

        Args:
            name: Name of the view, such as overview or kernel.
            **parameters: Parameters of the view, such as step=5.

        Raises:
            BadParameter: There is no such view or parameter.
            MissingData: The recording has no data for the view.
        """
        answer = self._answer(name, parameters)
        return ViewResult(answer, lambda chart: self.chart(f"{name}.{chart}", **parameters))

    def chart(self, name: str, *, top: int = 10, **parameters: Any) -> ViewChart:
        """Return a chart of a view as a pyecharts chart, which shows itself in notebooks and offline.

        Args:
            name: VIEW.CHART, such as overview.steps.
            top: Number of slices or bars that charts of names show.
            **parameters: Parameters of the view.

        Raises:
            NotFound: There is no such chart.
            MissingData: pyecharts is not installed.
        """
        from visualprof.api.charts import make_chart
        from visualprof.views import view

        view_name, _, chart_name = name.partition(".")
        chosen = view(view_name)
        answer = self._answer(view_name, parameters)
        charts = chosen.charts(answer, chosen.parse(_texts(parameters)), top) if chosen.charts else {}
        if chart_name not in charts:
            raise NotFound(
                f"the view {view_name} has no chart {chart_name!r}", f"charts: {', '.join(charts) or 'none'}"
            )
        return make_chart(charts[chart_name], name)

    def show(self, page: str = "overview", height: int = 800) -> None:
        """Show one page of the web UI below the cell of a notebook, as `visualprof.show` does.

        Args:
            page: Page, such as kernel or trace.
            height: Height of the frame in pixels.

        Raises:
            BadParameter: There is no such page, or the recording has several paths.
            VisualprofError: Neither a server nor a report can be created.
        """
        import visualprof

        visualprof.show(self._only_path(), height, page=page)

    def diff(self, view: str = "overview", **parameters: Any) -> ViewResult:
        """Compare the first path with the second, as `visualprof diff` does.

        Args:
            view: View to compare, such as overview, operator or kernel.
            **parameters: Parameters, such as step=5.

        Raises:
            BadParameter: The recording has not exactly two paths.
        """
        from visualprof.cli._sides import side_of
        from visualprof.views.diff.compare import compare
        from visualprof.views.diff.side import SIDE

        if len(self.paths) != 2:
            raise BadParameter("a comparison needs two profiles", "visualprof.open([base, new]).diff()")
        params = SIDE.parse({"view": view, **_texts(parameters)})
        base, new = (side_of(path, self._worker, params, self._step_range) for path in self.paths)
        return ViewResult(compare(view, base, new, ""))

    def _answer(self, name: str, parameters: Mapping[str, Any]) -> Answer:
        from visualprof.cli.view import compute_view

        path = self._only_path()
        answer = compute_view(name, _texts(parameters), path, self._worker, step_range=self._step_range)
        if answer is None:
            raise MissingData(f"{path} has no data for the view {name!r}")
        return answer

    def _only_path(self) -> str:
        if len(self.paths) > 1:
            raise BadParameter("a view shows one run", "open one path, or use sql() for several")
        return self.paths[0]

    @cached_property
    def _sources(self) -> list[Source]:
        from visualprof.cli.query import open_sources

        return open_sources(self.paths, self._worker, self._step_range)

    @cached_property
    def _engine(self) -> Engine:
        from visualprof.query.engine import Engine

        return Engine(self._sources)


def _texts(parameters: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in parameters.items()}
