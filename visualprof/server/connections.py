"""Connections that ask for nothing must not lock out those that do, nor many that log in those that have."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import Any

from waitress.channel import HTTPChannel
from waitress.task import ThreadedTaskDispatcher

MAX_CONNECTIONS = 1000  # an agent that waits for work holds one
CLOSING_CONNECTIONS = 200  # those that are about to be closed
UI_THREADS = 24  # threads
AGENT_THREADS = 32  # of which half may wait for work
LOGIN_THREADS = 8  # those that `Passwords` lets hash or wait for it, and one that refuses the others


def connection_limit() -> int:
    """How many this process may hold: half of its files, of which it takes as many as it may have."""
    try:
        import resource
    except ImportError:  # Windows, where select() knows 512
        return 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(4 * MAX_CONNECTIONS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft // 2)


class ThreadPools(ThreadedTaskDispatcher):
    """Threads that answer, some for agents and some for log-ins alone.

    Many of those wait for their turn to write, or to hash: pages, which mostly read, must not wait behind them.
    """

    # That requests wait for a thread is seen in how long answers take; a line for each would fill the log.
    queue_logger = logging.getLogger(f"{__name__}.queue")
    queue_logger.setLevel(logging.ERROR)

    def __init__(self) -> None:
        super().__init__()
        self._agents, self._log_ins = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()
        for lane, threads in ((self._agents, AGENT_THREADS), (self._log_ins, LOGIN_THREADS), (super(), UI_THREADS)):
            lane.set_thread_count(threads)
        self._agents.queue_logger = self._log_ins.queue_logger = self.queue_logger

    def add_task(self, task: Any) -> None:
        """A connection with a request to be answered."""
        asked, lane = task.requests[0], super()
        path = asked.path or ""
        if path.startswith("/api/v1/agent/"):
            lane = self._agents
        elif asked.command == "POST" and path.startswith("/api/v1/session"):
            lane = self._log_ins
        lane.add_task(task)

    def shutdown(self, cancel_pending: bool = True, timeout: int = 5) -> bool:
        """End all of them, and what waits."""
        lanes = (self._agents, self._log_ins, super())
        for lane in lanes:
            lane.set_thread_count(0)
        ended = [lane.shutdown(cancel_pending, timeout) for lane in lanes]
        return all(ended)


class Channel(HTTPChannel):
    """A connection. One too many closes the idlest of the address that has most idle ones.

    What is being answered, a waiting agent included, is not idle. A connection without a whole header is idler than any
    upload; of all others a silent one is.
    """

    server: Any

    def __init__(self, server: Any, sock: Any, addr: Any, adj: Any, map: Any = None) -> None:
        super().__init__(server, sock, addr, adj, map)
        parser: Any = partial(server.parser, addr[0])
        self.parser_class = parser
        there = [one for one in map.values() if isinstance(one, Channel) and not one.will_close]
        if len(there) > adj.connection_limit - CLOSING_CONNECTIONS:
            idle = [one for one in there if not one.requests and one is not self]
            if idle:
                many = Counter(one.addr[0] for one in idle)
                # Closed in the next turn: this one may still find its socket among the ready ones.
                max(idle, key=lambda one: (many[one.addr[0]], *one.idleness())).will_close = True

    def idleness(self) -> tuple[bool, float]:
        """Greater is idler."""
        request: Any = self.request
        return not (request and request.headers_finished), -self.last_activity
