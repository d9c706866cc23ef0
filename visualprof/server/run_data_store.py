"""The run data that the server has read, per run, limited in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from visualprof.errors import BadParameter, MissingData, NotFound
from visualprof.messages import msg
from visualprof.reader.logdir.data_pool import PoolReader
from visualprof.reader.logdir.listing import Run
from visualprof.reader.run_data.run import RunData
from visualprof.server.routes import Query
from visualprof.server.services import Services

MAX_MEMORY_BYTES = 1 << 30
MAX_RUNS = 100
BUDGET_S = 1.0  # a request reads for this long; the next one continues

#: Error responses of all routes of run data.
RUN_DATA_ERRORS = {
    400: "a parameter has a wrong name or value",
    404: "there is no such run",
    409: "the run has no run data",
}

_RUN_IDS = msgspec.json.Decoder(Annotated[list[str], Meta(min_length=1, max_length=MAX_RUNS)])


class RunsQuery(Query):
    """The runs of a request."""

    runs: Annotated[str, Meta(description="ids of at most 100 runs as a JSON list", max_length=100_000)]


def version_of(runs: Mapping[str, RunData]) -> str:
    """Return a text that changes with the data of the runs."""
    return str(hash(tuple((run, data.version) for run, data in runs.items())))


class RunDataStore:
    """Reads the run data of runs and follows their files."""

    def __init__(self, services: Services) -> None:
        self._visible = services.visible
        self._reader = PoolReader(services.logdir.cache)
        self._runs: OrderedDict[str, RunData] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, run_id: str, budget_s: float = BUDGET_S) -> tuple[RunData, bool]:
        """Return the run data of a run that the current user may see, and whether all of it was read.

        Raises:
            NotFound: There is no such run.
            MissingData: The run has no run data.
        """
        run = self._find(run_id)
        files = run.extras.data if run.extras else ()
        if not files:
            raise MissingData(
                msg("server.no_run_data", f"the run {run_id!r} has no run data"),
                msg("views.log_scalars", "log some with the writer of TensorBoard or VisualDL"),
            )
        with self._lock:
            data = self._runs.setdefault(run_id, RunData(self._reader))
            self._runs.move_to_end(run_id)
        is_complete = data.update(files, budget_s)
        self._limit_memory()
        return data, is_complete

    def load_all(self, ids: str) -> tuple[dict[str, RunData], bool]:
        """Return the run data of several runs by id, and whether all of it was read.

        Args:
            ids: Ids of the runs as a JSON list.

        Raises:
            BadParameter: The ids are not a JSON list of at most `MAX_RUNS` texts.
        """
        try:
            run_ids = _RUN_IDS.decode(ids)
        except msgspec.MsgspecError as error:
            problem = msg("server.runs_no_json_list", f"runs must be a JSON list of 1 to {MAX_RUNS} ids")
            raise BadParameter(
                problem, msg("server.ids_listed_api_v1_runs", "ids are listed by /api/v1/runs")
            ) from error
        loaded = {run: self.load(run, BUDGET_S / len(run_ids)) for run in run_ids}
        return {run: data for run, (data, _) in loaded.items()}, all(done for _, done in loaded.values())

    def _find(self, run_id: str) -> Run:
        run = next((run for run in self._visible.listing().runs if run.id == run_id), None)
        if run is None:
            raise NotFound(msg("server.there_no_run_called", f"there is no run called {run_id[:200]!r}"))
        return run

    def _limit_memory(self) -> None:
        """Forget the runs that were not requested for the longest time."""
        with self._lock:
            used = {run: data.memory_bytes for run, data in self._runs.items()}
            total = sum(used.values())
            for run in list(self._runs)[:-1]:
                if total <= MAX_MEMORY_BYTES:
                    break
                total -= used[run]
                del self._runs[run]
