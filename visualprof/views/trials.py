"""Hyper-parameters and metrics of trials, a row per value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from visualprof.errors import MissingData
from visualprof.messages import msg
from visualprof.reader.run_data.run import RunData
from visualprof.reader.run_data.trials import Setting, list_trials
from visualprof.views import Params, View
from visualprof.views.answers.kinds import CountColumn, NameColumn, TextColumn, WordColumn
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.run_data.lines import line_name, needs_run_data


@dataclass(frozen=True)
class TrialsParams(Params):
    """Parameters of the view.

    Attributes:
        kind: Hyper-parameters, metrics, or both.
    """

    kind: Literal["all", "parameter", "metric"] = "all"


class TrialsColumns(Columns):
    """Hyper-parameters and metrics, by trial.

    Attributes:
        run: Folder of the trial below the run.
        status: `success`, `failure`, `running` or `ended`, or null if unknown.
        kind: `parameter` or `metric`.
        text: The value, if it is a text or a flag.
        value: The value, if it is a number; the last value of a metric.
    """

    run: NameColumn
    status: WordColumn
    kind: WordColumn
    name: NameColumn
    text: TextColumn
    value: CountColumn


class TrialsAnswer(Table[TrialsColumns]):
    """Trials.

    Attributes:
        warnings: Skipped parts of the files.
    """

    warnings: list[str]


def compute(data: RunData, params: TrialsParams) -> TrialsAnswer:
    """Return hyper-parameters and metrics, sorted by trial."""
    trials = list_trials(data)
    if not trials:
        raise MissingData(
            msg("views.no_trials", "there are no trials"),
            msg("views.log_trials", "log hyper-parameters with `add_hparams`"),
        )
    rows: list[list[object]] = []
    for trial in trials:
        start: list[object] = [line_name(trial.line, ""), trial.status or None]
        if params.kind != "metric":
            rows += [
                [*start, "parameter", name, _text(value), _number(value)] for name, value in trial.settings.items()
            ]
        if params.kind != "parameter":
            rows += [[*start, "metric", name, None, value] for name, value in trial.metrics.items()]
    return TrialsAnswer(columns=from_rows(TrialsColumns, rows), warnings=data.warnings())


def _text(value: Setting) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else None


def _number(value: Setting) -> float | None:
    return None if isinstance(value, bool | str) else value


VIEW = View("trials", 9, needs_run_data, TrialsParams, compute, subject="data")
