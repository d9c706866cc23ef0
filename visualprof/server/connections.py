"""Connections that ask for nothing must not lock out those that do."""

from __future__ import annotations

from collections import Counter
from typing import Any

from waitress.channel import HTTPChannel

MOST = 1000  # an agent that waits for work holds one
SPARE = 200  # those that are about to be closed


def limit() -> int:
    """How many this process may hold: half of its files, of which it takes as many as it may have."""
    try:
        import resource
    except ImportError:  # Windows, where select() knows 512
        return 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST if hard == resource.RLIM_INFINITY else min(4 * MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, soft // 2)


class Channel(HTTPChannel):
    """A connection. One too many closes the idlest of the address that has most idle ones.

    What is being answered, a waiting agent included, is not idle. A connection without a whole header is idler than any
    upload; of all others a silent one is.
    """

    server: Any

    def __init__(self, server: Any, sock: Any, addr: Any, adj: Any, map: Any = None) -> None:
        super().__init__(server, sock, addr, adj, map)
        self.parser_class = server.parser
        there = [one for one in map.values() if isinstance(one, Channel) and not one.will_close]
        if len(there) > adj.connection_limit - SPARE:
            idle = [one for one in there if not one.requests and one is not self]
            if idle:
                many = Counter(one.addr[0] for one in idle)
                # Closed in the next turn: this one may still find its socket among the ready ones.
                max(idle, key=lambda one: (many[one.addr[0]], *one.idleness())).will_close = True

    def idleness(self) -> tuple[bool, float]:
        """Greater is idler."""
        request: Any = self.request
        return not (request and request.headers_finished), -self.last_activity
