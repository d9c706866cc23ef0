"""Pack recordings of our own: `python -m tests.pack_recordings FOLDER GROUP...`, such as `.recordings traces/paddle`.

Writes `tests/fixtures/recordings/GROUP.tar.xz`. Weights of models are random. They are rounded to a few bits,
which makes the archive a third of its size. Never pack files of other projects: list them in `others.csv`.
"""

from __future__ import annotations

import argparse
import gzip
import io
import tarfile
from pathlib import Path

import numpy as np

from tests.recordings import ARCHIVES, FOREIGN_PATHS

MODELS = (".onnx", ".mge", ".tm", ".pkl", ".npy")
MANTISSA_BITS = 3
MIN_RUN, EDGE = 256, 8  # values


def rounded_weights(data: bytes) -> bytes:
    """Return a model whose long runs of plausible float32 values have fewer mantissa bits.

    The ends of a run stay as they are: they may belong to what is stored next to the weights.
    """
    result = bytearray(data)
    mask = np.uint32(0xFFFFFFFF >> (23 - MANTISSA_BITS) << (23 - MANTISSA_BITS))
    for shift in range(4):
        words = np.frombuffer(data, "<u4", max(0, len(data) - shift) // 4, shift)
        values = np.abs(words.view("<f4"))
        with np.errstate(invalid="ignore"):
            plausible = (values > 1e-9) & (values < 100)
        edges = np.flatnonzero(np.diff(plausible, prepend=False, append=False)).reshape(-1, 2)
        for first, last in edges[edges[:, 1] - edges[:, 0] >= MIN_RUN].tolist():
            run = slice(first + EDGE, last - EDGE)
            result[shift + run.start * 4 : shift + run.stop * 4] = (words[run] & mask).tobytes()
    return bytes(result)


def pack(folder: Path, group: str) -> Path:
    """Write the archive of one group."""
    archive = ARCHIVES / f"{group.replace('/', '-')}.tar.xz"
    with tarfile.open(archive, "w:xz", preset=9) as members:
        for path in sorted((folder / group).rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and name not in FOREIGN_PATHS:
                data = path.read_bytes()
                data = gzip.decompress(data) if path.suffix == ".gz" else data
                data = rounded_weights(data) if path.suffix in MODELS else data
                member = tarfile.TarInfo(name)
                member.size = len(data)
                members.addfile(member, io.BytesIO(data))
    return archive


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="Folder that contains the groups.")
    parser.add_argument("groups", nargs="+", help="Path of a group below the folder.")
    args = parser.parse_args()
    for group in args.groups:
        archive = pack(args.folder, group)
        print(f"{archive.stat().st_size / 1e6:5.2f} MB  {archive.name}")


if __name__ == "__main__":
    main()
