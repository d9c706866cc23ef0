"""A running server: log directory, parsing processes, application, and waitress in front."""

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
_SWITCH_S = 0.0005  # a thread that computes lets others go on after so long: most wait briefly, and often
_SILENT_S = 60  # a connection without a request, or in the midst of one


class Server:
    """Serves log directories until closed.

    Args:
        paths: the log directories.
        port: 0 takes a free one.
        settings: see `Settings`; its host is what the server binds to.
        ports: how many are tried, from `port` on, until one is free.

    Raises: VisualprofError: the address cannot be taken, or an agent is wanted where none runs.
    """

    def __init__(
        self, paths: Sequence[str | Path], port: int = 8040, settings: Settings | None = None, *, ports: int = 1
    ) -> None:
        self._settings = settings or Settings()
        if self._settings.with_agent and (why := agent_unsupported_reason()):
            raise VisualprofError(why, "leave out --with-agent, and start one on a machine with Linux")
        self._resources = contextlib.ExitStack()
        cache = self._cache()
        engine = self._settings.engine
        self.logdir = LogDirectory(
            paths,
            open_parser(partial(parse_into_cache, cache=cache, parts=engine != PROCESSES), engine),
            cache,
            follow_outside=self._settings.follow_links and not self._settings.accounts,
        )
        if not self._settings.store:
            self.logdir.start()
        # Half a second of imports, in which the files are looked into and the first ones read.
        from visualprof.reader.logdir.models import open_model_reader
        from visualprof.server.app import IDENTIFY_KEY, PREPARE_KEY, create_app
        from visualprof.server.body_limits import RequestParser
        from visualprof.server.job_service import open_job_service

        self.job_service = open_job_service(
            self.logdir.home,
            self._settings.data,
            read_only=self._settings.read_only,
            lease_s=self._settings.lease_s,
            waiters=connections.AGENT_THREADS // 2,
            database=self._settings.database,
            store=self._settings.store,
            cache_bytes=self._settings.cache_bytes,
            store_runs=self._settings.store_runs,
        )
        self.models = open_model_reader(cache)
        if self._settings.store:
            self._show_stored_runs()
        self._resources.callback(self.models.close)
        self._resources.callback(self.job_service.close)
        self._resources.callback(self.logdir.close)  # first: what the queue tidies up is no news
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
        listeners: list[Any] = [one for one in self._sockets.values() if isinstance(one, BaseWSGIServer)]
        for listener in listeners:
            listener.channel_class, listener.parser = (
                connections.Channel,
                partial(RequestParser, app.extensions[IDENTIFY_KEY]),
            )
        self._resources.enter_context(session_token.publish_token(self._settings.token, self._addresses(), self.port))

    def _show_stored_runs(self) -> None:
        """Has the log directory show what is in the bucket, too, from its first look on."""
        from visualprof.server.job_service import StoredRuns

        if not self._settings.read_only:
            self.logdir.add_remote_source(StoredRuns(self.job_service))
            self.job_service.busy_paths = lambda: self.logdir.busy_paths() | self.models.busy_paths()
        self.logdir.start()

    def _bind(self, ports: Sequence[int], app: Flask, **options: Any) -> Any:
        """The HTTP server on the first of the ports that is free.

        Raises: VisualprofError: none is, or the address is none of ours.
        """
        host = self._settings.host.strip("[]")
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
                channel_request_lookahead=1,  # tells when an agent that waits is gone
                clear_untrusted_proxy_headers=False,  # `hosts.sender_of` knows whom to trust
                asyncore_use_poll=True,  # select() knows 1024 files
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
        """Where a browser on this machine finds it."""
        host = self._settings.host.strip("[]")
        if host in ("", "0.0.0.0", "::"):
            host = "localhost"
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def url_with_token(self) -> str:
        """The same with the token, which the page keeps and takes out of its address."""
        return f"{self.url}?token={self._settings.token}" if self._settings.token else self.url

    @property
    def needs_first_user(self) -> bool:
        """Should people log in, and does nobody have an account yet?"""
        if not self._settings.accounts:
            return False
        from visualprof.accounts.users import has_users

        return not has_users(self.job_service.open().database)

    @property
    def port(self) -> int:
        """The port that was taken."""
        server: Any = self._waitress  # a name with several addresses has several sockets
        return int(server.effective_port if hasattr(server, "effective_port") else server.effective_listen[0][1])

    def _addresses(self) -> list[str]:
        """Those that it listens on."""
        server: Any = self._waitress
        if hasattr(server, "effective_host"):
            return [server.effective_host]
        return [address for address, _ in server.effective_listen]

    def run(self) -> None:
        """Serve until interrupted. The process is the server's own."""
        sys.setswitchinterval(_SWITCH_S)
        self.start()
        assert self._thread
        # A thread of its own serves: an interruption does not cut off the agent, which reports how it ends.
        while self._thread.is_alive():
            self._thread.join(1)  # on Windows nothing interrupts it

    def start(self) -> None:
        """Serve from a thread of its own.

        Raises: VisualprofError: an agent is wanted, and no job can be run here.
        """
        self._thread = threading.Thread(target=self._waitress.run, name="http", daemon=True)
        self._thread.start()
        self.job_service.start(self._prepare)
        self._notifications = self._start_notifications()
        if self._settings.with_agent:
            from visualprof.server.job_service import LocalAgent

            self._agent = LocalAgent(self.job_service, self.url)

    def _start_notifications(self) -> NotificationSender | None:
        """Tells people of what happens, where there are people.

        Raises: BadParameter: e-mail would have no sender.
        """
        settings = self._settings
        if not settings.accounts:
            return None
        from visualprof.accounts.notifications.sender import NotificationSender
        from visualprof.server.app import create_mailer
        from visualprof.views.measure.regression import find_regressions

        database, compare = (
            self.job_service.open().database,
            partial(find_regressions, margin=settings.regression_threshold),
        )
        networks = settings.webhook_networks
        post = NotificationSender(
            database, settings.lease_s, create_mailer(settings), networks, settings.base_url, compare
        )
        post.start()
        return post

    def close(self) -> None:
        """Ends everything, also the parsing processes and the agent."""
        if self._notifications:
            self._notifications.close()
        if self._agent:
            self._agent.close()  # first, while somebody listens to how it ends
        self.job_service.release_waiters()
        self._waitress.task_dispatcher.shutdown()  # answers under way still find their sockets
        if self._thread and self._thread.is_alive():
            self._close_from_thread(self._thread)
        self._close_sockets()
        self._resources.close()

    def _close_from_thread(self, thread: threading.Thread) -> None:
        """Has the sockets closed by the thread that waits for them.

        A pull first notes what is to be done, and then writes a byte. If somebody else's byte wakes the thread in
        between, it closes the trigger, and our byte would go to a closed descriptor, or to whatever file has its
        number by then. So the thread waits until the pull is over.
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
                # A request that outlasts the dispatcher's patience would write to it when it ends.
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
        _log.warning("cannot keep parsed traces in %s; they are kept until the server ends", cache.folder)
        return Cache(Path(folder), cache.max_bytes)


def _noop_trigger(thunk: object = None) -> None:
    """Pulls a trigger whose loop has ended."""


def _is_taken(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EADDRINUSE


def _address_error(where: str, error: Exception) -> VisualprofError:
    if _is_taken(error):
        return VisualprofError(f"{where} is in use", "choose another --port; --port 0 takes a free one")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return VisualprofError(f"cannot listen on {where}: {reason}", "check --host and --port")
