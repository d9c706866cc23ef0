"""The most that devices of this machine have reached in measured peaks: a busy moment lowers no peak."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

FILE_NAME = "peaks.json"


def update_best_peak(folder: Path, device: str, precision: str, threads: int, flops: float) -> float:
    """The largest figure measured so far, with this one; kept in the folder where that can be written.

    Args:
        device: its name. threads: that the runtime was held to, 0 none.
        flops: operations a second that were measured now.
    """
    file, key = folder / FILE_NAME, f"{device} {precision} {threads}"
    try:
        kept: dict[str, float] = json.loads(file.read_bytes())
        best = max(float(kept.get(key, 0.0)), flops)
    except (OSError, ValueError, TypeError, AttributeError):
        kept, best = {}, flops
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{FILE_NAME}.part")
        part.write_text(json.dumps({**kept, key: best}), "utf-8")
        part.replace(file)
    return best
