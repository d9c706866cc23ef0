"""What an agent sends of the runs that it follows: names and bounds, the same on both sides."""

from __future__ import annotations

import re

RECORDING = re.compile(r"\w[\w.-]{0,149}(\.step\d{1,18}(\.\d{1,6})?\.[\w.]{1,60}\.gz|\.graph\.json)", re.ASCII)
GROWING = re.compile(r"monitor\.jsonl|[\w-]{1,150}\.steps\.bin", re.ASCII)
MAX_FILES, MAX_TOTAL_BYTES, MAX_FILE_BYTES = (
    200,
    8 << 30,
    4 << 30,
)  # recordings of a run, the newest; bytes of them, and of one
MAX_GROWING_BYTES, MAX_HEAD_BYTES = 64 << 20, 1 << 10  # of a growing file, and of its first line
MAX_REQUEST_BYTES = 1 << 18  # bytes of growing files in a request
MAX_LIVE_FILE_BYTES = 1 << 16  # of a file of `.live`
