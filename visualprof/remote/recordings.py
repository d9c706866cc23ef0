"""Names and limits of the files that an agent sends from the runs that it follows, shared by agent and server."""

from __future__ import annotations

import re

RECORDING = re.compile(r"\w[\w.-]{0,149}(\.step\d{1,18}(\.\d{1,6})?\.[\w.]{1,60}\.gz|\.graph\.json)", re.ASCII)
GROWING = re.compile(r"monitor\.jsonl|[\w-]{1,150}\.steps\.bin", re.ASCII)
MAX_FILES = 200  # newest recordings of a run
MAX_TOTAL_BYTES, MAX_FILE_BYTES = 8 << 30, 4 << 30  # all recordings of a run, and one of them
MAX_GROWING_BYTES, MAX_HEAD_BYTES = 64 << 20, 1 << 10  # a growing file, and its first line
MAX_REQUEST_BYTES = 1 << 18  # content of growing files in one request
MAX_LIVE_FILE_BYTES = 1 << 16  # a file in `.live`
