"""A visualprof server over HTTP, for the commands that ask one."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from visualprof.errors import BadParameter, VisualprofError
from visualprof.server.hosts import is_address, is_this_machine
from visualprof.server.session_token import HEADER, VARIABLE, found

Json = dict[str, Any]
Progress = Callable[[int, int], None]

TIMEOUT_S = 60.0
TRIES = 5  # of sending a part
UPLOAD_S = 600.0  # of silence: the server may read a large model after it has all of it


class Unreachable(VisualprofError):
    """Nobody answers at the address."""


class Refused(VisualprofError):
    """The server answered with an error. answer: its body."""

    def __init__(self, status: int, answer: Json) -> None:
        super().__init__(str(answer.get("error") or f"the server answered {status}"), str(answer.get("hint") or ""))
        self.status = status
        self.answer = answer


class Server:
    """The API at an address.

    Args:
        address: of the server, or the link that it printed.
        token: of the server; without, that of a printed link, of the environment, or of this user's server here.

    Raises: BadParameter: the address is none.
    """

    def __init__(self, address: str, token: str = "") -> None:
        address = address if "://" in address else f"http://{address}"
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadParameter(f"--server {address!r} is no address", "for example: http://127.0.0.1:8040")
        place, own = _own(parts)
        self.url = f"{parts.scheme}://{place}{parts.path.rstrip('/')}/"
        linked = "".join(urllib.parse.parse_qs(parts.query).get("token", []))
        token = token or linked or os.environ.get(VARIABLE, "").strip() or own
        self._token = {HEADER: token} if token else dict[str, str]()
        self._opener = _opener(parts.hostname)

    def get(self, path: str) -> Json:
        """The answer to a question.

        Raises: Unreachable, Refused.
        """
        return self._ask(urllib.request.Request(f"{self.url}api/v1/{path}", headers=self._token), TIMEOUT_S)

    def post(self, path: str, body: object = None) -> Json:
        """The answer to an order.

        Raises: Unreachable, Refused.
        """
        return self.send("POST", path, body)

    def send(self, method: str, path: str, body: object = None) -> Json:
        """The answer to an order of any method.

        Raises: Unreachable, Refused.
        """
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self._token}
        return self._ask(urllib.request.Request(f"{self.url}api/v1/{path}", data, headers, method=method), TIMEOUT_S)

    def upload(self, path: Path, progress: Progress, **query: str) -> Json:
        """Send a file, if it is not there already; progress gets bytes sent and all of them.

        query: what the server is to know of it.

        Raises: Unreachable, Refused. BadParameter: the file cannot be read.
        """
        try:
            with path.open("rb") as file:
                digest = _sha256(file)
            known = self._known_upload(path, digest, "part" in query)
            if known:
                return known
            size = path.stat().st_size
            if size and self.get("session")["direct"]:
                return self._send_direct(path, {"size_bytes": size, "blob": digest, "part": "part" in query}, progress)
            with path.open("rb") as file:
                body: Any = _Watched(file.read, size, progress)
                headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size), **self._token}
                where = (
                    f"{self.url}api/v1/uploads?{urllib.parse.urlencode({'name': path.name, **query}, errors='replace')}"
                )
                return self._ask(urllib.request.Request(where, body, headers, method="POST"), UPLOAD_S)
        except OSError as error:
            raise BadParameter(f"{path}: {error.strerror or error}", "is the path right?") from error

    def download(self, path: str, target: Path, sha256: str) -> None:
        """Write a file of the server, whole or not at all.

        Raises: Unreachable, Refused. VisualprofError: it cannot be written, or is not what it should be.
        """
        request = urllib.request.Request(f"{self.url}api/v1/{path}", headers=self._token)
        part = target.with_name(f"{target.name}.part")
        try:
            with self._refusals():
                response = self._opener.open(request, timeout=UPLOAD_S)
            with response, part.open("wb") as file:
                more = True
                while more:
                    with self._refusals():
                        piece = response.read(1 << 20)
                    file.write(piece)
                    more = bool(piece)
            with part.open("rb") as file:
                if _sha256(file) != sha256:
                    raise Unreachable(f"{target.name} did not arrive whole", "try again")
            part.replace(target)
        except OSError as error:
            raise BadParameter(f"{target}: {error.strerror or error}", "may it be written?") from error
        finally:
            part.unlink(missing_ok=True)

    def _send_direct(self, path: Path, facts: Json, progress: Progress) -> Json:
        """Send a file to the server's bucket, in parts; what a try before this one sent stays there."""
        way = self.post("uploads/direct", {"name": path.name, **facts})
        where, tries = f"uploads/direct/{way['upload']}", 0
        while way["parts"]:
            have: int = way["have_bytes"]
            try:
                for part in way["parts"]:
                    self._put(path, part, lambda sent, done=have: progress(done + sent, facts["size_bytes"]))
                    have += part["size_bytes"]
            except Unreachable:  # also an address that is too old
                tries += 1
                if tries > TRIES:
                    raise
                time.sleep(tries)
            before, way = way["have_bytes"], self.get(where)
            tries = tries if way["have_bytes"] == before else 0
        order = urllib.request.Request(f"{self.url}api/v1/{where}", b"", self._token, method="POST")
        return self._ask(order, UPLOAD_S)

    def _put(self, path: Path, part: Json, progress: Callable[[int], None]) -> None:
        """Send bytes of a file to an address that is signed: no token goes there.

        Raises: Unreachable: they did not arrive.
        """
        size: int = part["size_bytes"]
        with path.open("rb") as file:
            file.seek(part["offset"])
            left = size

            def read(most: int) -> bytes:
                nonlocal left
                piece = file.read(min(most, left))
                left -= len(piece)
                return piece

            body: Any = _Watched(read, size, lambda sent, _: progress(sent))
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
            request = urllib.request.Request(part["url"], body, headers, method="PUT")
            host = urllib.parse.urlsplit(request.full_url).hostname or ""
            try:
                _opener(host).open(request, timeout=TIMEOUT_S).close()
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(
                    f"the store at {host} takes no file ({error})", "try again: it goes on there"
                ) from None

    def _known_upload(self, path: Path, digest: str, part: bool) -> Json | None:
        """The answer to the upload of a file that the server has."""
        files = self.post("uploads/known", {"blob": digest, "name": path.name, "part": part})["files"]
        return files[0] if files else None

    def _ask(self, request: urllib.request.Request, timeout_s: float) -> Json:
        with self._refusals(), self._opener.open(request, timeout=timeout_s) as response:
            return self._decoded(response.read())

    @contextlib.contextmanager
    def _refusals(self) -> Generator[None]:
        """What can come of asking.

        Raises: Unreachable, Refused.
        """
        try:
            yield
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, self._decoded(error.read())) from None
        except (OSError, urllib.error.URLError) as error:  # also a connection that ends half-way
            why = getattr(error, "reason", error)
            raise Unreachable(
                f"no server answers at {self.url} ({why})",
                "start one: visualprof --logdir runs --with-agent, or name another: --server URL",
            ) from error

    def _decoded(self, body: bytes) -> Json:
        try:
            answer: object = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Unreachable(f"what answers at {self.url} is no visualprof server", "name another: --server URL")
        return cast("Json", answer)


