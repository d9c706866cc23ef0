"""Process of one part: `python -m visualprof.gpu_kit.child PART KIND FOLDER` writes the part's result."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from visualprof.gpu_kit import Skip
from visualprof.gpu_kit.runner import RESULT, record_part, without_checks


def main(name: str, kind: str, folder: Path) -> None:
    """Run the part."""
    try:
        result = record_part(name, kind, folder)
    except Skip as skip:
        result = without_checks(name, "skipped", skip.error)
    (folder / RESULT).write_bytes(msgspec.json.encode(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
