"""Store the token of a running server, which allows actions, so that the user's commands on this machine find it.

The file is named after the server's address and is not in the log directory. A command knows only the address, and must
not read secrets from a folder that the other side names. The token ends with the server. A process that takes the port
later cannot use tokens that pages or commands still send.
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
    """Return the token of the environment, or a new token."""
    return os.environ.get(TOKEN_VARIABLE, "").strip() or f"vp_s_{secrets.token_urlsafe(24)}"


@contextlib.contextmanager
def publish_token(token: str, addresses: Iterable[str], port: int) -> Generator[None]:
    """Store the token until the block ends, so that commands of this user find it.

    Args:
        token: The token.
        addresses: Addresses on which the server listens.
        port: Port of the server.
    """
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
                if path.read_text() == token:  # not the token of a later server, after this one was killed
                    path.unlink()


def find_token(address: str, port: int) -> str:
    """Return the token of this user's server at an IP address of this machine; "" if there is no such server."""
    try:
        return _file(_connectable(address), port).read_text()
    except OSError:
        return ""


def _connectable(address: str) -> str:
    """Return an address to connect to: the loopback address of a server that listens on all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)


def _file(address: str, port: int) -> Path:
    # Several machines may share a home directory, and their local addresses are the same.
    name = f"{socket.gethostname()}-{address}-{port}".replace(":", "_").replace("/", "_")
    return Path(platformdirs.user_state_dir("visualprof")) / "servers" / name


def _write(path: Path, token: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    part.replace(path)
