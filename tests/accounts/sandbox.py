"""A sandbox that runs the commands of documents unchanged: their paths, an ordinary user, nothing else writable."""

from __future__ import annotations

import http.client
import http.server
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534
_OWN = {"/proc", "/dev", "/tmp", "/root", "/home", "/run", "/var", "/data", "/etc", "/opt"}
_BASE = sys.base_prefix


def folder(path: Path) -> Path:
    """A folder that the user of the machine may write."""
    path.mkdir(parents=True, exist_ok=True)
    if not os.geteuid():
        os.chown(path, NOBODY, NOBODY)
    return path


def machine(writable: Mapping[str, Path], readable: Mapping[str, Path]) -> list[str]:
    """Return the prefix of a command. The test is skipped without bubblewrap."""
    if not shutil.which("bwrap") or (not os.geteuid() and not shutil.which("setpriv")):
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")
    before = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--tmpfs", "/"]
    mounted = [*writable, *readable, _BASE]
    above = {str(parent) for path in (*mounted, "/etc/x", "/opt/x") for parent in Path(path).parents}
    for path in sorted(above - {"/", "/tmp"}):
        before += ["--perms", "0755", "--dir", path]
    inside = [path for top in ("/", "/etc", "/opt") for path in sorted(Path(top).iterdir()) if str(path) not in _OWN]
    for path in inside:
        if path.is_symlink() and path.parent == Path("/"):
            before += ["--symlink", os.readlink(path), str(path)]
        elif str(path) not in mounted:
            before += ["--ro-bind-try", str(path), str(path)]
    before += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp", "--ro-bind", _BASE, _BASE]
    for option, binds in (("--bind", writable), ("--ro-bind", readable)):
        for outside, here in binds.items():
            before += [option, str(here), outside]
    before += ["--remount-ro", "/"]
    if os.geteuid():
        return before
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*before, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", *user]


@contextmanager
def proxy(to: int, name: str, sender: str) -> Iterator[int]:
    """A proxy with a certificate, as far as the server can tell: its port.

    to: port of the server. name: by which browsers call it. sender: address from which it asks.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do(self) -> None:
            status, headers, body = asked(
                to,
                self.command,
                self.path,
                self.rfile.read(int(self.headers.get("Content-Length", 0))),
                sender,
                {**dict(self.headers), "Host": name, "X-Forwarded-For": self.client_address[0]},
            )
            self.send_response(status)
            for key, value in headers:
                if key not in ("Connection", "Date", "Server"):
                    self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do

        def log_message(self, format: str, *args: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def asked(
    port: int, method: str, path: str, body: bytes, sender: str, headers: Mapping[str, str]
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Send a request from an address of this machine and return the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30, source_address=(sender, 0))
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()
