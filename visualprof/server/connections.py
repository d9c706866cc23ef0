"""Keep idle connections from blocking active ones, and log-ins from blocking logged-in users."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import Any

from waitress.channel import HTTPChannel
from waitress.task import ThreadedTaskDispatcher

MAX_CONNECTIONS = 1000  # an agent that waits for work uses one
CLOSING_CONNECTIONS = 200  # connections that are about to be closed
UI_THREADS = 24
AGENT_THREADS = 32  # half of them may wait for work
LOGIN_THREADS = 8  # the log-ins that `Passwords` lets hash or wait, and a thread that rejects the rest


def connection_limit() -> int:
    """Return the maximum number of connections of this process: half of its file descriptors.

    Raise the limit of file descriptors first, as far as allowed.
    """
    try:
        import resource
    except ImportError:  # Windows, where select() supports 512 files
        return 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(4 * MAX_CONNECTIONS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft // 2)


class ThreadPools(ThreadedTaskDispatcher):
    """Threads that answer requests, with separate pools for agents and for log-ins.

    Requests of agents and log-ins often wait for database writes or password hashing. Requests of the web UI, which
    mostly read, must not wait behind them.
    """

    # Response times show that requests wait for a thread; a line per request would fill the log.
    queue_logger = logging.getLogger(f"{__name__}.queue")
    queue_logger.setLevel(logging.ERROR)

    def __init__(self) -> None:
        super().__init__()
        self._agents, self._log_ins = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()
        for pool, threads in ((self._agents, AGENT_THREADS), (self._log_ins, LOGIN_THREADS), (super(), UI_THREADS)):
            pool.set_thread_count(threads)
        self._agents.queue_logger = self._log_ins.queue_logger = self.queue_logger

    def add_task(self, task: Any) -> None:
        """Queue a connection with a request in the pool for its path."""
        request, pool = task.requests[0], super()
        path = request.path or ""
        if path.startswith("/api/v1/agent/"):
            pool = self._agents
        elif request.command == "POST" and path.startswith("/api/v1/session"):
            pool = self._log_ins
        pool.add_task(task)

    def shutdown(self, cancel_pending: bool = True, timeout: int = 5) -> bool:
        """Stop all pools and cancel waiting requests."""
        pools = (self._agents, self._log_ins, super())
        for pool in pools:
            pool.set_thread_count(0)
        ended = [pool.shutdown(cancel_pending, timeout) for pool in pools]
        return all(ended)


class Channel(HTTPChannel):
    """A connection.

    At the limit, a new connection closes the longest-idle connection of the address with the most idle connections. A
    connection with a request in progress, such as a waiting agent, is not idle. A connection without a complete header
    counts as idler than an upload. Among the others, the connection that has been silent longest is the idlest.
    """

    server: Any

    def __init__(self, server: Any, sock: Any, addr: Any, adj: Any, map: Any = None) -> None:
        super().__init__(server, sock, addr, adj, map)
        self._is_rejected = False
        parser: Any = partial(server.parser, addr[0], on_rejected=self._reject)
        self.parser_class = parser
        channels = [channel for channel in map.values() if isinstance(channel, Channel) and not channel.will_close]
        if len(channels) > adj.connection_limit - CLOSING_CONNECTIONS:
            idle = [channel for channel in channels if not channel.requests and channel is not self]
            if idle:
                idle_counts = Counter(channel.addr[0] for channel in idle)
                # Closed in the next iteration of the loop: the current one may still find its socket ready.
                max(idle, key=lambda channel: (idle_counts[channel.addr[0]], *channel.idleness())).will_close = True

    def received(self, data: bytes) -> Any:
        """Read what has arrived. After a rejected request the rest is discarded: it is not another request."""
        return False if self._is_rejected else super().received(data)

    def _reject(self) -> None:
        self._is_rejected = True

    def idleness(self) -> tuple[bool, float]:
        """Return a sort key; a greater key is idler."""
        request: Any = self.request
        return not (request and request.headers_finished), -self.last_activity
