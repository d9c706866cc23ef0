"""A background thread that is restarted if it ends with an error."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)
_FIRST_DELAY_S, _MAX_DELAY_S, _POLL_S = 1.0, 60.0, 0.1


class SupervisedThread(threading.Thread):
    """A daemon thread that logs an error of its function and calls the function again.

    A loop without its thread would fail silently: nothing is scanned, no lost task is requeued, no mail is sent.

    Args:
        target: The loop. Its normal end ends the thread.
        name: Name of the thread.
        is_closed: Whether the owner has been closed; then the function is not called again.
        first_delay_s: Pause before the first restart; each further pause is twice as long, at most a minute.
    """

    def __init__(
        self,
        target: Callable[[], object],
        name: str,
        is_closed: Callable[[], bool],
        first_delay_s: float = _FIRST_DELAY_S,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._function, self._is_closed, self._delay_s = target, is_closed, first_delay_s

    def run(self) -> None:
        """Call the function until it ends normally or the owner is closed."""
        delay_s = self._delay_s
        while True:
            began = time.monotonic()
            try:
                self._function()
                return
            except Exception:  # noqa: BLE001 - whatever it was, the loop must go on
                if self._is_closed():
                    return
                if time.monotonic() - began > _MAX_DELAY_S:  # it worked for a while
                    delay_s = self._delay_s
                _log.exception("the thread %s failed and is restarted in %g s", self.name, delay_s)
            deadline = time.monotonic() + delay_s
            while time.monotonic() < deadline:
                if self._is_closed():
                    return
                time.sleep(min(_POLL_S, self._delay_s))
            delay_s = min(2 * delay_s, _MAX_DELAY_S)
