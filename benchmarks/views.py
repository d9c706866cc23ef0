"""Measure CPU time and memory of each view of a large profile with cached columns, and the growth per event.

    python -m benchmarks.views FOLDER [--huge] [--against TREE]

`--huge` adds ten million events; `--against` measures another checkout as well. CPU time counts, because
other work on the machine changes it less than the wall time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.kinds import written
from benchmarks.rows import ROOT, Row, Run, measured

VIEWS = ("overview", "findings", "critical", "whatif", "idle", "flame", "operator", "memory", "plan", "all")
MILLION_S, ALL_MILLION_S, GROWTH, ROUNDS = 1.0, 3.0, 1.3, 3


def views(paths: Sequence[Path], trees: Sequence[Path] = (ROOT,)) -> Iterator[Row]:
    """Yield a row per view: CPU seconds for each file and checkout, and the peak memory.

    Args:
        paths: Profiles with one million events, and optionally with ten million.
        trees: Checkouts; the limits apply to the first one.
    """
    with _caches(paths, trees) as caches:
        for view in VIEWS:
            runs = [_least(view, paths[size], *caches[size, number]) for size, number in sorted(caches)]
            figure = "; ".join(f"{run.cpu:.2f} s, {run.peak / 1e6:,.0f} MB" for run in runs)
            limit = ALL_MILLION_S if view == "all" else MILLION_S
            label = f"CPU time and memory of `view {view}`, cached columns"
            yield Row(label, figure, f"at most {limit} s for a million events", runs[0].cpu <= limit)
            if len(paths) > 1:
                growth = runs[len(trees)].cpu / runs[0].cpu / 10
                yield Row(
                    f"growth of `view {view}` per event", f"{growth:.2f} x", f"at most {GROWTH} x", growth <= GROWTH
                )


@contextmanager
def _caches(paths: Sequence[Path], trees: Sequence[Path]) -> Generator[dict[tuple[int, int], tuple[Path, Path]]]:
    """Provide the checkout and a cache with the columns, by number of file and checkout."""
    with tempfile.TemporaryDirectory(dir=paths[0].parent) as folder:
        caches: dict[tuple[int, int], tuple[Path, Path]] = {}
        for size, path in enumerate(paths):
            for number, tree in enumerate(trees):
                caches[size, number] = tree, Path(folder, f"{size}-{number}")
                _run("overview", path, *caches[size, number])
        yield caches


def _least(view: str, path: Path, tree: Path, cache: Path) -> Run:
    """Return the run with the least CPU time, without answers that earlier runs stored."""
    runs: list[Run] = []
    for _ in range(ROUNDS):
        for answer in cache.glob("*.vpanswer"):
            answer.unlink()
        runs.append(_run(view, path, tree, cache))
    return min(runs, key=lambda run: run.cpu)


def _run(view: str, path: Path, tree: Path, cache: Path) -> Run:
    """Run the command with the code of a checkout."""
    command = [sys.executable, "-m", "visualprof", "view", view, str(path), "--format", "json"]
    return measured(command, 2, tree, VISUALPROF_CACHE_DIR=str(cache), PYTHONPATH=os.fspath(tree))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the files are, or are written")
    parser.add_argument("--huge", action="store_true")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout to measure as well")
    options = parser.parse_args()
    kinds = ["generated", "huge"] if options.huge else ["generated"]
    paths = written(options.folder, kinds, 1_000_000)
    trees = [ROOT, options.against.resolve()] if options.against else [ROOT]
    for row in views([paths[kind] for kind in kinds], trees):
        print(row.line(), flush=True)


if __name__ == "__main__":
    main()
