"""The processor of this machine."""

from __future__ import annotations

import platform
import re
from pathlib import Path


def cpu_name() -> str:
    """Return the name of the CPU, or of the board if /proc/cpuinfo has no name."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        text = ""
    named = re.search(r"^(?:model name|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    board = Path("/proc/device-tree/model")
    if not named and board.exists():
        return board.read_text("utf-8", "replace").strip("\0\n ")
    return named[1].strip() if named else platform.processor() or platform.machine()
