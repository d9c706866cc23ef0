"""Run a server: log directory, parsing processes, application, and waitress in front."""

from __future__ import annotations

import contextlib
import errno
import logging
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from waitress import wasyncore
from waitress.server import BaseWSGIServer, create_server
from waitress.trigger import trigger

from visualprof.errors import VisualprofError
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.parsers import PROCESSES, open_parser
from visualprof.reader.logdir.trace_tasks import TraceTasks
from visualprof.remote.protocol import agent_unsupported_reason
from visualprof.server import connections, session_token
from visualprof.server.parse import parse_into_cache
from visualprof.server.settings import Settings

if TYPE_CHECKING:
    from flask import Flask

    from visualprof.accounts.notifications.sender import NotificationSender
    from visualprof.server.job_service import LocalAgent

_log = logging.getLogger(__name__)

_CLOSE_S = 5
_SWITCH_S = 0.0005  # threads that compute yield after this time, because most threads wait briefly and often
_SILENT_S = 60  # for a connection without a request or with an incomplete request


class Server:
    """A server of log directories, which runs until it is closed.

    Args:
        paths: The log directories.
        port: The port; 0 chooses a free port.
        settings: The settings; their host is the address to bind to.
        ports: Number of ports to try, starting at `port`, until one is free.

    Raises:
        VisualprofError: The address is not available, or an agent is requested on a system that cannot run one.
    """

    def __init__(
        self, paths: Sequence[str | Path], port: int = 8040, settings: Settings | None = None, *, ports: int = 1
    ) -> None:
        self._settings = settings or Settings()
        if self._settings.queue.with_agent and (why := agent_unsupported_reason()):
            raise VisualprofError(why, "leave out --with-agent, and start one on a machine with Linux")
        self._resources = contextlib.ExitStack()
        cache = self._cache()
        engine = self._settings.reading.engine
        self.logdir = LogDirectory(
            paths,
            open_parser(partial(parse_into_cache, cache=cache, parts=engine != PROCESSES), engine),
            cache,
            follow_outside=self._settings.reading.follow_links and not self._settings.access.accounts,
            tasks=TraceTasks(cache),
        )
        if not self._settings.queue.store:
            self.logdir.start()
        # These imports take half a second, in which the files are scanned and the first ones are parsed.
        from visualprof.reader.logdir.models import open_model_reader
        from visualprof.server.app import IDENTIFY_KEY, PREPARE_KEY, create_app
        from visualprof.server.body_limits import RequestParser
        from visualprof.server.job_service import JobService

        self.job_service = JobService(
            self.logdir.home,
            self._settings.queue,
            read_only=self._settings.access.read_only,
            waiters=connections.AGENT_THREADS // 2,
        )
        self.models = open_model_reader(cache)
        if self._settings.queue.store:
            self._show_stored_runs()
        self._resources.callback(self.models.close)
        self._resources.callback(self.job_service.close)
        self._resources.callback(
            self.logdir.close
        )  # first, so that the clean-up of the queue is not reported as changes
        self._sockets: dict[int, Any] = {}
        self._thread: threading.Thread | None = None
        self._agent: LocalAgent | None = None
        self._notifications: NotificationSender | None = None
        app = create_app(self.logdir, self._settings, self.job_service, self.models)
        self._prepare = app.extensions[PREPARE_KEY]
        tries = range(port, min(port + ports, 65536)) if port else [0]
        try:
            self._waitress = self._bind(tries, app=app)
        except VisualprofError:
            self._resources.close()
            raise
        listeners: list[Any] = [socket for socket in self._sockets.values() if isinstance(socket, BaseWSGIServer)]
        for listener in listeners:
            listener.channel_class, listener.parser = (
                connections.Channel,
                partial(RequestParser, app.extensions[IDENTIFY_KEY]),
            )
        self._resources.enter_context(
            session_token.publish_token(self._settings.access.token, self._addresses(), self.port)
        )

    def _show_stored_runs(self) -> None:
        """Add the runs of the bucket to the log directory before its first scan."""
        from visualprof.server.job_service import StoredRuns

        if not self._settings.access.read_only:
            self.logdir.add_remote_source(StoredRuns(self.job_service))
            self.job_service.busy_paths = lambda: self.logdir.busy_paths() | self.models.busy_paths()
        self.logdir.start()

    def _bind(self, ports: Sequence[int], app: Flask, **options: Any) -> Any:
        """Return the HTTP server, bound to the first free port.

        Raises:
            VisualprofError: No port is free, or the address does not belong to this machine.
        """
        host = self._settings.web.host.strip("[]")
        try:
            return create_server(
                app,
                map=self._sockets,
                host=host,
                port=ports[0],
                _dispatcher=connections.ThreadPools(),
                connection_limit=connections.connection_limit() + connections.CLOSING_CONNECTIONS,
                channel_timeout=_SILENT_S,
                cleanup_interval=_SILENT_S // 4,
                channel_request_lookahead=1,  # detects that a waiting agent has disconnected
                clear_untrusted_proxy_headers=False,  # `hosts.original_client` trusts only configured proxies
                asyncore_use_poll=True,  # select() supports only 1024 files
                ident="visualprof",
                **options,
            )
        except (OSError, ValueError) as error:
            self._close_sockets()
            if len(ports) == 1 or not _is_taken(error):
                raise _address_error(f"{host}:{ports[0]}", error) from error
        return self._bind(ports[1:], app, **options)

    @property
    def url(self) -> str:
        """Return the URL for a browser on this machine."""
        host = self._settings.web.host.strip("[]")
        if host in ("", "0.0.0.0", "::"):
            host = "localhost"
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def url_with_token(self) -> str:
        """Return the URL with the token. The web UI stores the token and removes it from the address bar."""
        return self.page_url()

    def page_url(self, page: str = "") -> str:
        """Return the URL of a page with the token, in the fragment: browsers do not send it, so no proxy logs it.

        Args:
            page: Fragment of the page, such as `#/overview?run=a`.
        """
        if not self._settings.access.token:
            return self.url + page
        separator = "&" if "?" in page else "?" if page else "#"
        return f"{self.url}{page}{separator}token={self._settings.access.token}"

    @property
    def needs_first_user(self) -> bool:
        """Whether the server has accounts but no user yet."""
        if not self._settings.access.accounts:
            return False
        from visualprof.accounts.users import has_users

        return not has_users(self.job_service.open().database)

    @property
    def port(self) -> int:
        """Return the port of the server."""
        server: Any = self._waitress  # a name with several addresses has several sockets
        return int(server.effective_port if hasattr(server, "effective_port") else server.effective_listen[0][1])

    def _addresses(self) -> list[str]:
        """Return the addresses on which the server listens."""
        server: Any = self._waitress
        if hasattr(server, "effective_host"):
            return [server.effective_host]
        return [address for address, _ in server.effective_listen]

    def run(self) -> None:
        """Serve until interrupted.

        The process must belong to the server, because this changes the thread switch interval.
        """
        sys.setswitchinterval(_SWITCH_S)
        self.start()
        assert self._thread
        # A separate thread serves, so that an interrupt does not cut off the agent, which reports its end.
        while self._thread.is_alive():
            self._thread.join(1)  # on Windows, an unlimited join cannot be interrupted

    def start(self) -> None:
        """Serve from a separate thread.

        Raises:
            VisualprofError: An agent is requested, but jobs cannot run here.
        """
        self._thread = threading.Thread(target=self._waitress.run, name="http", daemon=True)
        self._thread.start()
        self.job_service.start(self._prepare)
        self._notifications = self._start_notifications()
        if self._settings.queue.with_agent:
            from visualprof.server.job_service import LocalAgent

            self._agent = LocalAgent(self.job_service, self.url)

    def _start_notifications(self) -> NotificationSender | None:
        """Start to notify users of events; return `None` on a server without accounts.

        Raises:
            BadParameter: E-mail would have no sender.
        """
        settings = self._settings
        if not settings.access.accounts:
            return None
        from visualprof.accounts.notifications.sender import NotificationSender
        from visualprof.server.login_providers import create_mailer
        from visualprof.views.measure.reports.regression import find_regressions

        database, compare = (
            self.job_service.open().database,
            partial(find_regressions, margin=settings.notifications.regression_threshold),
        )
        mailer, networks = create_mailer(settings.notifications), settings.notifications.webhook_networks
        lease_s, base_url = settings.queue.lease_s, settings.web.base_url
        post = NotificationSender(database, lease_s, mailer, networks, base_url, compare)
        post.start()
        return post

    def close(self) -> None:
        """Stop everything, including the parsing processes and the agent."""
        if self._notifications:
            self._notifications.close()
        if self._agent:
            self._agent.close()  # first, while the server can still receive its last report
        self.job_service.release_waiters()
        self._waitress.task_dispatcher.shutdown()  # requests in progress still find their sockets
        if self._thread and self._thread.is_alive():
            self._close_from_thread(self._thread)
        self._close_sockets()
        self._resources.close()

    def _close_from_thread(self, thread: threading.Thread) -> None:
        """Close the sockets from the thread that waits for them.

        A pull of the trigger first records what to do, then writes a byte. Another byte may wake the thread in between,
        and the thread then closes the trigger. The byte of this pull would go to a closed descriptor, or to another
        file that reuses its number. So the thread waits until the pull has finished.
        """
        pulled = threading.Event()

        def close(_: object = None) -> None:
            pulled.wait(_CLOSE_S)
            self._close_sockets()

        waker = next((socket for socket in self._sockets.values() if isinstance(socket, trigger)), None)
        if waker:
            waker.pull_trigger(close)
        pulled.set()
        thread.join(_CLOSE_S)

    def _close_sockets(self) -> None:
        for socket in list(self._sockets.values()):
            if isinstance(socket, trigger):
                # A request that outlasts the dispatcher's timeout would write to the trigger when it finishes.
                socket.pull_trigger = _noop_trigger
        wasyncore.close_all(self._sockets, ignore_all=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cache(self) -> Cache:
        cache = Cache.default()
        if cache.is_writable():
            return cache
        folder = self._resources.enter_context(
            tempfile.TemporaryDirectory(prefix="visualprof-", ignore_cleanup_errors=True)
        )
        _log.warning("cannot store parsed traces in %s; they are stored until the server stops", cache.folder)
        return Cache(Path(folder), cache.max_bytes)


def _noop_trigger(thunk: object = None) -> None:
    """Ignore a pull of the trigger after its loop has ended."""


def _is_taken(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EADDRINUSE


def _address_error(address: str, error: Exception) -> VisualprofError:
    if _is_taken(error):
        return VisualprofError(f"{address} is in use", "choose another --port; --port 0 takes a free one")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return VisualprofError(f"cannot listen on {address}: {reason}", "check --host and --port")
