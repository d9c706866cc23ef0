"""Text formats of a load: `1,2,4` lanes, `100,200` runs per second, `p99<=50ms`, and scenarios of MLPerf."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from visualprof.messages import msg
from visualprof.remote.protocol import DEFAULT_PERCENTILE, SCENARIOS, Load
from visualprof.remote.queue.check.load_limits import MAX_STEPS
from visualprof.remote.queue.check.request_json import suggest
from visualprof.remote.queue.draft.forms import DraftError
from visualprof.remote.queue.draft.grammar import EXAMPLES, SEPARATORS, parse_sizes, sizes_text

FIELD = "measure.load"
_SLO = re.compile(r"p(?P<percentile>\d{1,2}(\.\d)?)\s*<=?\s*(?P<limit>\d{1,12}(\.\d+)?)\s*(?P<unit>us|ms|s)")
_RATE = re.compile(r"\d{1,12}(\.\d*)?(e[+-]?\d{1,2})?", re.IGNORECASE)
_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def parse_load(texts: Mapping[str, str]) -> tuple[Load, list[DraftError]]:
    """Return the load of the texts of `LOAD_FIELDS`, and errors."""
    fields, errors = dict[str, Any](), list[DraftError]()
    for name, (field, parse) in LOAD_FIELDS.items():
        try:
            fields |= parse(texts[name].strip()) if texts.get(name) else {}
        except ValueError as error:  # noqa: PERF203 - four fields, each alone
            fault, hint, *_ = (*error.args, "")
            errors.append(DraftError(field, str(fault), str(hint) or None))
    return Load(**fields), errors


def load_texts(load: Load) -> dict[str, str]:
    """Return the texts of a load; "" for defaults."""
    limit = f"p{load.percentile or DEFAULT_PERCENTILE:g}<={load.limit_ms:.15g}ms" if load.limit_ms else ""
    return {
        "concurrency": sizes_text(load.concurrency),
        "rate": ", ".join(f"{rate:.15g}" for rate in load.rates),
        "slo": limit,
        "mlperf": load.mlperf,
    }


def _concurrency(text: str) -> dict[str, Any]:
    try:
        return {"concurrency": parse_sizes(text)}
    except ValueError:
        raise ValueError(msg("queue.no_numbers_lanes", f"{text[:40]!r} are no numbers of lanes"), EXAMPLES) from None


def _rates(text: str) -> dict[str, Any]:
    parts = list(filter(None, SEPARATORS.split(text)))[: MAX_STEPS + 1]
    if wrong := next((part for part in parts if not _RATE.fullmatch(part)), None):
        raise ValueError(
            msg("queue.no_rate_2", f"{wrong[:40]!r} is no rate"),
            msg("queue.runs_second_example_100", "runs a second, for example: 100,200,400"),
        )
    return {"rates": list(map(float, parts))}


def _slo(text: str) -> dict[str, Any]:
    match = _SLO.fullmatch(text)
    if not match:
        raise ValueError(
            msg("queue.no_limit_latency", f"{text[:40]!r} is no limit of the latency"),
            msg("queue.example_p99_50ms", "for example: p99<=50ms"),
        )
    limit = float(match["limit"]) * _MS[match["unit"]]
    if not limit:
        raise ValueError(
            msg("queue.no_run_takes_0", "no run takes 0 s"), msg("queue.example_p99_50ms", "for example: p99<=50ms")
        )
    return {"percentile": float(match["percentile"]), "limit_ms": limit}


def _mlperf(text: str) -> dict[str, Any]:
    if text not in SCENARIOS:
        raise ValueError(
            msg("queue.no_scenario_mlperf", f"{text[:40]!r} is no scenario of MLPerf"), suggest(text, list(SCENARIOS))
        )
    return {"mlperf": text}


# Fields of a draft about the load: path in a request, and parser.
LOAD_FIELDS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "concurrency": (f"{FIELD}.concurrency", _concurrency),
    "rate": (f"{FIELD}.rates", _rates),
    "slo": (f"{FIELD}.limit_ms", _slo),
    "mlperf": (f"{FIELD}.mlperf", _mlperf),
}
