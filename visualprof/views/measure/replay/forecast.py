"""What a forecast says."""

from __future__ import annotations

import msgspec

from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns


class StepForecast(msgspec.Struct):
    """Of a step on average. simulated_ns: replayed as it is. gain_ns: simulated less predicted, None if none is."""

    measured_ns: kinds.Duration
    simulated_ns: kinds.Duration
    predicted_ns: kinds.Duration | None
    gain_ns: kinds.Duration | None
    gain_ratio: kinds.Ratio | None


class ForecastColumns(Columns):
    """Changes that the recording has something of, each alone, the largest gain first. gain_ns: of a step."""

    change: kinds.NameColumn
    predicted_ns: kinds.DurationColumn
    gain_ns: kinds.DurationColumn
    gain_ratio: kinds.RatioColumn


def step_forecast(measured: float, simulated: float, predicted: float | None) -> StepForecast:
    """Of a step on average, ns."""
    gain = None if predicted is None else simulated - predicted
    return StepForecast(
        round(measured),
        round(simulated),
        None if predicted is None else round(predicted),
        None if gain is None else round(gain),
        None if gain is None or not simulated else gain / simulated,
    )
