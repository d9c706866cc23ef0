"""How much memory large profiles take: plain, compressed, and far beyond the machine's memory.

python -m benchmarks.large FOLDER [--huge]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.kinds import written
from benchmarks.rows import Row, Run, measured

PLAIN, COMPRESSED, BEYOND, HUGE_S = 1.0, 1.5, 2 << 30, 20.0


def overview(path: Path) -> Run:
    """`view overview` of a file on two cores, nothing kept from before."""
    with tempfile.TemporaryDirectory(dir=path.parent) as cache:
        command = [sys.executable, "-m", "visualprof", "view", "overview", str(path), "--format", "json"]
        return measured(command, 2, VISUALPROF_CACHE_DIR=cache)


def compressed(path: Path) -> Path:
    """The file as gzip, fastest level."""
    out = path.with_name(f"{path.name}.gz")
    packer = zlib.compressobj(1, wbits=31)
    with path.open("rb") as source, out.open("wb") as file:
        while piece := source.read(1 << 22):
            file.write(packer.compress(piece))
        file.write(packer.flush())
    return out


def bounds(path: Path) -> Iterator[Row]:
    """The peak for a file and for the same file compressed."""
    size = path.stat().st_size
    packed = compressed(path)
    for file, share, label in ((path, PLAIN, "plain"), (packed, COMPRESSED, "gzip")):
        run = overview(file)
        yield Row(
            f"peak memory, {label}, {size / 1e6:,.0f} MB",
            f"{run.peak / 1e6:.0f} MB = {run.peak / size:.2f} x the unpacked file, {run.wall:.2f} s",
            f"at most {share} x",
            run.peak <= share * size,
        )
    packed.unlink()


def beyond(path: Path) -> Iterator[Row]:
    """Time and peak of a file of more than a gigabyte."""
    run = overview(path)
    label = f"ten million events, {path.stat().st_size / 1e6:,.0f} MB: `view overview`, 2 cores"
    yield Row(label, f"{run.wall:.1f} s, CPU {run.cpu:.1f} s", f"at most {HUGE_S:.0f} s", run.wall <= HUGE_S)
    yield Row("its peak memory", f"{run.peak / 1e6:,.0f} MB", f"at most {BEYOND >> 30} GiB", run.peak <= BEYOND)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the files are, or are written")
    parser.add_argument("--huge", action="store_true")
    options = parser.parse_args()
    kind = "huge" if options.huge else "gigabyte"
    for row in (beyond if options.huge else bounds)(written(options.folder, [kind], 1_000_000)[kind]):
        print(row.line(), flush=True)


if __name__ == "__main__":
    main()
