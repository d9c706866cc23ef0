"""The token of a running server: whoever has it may act. Commands of the same user on the same machine find it.

It is kept by the server's address, not in its log directory: a command knows the address alone, and a folder that
whoever answers there names is nothing to read a secret from. It ends with the server, so that nobody who takes the
port later has any use of what a page or a command still sends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import uuid
from collections.abc import Generator, Iterable
from pathlib import Path

import platformdirs

TOKEN_HEADER = "X-Visualprof-Token"
TOKEN_VARIABLE = "VISUALPROF_TOKEN"
_log = logging.getLogger(__name__)


def choose_token() -> str:
    """That of the environment, else a new one."""
    return os.environ.get(TOKEN_VARIABLE, "").strip() or f"vp_s_{secrets.token_urlsafe(24)}"


@contextlib.contextmanager
def publish_token(token: str, addresses: Iterable[str], port: int) -> Generator[None]:
    """Where commands of this user find it, until the block ends. addresses: that the server listens on."""
    files = [_file(_connectable(address), port) for address in addresses] if token else []
    try:
        for path in files:
            _write(path, token)
    except OSError as error:
        _log.warning("commands on this machine need --token: %s: %s", error.filename, error.strerror)
    try:
        yield
    finally:
        for path in files:
            with contextlib.suppress(OSError):
                if path.read_text() == token:  # not that of a server that came after a kill
                    path.unlink()


def find_token(address: str, port: int) -> str:
    """The token of this user's server at an address (no name) of this machine; "" where there is none."""
    try:
        return _file(_connectable(address), port).read_text()
    except OSError:
        return ""


def _connectable(address: str) -> str:
    """A server on every address is called by its loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)


def _file(address: str, port: int) -> Path:
    # A home may be on several machines, whose addresses are the same.
    name = f"{socket.gethostname()}-{address}-{port}".replace(":", "_").replace("/", "_")
    return Path(platformdirs.user_state_dir("visualprof")) / "servers" / name


def _write(path: Path, token: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    part.replace(path)
