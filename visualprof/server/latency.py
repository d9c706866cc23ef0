"""Measure the recent response times of this process."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass

from flask import Flask, Response, g, request

from visualprof.clock import SYSTEM_CLOCK, Clock
from visualprof.server.guard import required_role

WINDOW_S = 300
_MAX_RESPONSES = 20_000  # the latest ones


@dataclass(frozen=True)
class ResponseStats:
    """Statistics of recent responses.

    Attributes:
        window_s: Length of the window in seconds.
        count: Number of responses.
        p95_ns: 95th percentile of the response time; `None` without responses.
        failed: Number of responses with a server error.
    """

    window_s: int
    count: int
    p95_ns: int | None
    failed: int


class LatencyMeter:
    """The times, durations and failures of recent responses.

    Requests of agents are left out, because agents wait for work on purpose and send large files.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._answers = deque[tuple[float, int, bool]](maxlen=_MAX_RESPONSES)

    def install(self, app: Flask) -> None:
        """Install the meter before all other checks of a request, and after all other changes of a response."""

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
        """Record a response. 503 is not a failure, because it asks the client to retry."""
        self._answers.append((self._clock.monotonic(), took_ns, status >= 500 and status != 503))

    def stats(self) -> ResponseStats:
        """Return the statistics. The percentile is the nearest rank."""
        since = self._clock.monotonic() - WINDOW_S
        recent = [answer for answer in list(self._answers) if answer[0] > since]
        times = sorted(took for _, took, _ in recent)
        p95 = times[math.ceil(0.95 * len(times)) - 1] if times else None
        return ResponseStats(WINDOW_S, len(recent), p95, sum(failed for *_, failed in recent))