def _opener(host: str) -> urllib.request.OpenerDirector:
    """Ask the environment's proxy, but not for this machine, which it cannot find."""
    return urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_this_machine(host) else []))


class _Watched:
    """A file that tells how much of it was read."""

    def __init__(self, read: Callable[[int], bytes], size: int, progress: Progress) -> None:
        self._read = read
        self._size = size
        self._done = 0
        self._progress = progress

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        piece = self._read(size)
        self._done += len(piece)
        self._progress(self._done, self._size)
        return piece


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which server, and its token."""
    parser.add_argument(
        "--server", default="http://127.0.0.1:8040", metavar="URL", help="Address of the server (default: %(default)s)."
    )
    parser.add_argument(
        "--token",
        default="",
        metavar="T",
        help=(
            f"Token of the server, needed for changes. Set {VARIABLE} to keep it out of the process list "
            "(default: the token of your own server on this machine)."
        ),
    )


def actions_of(parser: argparse.ArgumentParser, required: bool = False) -> Callable[..., argparse.ArgumentParser]:
    """Add an action to a command, after which the server may be named as well as before."""
    after = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    for name in ("--server", "--token"):
        after.add_argument(name, help=argparse.SUPPRESS)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=required)
    return partial(actions.add_parser, parents=[after])


def _own(parts: urllib.parse.SplitResult) -> tuple[str, str]:
    """Where to ask, and the token of this user's server there: `localhost` is then the address that the server has.

    Raises: BadParameter: the port is none.
    """
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise BadParameter(f"--server {parts.netloc!r} is no address", "for example: http://127.0.0.1:8040") from error
    host = parts.hostname or ""
    for address in ("127.0.0.1", "::1") if host == "localhost" else (host,):
        token = found(address, port)
        if token and is_address(address):
            return f"[{address}]:{port}" if ":" in address else f"{address}:{port}", token
    return parts.netloc, ""
