"""Hyper-parameters: the values of a trial, and their types, for TensorBoard's plugin `hparams`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from visualprof.capture.log.fields import content, double, integer
from visualprof.capture.log.messages import metadata

EXPERIMENT, START, END = "_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info"
_TEXT, _SWITCH, _NUMBER = 1, 2, 3  # types of hyper-parameters
_SUCCESS = 1
Parameter = float | bool | str


def plain(parameters: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return hyper-parameters as numbers, booleans and texts; `None` is left out."""
    return {str(name): _plain(value) for name, value in parameters.items() if value is not None}


def _plain(value: Any) -> Parameter:
    value = value.item() if callable(getattr(value, "item", None)) else value
    if isinstance(value, bool | str):
        return value
    return float(value) if isinstance(value, int | float) else str(value)


def values(
    parameters: Mapping[str, Parameter], metrics: Iterable[str], choices: Mapping[str, Sequence[Any]], wall_s: float
) -> list[bytes]:
    """Return the values that describe a trial.

    Args:
        parameters: The hyper-parameters.
        metrics: Tags of the scalars that are results.
        choices: All values that a hyper-parameter can have, where known.
        wall_s: Start of the trial, Unix time.
    """
    parameter_infos = [content(4, _info(name, value, choices.get(name, ()))) for name, value in parameters.items()]
    metric_infos = [content(5, content(1, content(2, tag))) for tag in metrics]
    pairs = [content(1, content(1, name) + content(2, _value(value))) for name, value in parameters.items()]
    return [
        _session(EXPERIMENT, content(2, b"".join(parameter_infos + metric_infos))),
        _session(START, content(3, b"".join(pairs) + double(5, wall_s))),
        _session(END, content(4, integer(1, _SUCCESS) + double(2, wall_s))),
    ]


def _session(tag: str, settings: bytes) -> bytes:
    return content(1, tag) + metadata("hparams", settings)


def _info(name: str, value: Parameter, choices: Sequence[Any]) -> bytes:
    kind = _SWITCH if isinstance(value, bool) else _TEXT if isinstance(value, str) else _NUMBER
    values = b"".join(content(1, _value(_plain(choice))) for choice in choices)
    return content(1, name) + integer(4, kind) + (content(5, values) if choices else b"")


def _value(value: Parameter) -> bytes:
    """Return a `google.protobuf.Value`."""
    if isinstance(value, bool):
        return integer(4, value)
    return content(3, value) if isinstance(value, str) else double(2, value)
