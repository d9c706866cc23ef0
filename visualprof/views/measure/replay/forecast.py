"""Forecasts of changes, as the API returns them."""

from __future__ import annotations

import msgspec

from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns


class StepForecast(msgspec.Struct):
    """Forecast of the step time.

    Attributes:
        measured_ns: The measured step time.
        simulated_ns: Replayed without changes.
        predicted_ns: The measured step time, scaled by the effect of the changes on the replayed step time; null
            without a forecast.
        gain_ns: Measured minus predicted, null without a forecast.
    """

    measured_ns: kinds.Duration
    simulated_ns: kinds.Duration
    predicted_ns: kinds.Duration | None
    gain_ns: kinds.Duration | None
    gain_ratio: kinds.Ratio | None


class ForecastColumns(Columns):
    """Changes that apply to the recording, each on its own, the largest gain first.

    Attributes:
        gain_ns: Savings per step.
    """

    change: kinds.NameColumn
    predicted_ns: kinds.DurationColumn
    gain_ns: kinds.DurationColumn
    gain_ratio: kinds.RatioColumn


def step_forecast(measured: float, simulated: float, predicted: float | None) -> StepForecast:
    """Return the forecast of the step time; arguments in ns."""
    gain = None if predicted is None else measured - predicted
    return StepForecast(
        round(measured),
        round(simulated),
        None if predicted is None else round(predicted),
        None if gain is None else round(gain),
        None if gain is None or not measured else gain / measured,
    )
