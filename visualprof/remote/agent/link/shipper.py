"""Send a task's log and points while the task runs. If the server is unreachable, they only arrive later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visualprof.remote.agent.errors import StopRequested
from visualprof.remote.agent.link.client import Client, RequestRejected, retry
from visualprof.remote.protocol import Lease

CHUNK_BYTES = 1 << 16
INTERVAL_S = 1.0
MAX_QUEUED_POINTS = 256  # a sweep has 64 sizes


class Shipper:
    """Sends the log and points of one task in a thread; calls `on_stale` when the server no longer knows the lease."""

    def __init__(self, client: Client, lease: Lease, log: Path, on_stale: Callable[[], None]) -> None:
        self._client = client
        self._lease = lease
        self._log = log
        self._on_stale = on_stale
        self._offset = 0
        self._log_full = False
        self._points: list[dict[str, Any]] = []
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)
        self._thread.start()

    def queue_point(self, point: dict[str, Any]) -> None:
        """Queue a point and wake the sender."""
        if len(self._points) < MAX_QUEUED_POINTS:
            self._points.append(point)
            self._wake.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """Send the rest, for at most `timeout_s`. The result contains all of it anyway."""
        self._closing = True
        self._wake.set()
        self._thread.join(timeout_s)
        self._stop.set()

    def _run(self) -> None:
        try:
            while True:
                self._wake.wait(INTERVAL_S)
                self._wake.clear()
                closing = self._closing
                retry(self._ship, self._stop)
                if closing:
                    return
        except StopRequested:
            return
        except RequestRejected:
            self._on_stale()

    def _ship(self) -> None:
        while self._points:
            self._send_point(self._points[0])
            del self._points[0]
        while not self._log_full:
            with self._log.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read(CHUNK_BYTES)
            if chunk:
                self._send_log(chunk)
            if len(chunk) < CHUNK_BYTES:
                return

    def _send_point(self, point: dict[str, Any]) -> None:
        try:
            self._client.post(self._lease.path("points"), point)
        except RequestRejected as error:
            if error.status == 409:
                raise
            # A rejected point is missing only from the live view. The result contains it.

    def _send_log(self, chunk: bytes) -> None:
        try:
            answer = self._client.post(f"{self._lease.path('log')}&offset={self._offset}", chunk)
        except RequestRejected as error:
            if "size" not in error.body:
                if error.status == 409:
                    raise
                self._log_full = True  # the server takes no more; the result contains the log
                return
            answer = error.body
        size = answer.get("size")
        self._offset = size if isinstance(size, int) and size >= 0 else self._offset + len(chunk)
        self._log_full = bool(answer.get("cut"))
