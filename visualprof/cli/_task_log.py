"""Lines of a failed task's log that explain the failure."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Sequence

from visualprof.cli._server import Server
from visualprof.errors import VisualprofError

MAX_LINES = 12
TAIL_BYTES = 48 << 10
_TRACEBACK = re.compile(r"\s*(Traceback \(most recent call last\)|Fatal Python error|Caused by:)")
_ERROR = re.compile(r"\b(\w*Error|\w*Exception|error|fatal|failed|killed|aborted|out of memory)\b", re.IGNORECASE)


def failure_lines(server: Server, task: str, log_bytes: int) -> list[str]:
    """Return the useful lines of a task's log; an unreadable log has none."""
    query = urllib.parse.urlencode({"offset": max(0, log_bytes - TAIL_BYTES)})
    try:
        text = str(server.get(f"tasks/{urllib.parse.quote(task, safe='')}/log?{query}")["text"])
    except VisualprofError:
        return []
    return error_lines(text.splitlines())


def error_lines(lines: Sequence[str], count: int = MAX_LINES) -> list[str]:
    """Return the end of the last traceback, otherwise the lines up to the last error, otherwise the last lines.

    The web UI chooses the same lines (lib/log-errors.ts).
    """
    lines = [line for line in lines if line.strip() and not line.startswith("[agent] ")]
    starts = [i for i, line in enumerate(lines) if _TRACEBACK.match(line)]
    if starts:
        ends = (i for i in range(starts[-1] + 1, len(lines)) if not lines[i][0].isspace())
        return lines[starts[-1] : next(ends, len(lines)) + 1][-count:]
    errors = [i for i, line in enumerate(lines) if _ERROR.search(line)]
    return lines[: errors[-1] + 1 if errors else len(lines)][-count:]
