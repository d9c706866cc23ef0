"""Hyper-parameters and metrics of trials.

TensorBoard stores hyper-parameters in the metadata of series: a session per folder, and an experiment that names the
metrics. VisualDL stores both in a value. The value of a metric is the last scalar with its name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.run_data.run import RunData
from visualprof.reader.run_data.samples import StoredValue

Setting = str | bool | float
_EXPERIMENT, _SESSION_START, _SESSION_END = 2, 3, 4
_STATUSES = ("", "success", "failure", "running", "ended")


class Trial(NamedTuple):
    """A trial.

    Attributes:
        line: Folder of the trial below the run.
        status: `success`, `failure`, `running` or `ended`; "" if unknown.
        settings: Hyper-parameters by name.
        metrics: Last values of the metrics by name; `None` for a value that is missing or not finite.
    """

    line: str
    status: str
    settings: dict[str, Setting]
    metrics: dict[str, float | None]


class _Metric(NamedTuple):
    group: str
    tag: str

    @property
    def name(self) -> str:
        return f"{self.group}/{self.tag}" if self.group else self.tag


def list_trials(data: RunData) -> list[Trial]:
    """Return the trials of a run, sorted by line."""
    last_values = {(row.line, row.tag): row.last for row in data.scalar_tags()}
    trials = [*_sessions(data, last_values), *_logged_trials(data, last_values)]
    return sorted(trials, key=lambda trial: trial.line)


LastValues = dict[tuple[str, str], float | None]


def _sessions(data: RunData, last_values: LastValues) -> list[Trial]:
    """Return the sessions of TensorBoard's plugin."""
    settings: dict[str, dict[str, Setting]] = {}
    statuses: dict[str, str] = {}
    metrics: list[_Metric] = []
    for line, _, content in data.plugin_contents("hparams"):
        with suppress(ProtobufError):  # a session with damaged metadata has no settings
            message = Message(content)
            if _EXPERIMENT in message:
                metrics += _metrics(message.message(_EXPERIMENT))
            if _SESSION_START in message:
                settings[line] = dict(_settings(message.message(_SESSION_START).messages(1)))
            if _SESSION_END in message:
                status = message.message(_SESSION_END).number(1)
                statuses[line] = _STATUSES[status] if 0 <= status < len(_STATUSES) else ""
    return [
        Trial(line, statuses.get(line, ""), values, _values(line, metrics, last_values))
        for line, values in settings.items()
    ]


def _metrics(experiment: Message) -> list[_Metric]:
    names = (metric.message(1) for metric in experiment.messages(5))
    return [_Metric(name.text(1), name.text(2)) for name in names]


def _settings(entries: Iterable[Message]) -> Iterable[tuple[str, Setting]]:
    """Yield name and value of the entries of a map to `google.protobuf.Value`."""
    for entry in entries:
        value = entry.message(2)
        if 2 in value:
            yield entry.text(1), value.real(2)
        elif 3 in value:
            yield entry.text(1), value.text(3)
        elif 4 in value:
            yield entry.text(1), bool(value.number(4))


def _values(line: str, metrics: Iterable[_Metric], last_values: LastValues) -> dict[str, float | None]:
    folders = {metric: "/".join(part for part in (line, metric.group) if part) for metric in metrics}
    return {metric.name: last_values.get((folder, metric.tag)) for metric, folder in folders.items()}


def _logged_trials(data: RunData, last_values: LastValues) -> list[Trial]:
    """Return the trials that VisualDL logged."""
    trials: list[Trial] = []
    for series in data.samples(("trial",)):
        settings, names = series.decode(len(series.step) - 1, _parse_trial)
        trials.append(Trial(series.line, "", settings, {name: last_values.get((series.line, name)) for name in names}))
    return trials


def _parse_trial(value: StoredValue) -> tuple[dict[str, Setting], list[str]]:
    settings = {entry.text(4): _logged_setting(entry) for entry in value.body.messages(1)}
    return settings, [entry.text(4) for entry in value.body.messages(2)]


def _logged_setting(entry: Message) -> Setting:
    if 3 in entry:
        return entry.text(3)
    return entry.real(2) if 2 in entry else float(entry.number(1))


def setting_number(setting: Setting | None) -> float:
    """Return a setting as a number, NaN for texts and missing settings."""
    return math.nan if setting is None or isinstance(setting, str) else float(setting)
