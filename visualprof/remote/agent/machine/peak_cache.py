"""The best measured peak of each device of this machine. A measurement on a busy machine does not lower it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

FILE_NAME = "peaks.json"


def update_best_peak(folder: Path, device: str, precision: str, threads: int, flops: float) -> float:
    """Return the highest peak measured so far, including this one, and store it if the folder is writable.

    Args:
        folder: Folder of the cache.
        device: Name of the device.
        precision: Such as "fp32".
        threads: Thread limit of the runtime; 0 for none.
        flops: Operations per second of the current measurement.
    """
    file, key = folder / FILE_NAME, f"{device} {precision} {threads}"
    try:
        peaks: dict[str, float] = json.loads(file.read_bytes())
        best = max(float(peaks.get(key, 0.0)), flops)
    except (OSError, ValueError, TypeError, AttributeError):
        peaks, best = {}, flops
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{FILE_NAME}.part")
        part.write_text(json.dumps({**peaks, key: best}), "utf-8")
        part.replace(file)
    return best
