"""How long the answers of this process took lately."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass

from flask import Flask, Response, g, request

from visualprof.server.guard import required_role

WINDOW_S = 300
_MAX_RESPONSES = 20_000  # answers that are remembered; the latest


@dataclass(frozen=True)
class ResponseStats:
    """Of the answers in the last minutes. p95_ns: None without any. failed: with an error of the server's own."""

    window_s: int
    count: int
    p95_ns: int | None
    failed: int


class LatencyMeter:
    """Remembers when answers were ready, how long they took and whether they failed.

    Machines are left out: they wait for work on purpose, and send large files.
    """

    def __init__(self) -> None:
        self._answers = deque[tuple[float, int, bool]](maxlen=_MAX_RESPONSES)

    def install(self, app: Flask) -> None:
        """Before everything else that looks at a request, and after everything else that changes an answer."""

        def begin() -> None:
            g.begun_ns = time.perf_counter_ns()

        def end(response: Response) -> Response:
            if required_role(app, request.endpoint, acts=False) != "agent":
                took = time.perf_counter_ns() - g.begun_ns
                self.add(took, response.status_code)
            return response

        app.before_request(begin)
        app.after_request(end)

    def add(self, took_ns: int, status: int) -> None:
        """An answer is ready. 503 is none of the server's errors: it says when to ask again."""
        self._answers.append((time.monotonic(), took_ns, status >= 500 and status != 503))

    def stats(self) -> ResponseStats:
        """What there is to say of them. The percentile is the nearest rank."""
        since = time.monotonic() - WINDOW_S
        recent = [one for one in list(self._answers) if one[0] > since]
        times = sorted(took for _, took, _ in recent)
        p95 = times[math.ceil(0.95 * len(times)) - 1] if times else None
        return ResponseStats(WINDOW_S, len(recent), p95, sum(failed for *_, failed in recent))
