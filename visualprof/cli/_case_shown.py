"""Print results of benchmark cases as tables, as JSON, and in FlagPerf's format."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from visualprof.errors import NotFound
from visualprof.reader.results.case import CASE_FILE, CaseResult, read_case, read_cases

if TYPE_CHECKING:
    from visualprof.views.answers.kinds import Kind

Row = dict[str, Any]
COLUMNS: dict[str, Kind] = {
    "run": "name",
    "case": "name",
    "framework": "name",
    "vendor": "name",
    "compiler": "name",
    "precision": "name",
    "batch_size": "count",
    "state": "word",
    "validation_core_per_s": "count",
    "whole_per_s": "count",
    "core_per_s": "count",
    "p50_ns": "ns",
    "accuracy": "word",
    "accuracy_difference": "word",
    "verdict": "word",
    "memory_used_bytes": "bytes",
    "mfu": "ratio",
}
FACTS: dict[str, Kind] = {
    "case": "name",
    "framework": "name",
    "vendor": "name",
    "compiler": "name",
    "device_name": "name",
    "host": "name",
    "precision": "name",
    "batch_size": "count",
    "state": "word",
    "error": "text",
    "hint": "text",
    "e2e_ns": "ns",
    "compile_ns": "ns",
    "flops_per_s": "flop_rate",
    "peak_flops": "flop_rate",
    "peak_source": "text",
    "mfu": "ratio",
    "accuracy_difference": "word",
    "tolerance": "word",
    "verdict": "word",
    "memory_used_bytes": "bytes",
    "memory_total_bytes": "bytes",
    "utilization": "ratio",
    "power_w": "count",
    "energy_j_per_sample": "joule",
}
PASSES: dict[str, Kind] = {
    "pass": "name",
    "whole_per_s": "count",
    "whole_ci": "count",
    "core_per_s": "count",
    "core_ci": "count",
    "accuracy": "word",
    "samples": "count",
    "warmup_n": "count",
    "n": "count",
    "p50_ns": "ns",
    "p90_ns": "ns",
    "p99_ns": "ns",
    "stable": "word",
    "foo_ns": "ns",
    "own": "word",
}
STEPS: dict[str, Kind] = {"name": "name", "state": "word", "took_ns": "ns", "why": "text"}
SETTINGS: dict[str, Kind] = {"key": "name", "value": "text", "origin": "word", "before": "text"}
ACCURACIES = ("accuracy", "accuracy_difference", "tolerance")


def results(folders: list[Path]) -> Iterator[tuple[str, CaseResult]]:
    """Yield the results in folders and their subfolders, each with its path."""
    from visualprof.reader.logdir.scan import LogFile, roots, walk

    for folder in filter(Path.is_dir, folders):
        files = (item for item in walk(roots([folder])[0], follow_outside=True) if isinstance(item, LogFile))
        for below, result in sorted(read_cases(files).items()):
            yield str(folder / below), result


def print_list(args: argparse.Namespace) -> int:
    """Print the shipped cases and the results."""
    from visualprof.cli._watch import table
    from visualprof.remote.cases.folder import read_case as case_of
    from visualprof.remote.cases.folder import shipped_cases

    ship = [{"case": name, "title": case_of(path).title, "folder": str(path)} for name, path in shipped_cases().items()]
    rows = [_row(path, result) for path, result in results([Path(folder) for folder in args.logdir or ["runs"]])]
    if args.format == "json":
        print(json.dumps({"cases": ship, "results": rows}, indent=2))
        return 0
    if ship:
        print(table(ship, {"case": "name", "title": "text"}))
    print(table(_rounded_rows(rows), COLUMNS) if rows else "no results yet: visualprof case run")
    return 0


def print_comparison(args: argparse.Namespace) -> int:
    """Print results side by side: core throughput relative to the first result, and differing settings."""
    from visualprof.cli._watch import table

    runs = list(results([Path(folder) for folder in args.run]))
    if not runs:
        raise NotFound("there is no result of a case", "name folders of runs")
    rows = [_row(path, result) for path, result in runs]
    first = rows[0]["core_per_s"]
    for row in rows:
        row["core_ratio"] = row["core_per_s"] / first if first and row["core_per_s"] else None
    settings = [
        {setting.key: setting.value for setting in result.settings if setting.origin != "host"} for _, result in runs
    ]
    keys = dict.fromkeys(key for values in settings for key in values)
    differing = {
        key: [values.get(key) for values in settings]
        for key in keys
        if len({values_of_run.get(key) for values_of_run in settings}) > 1
    }
    if args.format == "json":
        print(json.dumps({"results": rows, "settings": differing}, indent=2))
        return 0
    print(table(_rounded_rows(rows), {**COLUMNS, "core_ratio": "count"}))
    for key, values in differing.items():
        print(f"{key}: {', '.join('-' if value is None else value for value in values)}")
    return 0


def print_result(args: argparse.Namespace) -> int:
    """Print one result; return 1 if the run did not succeed."""
    result = read_case(Path(args.run) / CASE_FILE) or read_case(Path(args.run))
    if result is None:
        raise NotFound(f"{args.run} is no result of a case", f"the folder of a run, with its {CASE_FILE}")
    print(format_result(result, args.format), end="")
    return 0 if result.state == "succeeded" else 1


def format_result(result: CaseResult, form: str) -> str:
    """Return a result as text.

    Args:
        form: `table`, `json` or `flagperf`.
    """
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(result)).decode() + "\n"
    return flagperf(result) if form == "flagperf" else _tables(result)


def _tables(result: CaseResult) -> str:
    from visualprof.cli._terminal import cell
    from visualprof.cli._watch import table

    (facts,) = _rounded_rows([{key: getattr(result, key) for key in FACTS}])
    lines = [
        f"{key.removesuffix('_ns').replace('_', ' '):22} {cell(kind, facts[key])}"
        for key, kind in FACTS.items()
        if facts[key] not in (None, "")
    ]
    passes = [
        {"pass": name, **msgspec.to_builtins(value)}
        for name in ("validation", "inference")
        if (value := getattr(result, name))
    ]
    blocks = ["\n".join(lines), table(_rounded_rows(passes), PASSES) if passes else ""]
    blocks += [
        table(msgspec.to_builtins(rows), kinds) if rows else ""
        for rows, kinds in ((result.steps, STEPS), (result.settings, SETTINGS))
    ]
    warnings = "\n".join(f"warning: {cell('text', warning)}" for warning in result.warnings)
    return "\n".join(filter(None, (*(block.rstrip("\n") + "\n" for block in blocks if block), warnings))) + "\n"


def _rounded_rows(rows: list[Row]) -> list[Row]:
    """Return rows rounded for display. Two decimals are too few for an accuracy."""
    return [row | {key: f"{row[key]:.4g}" for key in ACCURACIES if row.get(key) is not None} for row in rows]


def _row(path: str, result: CaseResult) -> Row:
    inference, validation = result.inference, result.validation
    shown = inference or validation
    return {
        **{key: getattr(result, key, None) for key in COLUMNS},
        "run": path,
        "validation_core_per_s": validation.core_per_s if validation else None,
        "whole_per_s": shown.whole_per_s if shown else None,
        "core_per_s": shown.core_per_s if shown else None,
        "p50_ns": shown.p50_ns if shown else None,
        "accuracy": shown.accuracy if shown else None,
    }


def flagperf(result: CaseResult) -> str:
    """Return FlagPerf's last line, a Python dictionary, and a table row as in FlagPerf's READMEs."""
    from visualprof.views.measure.reports.cases import flagperf_line, flagperf_table

    return f"{flagperf_line(result)}\n\n{flagperf_table([result])}"
