"""Sends a task's log and points while it runs. A server that is away delays them and nothing else."""

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
    """Sends for one task, in a thread. stale: called when the server does not know the lease any more."""

    def __init__(self, client: Client, lease: Lease, log: Path, on_stale: Callable[[], None]) -> None:
        self._client = client
        self._lease = lease
        self._log = log
        self._stale = on_stale
        self._offset = 0
        self._cut = False
        self._points: list[dict[str, Any]] = []
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)
        self._thread.start()

    def queue_point(self, point: dict[str, Any]) -> None:
        """Queues a point, which is sent at once."""
        if len(self._points) < MAX_QUEUED_POINTS:
            self._points.append(point)
            self._wake.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is left, for at most `patience_s`; the result holds all of it anyway."""
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
            self._stale()

    def _ship(self) -> None:
        while self._points:
            self._send_point(self._points[0])
            del self._points[0]
        while not self._cut:
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
            # One that the server does not like is missing from the live view; the result has it.

    def _send_log(self, chunk: bytes) -> None:
        try:
            answer = self._client.post(f"{self._lease.path('log')}&offset={self._offset}", chunk)
        except RequestRejected as error:
            if "size" not in error.body:
                if error.status == 409:
                    raise
                self._cut = True  # the server does not want it; the result has the log too
                return
            answer = error.body
        size = answer.get("size")
        self._offset = size if isinstance(size, int) and size >= 0 else self._offset + len(chunk)
        self._cut = bool(answer.get("cut"))
