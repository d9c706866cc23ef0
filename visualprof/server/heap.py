"""Return memory that a large answer needed to the operating system."""

from __future__ import annotations

import time

from flask import Flask, g

from visualprof.reader.allocator import trim_heap

_MIN_CPU_S = 0.1  # shorter requests free too little


def install(app: Flask) -> None:
    """Trim the heap after each request that computed for long."""

    def begin() -> None:
        g.cpu_start_s = time.thread_time()

    def end(_: BaseException | None = None) -> None:
        if time.thread_time() - g.get("cpu_start_s", time.thread_time()) > _MIN_CPU_S:
            trim_heap()

    app.before_request(begin)
    app.teardown_request(end)
