"""HTTP client of a visualprof server, for the commands that need one."""

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
from visualprof.server.hosts import is_ip_address, is_loopback
from visualprof.server.session_token import TOKEN_HEADER, TOKEN_VARIABLE, find_token

Json = dict[str, Any]
Progress = Callable[[int, int], None]

TIMEOUT_S = 60.0
TRIES = 5  # attempts to send a part
UPLOAD_S = 600.0  # without an answer: the server reads a large model after the upload


class Unreachable(VisualprofError):
    """The server does not answer."""


class Refused(VisualprofError):
    """The server answered with an error.

    Attributes:
        answer: Body of the answer.
    """

    def __init__(self, status: int, answer: Json) -> None:
        super().__init__(str(answer.get("error") or f"the server answered {status}"), str(answer.get("hint") or ""))
        self.status = status
        self.answer = answer
        self.docs_page = str(answer.get("page") or "")


class Server:
    """Client of the API at an address.

    Args:
        address: Address of the server, or the link that it printed.
        token: Token of the server (default: from the printed link, the environment, or your own server on this
            machine).

    Raises:
        BadParameter: The address is invalid.
    """

    def __init__(self, address: str, token: str = "") -> None:
        address = address if "://" in address else f"http://{address}"
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadParameter(f"--server {address!r} is no address", "for example: http://127.0.0.1:8040")
        place, own_token = _local_server(parts)
        self.url = f"{parts.scheme}://{place}{parts.path.rstrip('/')}/"
        fragment = parts.fragment.rpartition("?")[2]  # of `#token=...` or `#/page?token=...`
        linked = "".join(urllib.parse.parse_qs(f"{parts.query}&{fragment}").get("token", [])[:1])
        token = token or linked or os.environ.get(TOKEN_VARIABLE, "").strip() or own_token
        self._token = {TOKEN_HEADER: token} if token else dict[str, str]()
        self._opener = _opener(parts.hostname)

    def get(self, path: str) -> Json:
        """Return the answer to a GET request.

        Raises:
            Unreachable: The server does not answer.
            Refused: The server answers with an error.
        """
        return self._ask(urllib.request.Request(f"{self.url}api/v1/{path}", headers=self._token), TIMEOUT_S)

    def post(self, path: str, body: object = None) -> Json:
        """Return the answer to a POST request.

        Raises:
            Unreachable: The server does not answer.
            Refused: The server answers with an error.
        """
        return self.send("POST", path, body)

    def send(self, method: str, path: str, body: object = None) -> Json:
        """Return the answer to a request with any method.

        Raises:
            Unreachable: The server does not answer.
            Refused: The server answers with an error.
        """
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self._token}
        return self._ask(urllib.request.Request(f"{self.url}api/v1/{path}", data, headers, method=method), TIMEOUT_S)

    def upload(self, path: Path, progress: Progress, **query: str) -> Json:
        """Upload a file unless the server has it already.

        Args:
            progress: Called with the bytes sent and the total.
            query: Query parameters that describe the file.

        Raises:
            Unreachable: The server does not answer.
            Refused: The server answers with an error.
            BadParameter: The file cannot be read.
        """
        try:
            with path.open("rb") as file:
                digest = _sha256(file)
            answer = self._known_upload(path, digest, "part" in query)
            if answer:
                return answer
            size = path.stat().st_size
            if size and self.get("session")["direct"]:
                return self._send_direct(path, {"size_bytes": size, "blob": digest, "part": "part" in query}, progress)
            with path.open("rb") as file:
                body: Any = _Watched(file.read, size, progress)
                headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size), **self._token}
                place = (
                    f"{self.url}api/v1/uploads?{urllib.parse.urlencode({'name': path.name, **query}, errors='replace')}"
                )
                return self._ask(urllib.request.Request(place, body, headers, method="POST"), UPLOAD_S)
        except OSError as error:
            raise BadParameter(f"{path}: {error.strerror or error}", "is the path right?") from error

    def download(self, path: str, target: Path, sha256: str) -> None:
        """Download a file of the server atomically.

        Raises:
            Unreachable: The server does not answer.
            Refused: The server answers with an error.
            VisualprofError: The file cannot be written, or its checksum is wrong.
        """
        request = urllib.request.Request(f"{self.url}api/v1/{path}", headers=self._token)
        part = target.with_name(f"{target.name}.part")
        try:
            with self._translate_errors():
                response = self._opener.open(request, timeout=UPLOAD_S)
            with response, part.open("wb") as file:
                more = True
                while more:
                    with self._translate_errors():
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
        """Upload a file to the server's bucket in parts. Parts that an earlier attempt uploaded are not sent again."""
        way = self.post("uploads/direct", {"name": path.name, **facts})
        address, tries = f"uploads/direct/{way['upload']}", 0
        while way["parts"]:
            have: int = way["have_bytes"]
            try:
                for part in way["parts"]:
                    self._send_part(path, part, lambda sent, done=have: progress(done + sent, facts["size_bytes"]))
                    have += part["size_bytes"]
            except Unreachable:  # includes an expired address
                tries += 1
                if tries > TRIES:
                    raise
                time.sleep(tries)
            before, way = way["have_bytes"], self.get(address)
            tries = tries if way["have_bytes"] == before else 0
        order = urllib.request.Request(f"{self.url}api/v1/{address}", b"", self._token, method="POST")
        return self._ask(order, UPLOAD_S)

    def _send_part(self, path: Path, part: Json, progress: Callable[[int], None]) -> None:
        """Upload a range of a file to a presigned address, without the token.

        Raises:
            Unreachable: The bytes did not arrive.
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
        """Return the server's answer for a file that it has already, or None."""
        files = self.post("uploads/known", {"blob": digest, "name": path.name, "part": part})["files"]
        return files[0] if files else None

    def _ask(self, request: urllib.request.Request, timeout_s: float) -> Json:
        with self._translate_errors(), self._opener.open(request, timeout=timeout_s) as response:
            return self._decoded(response.read())

    @contextlib.contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Translate network errors into the errors of this module.

        Raises:
            Unreachable: The server does not answer.
            Refused: The server answers with an error.
        """
        try:
            yield
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, self._decoded(error.read())) from None
        except (OSError, urllib.error.URLError) as error:  # includes a connection that breaks half-way
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
    """Return an opener that uses the environment's proxy, except for this machine, which a proxy cannot reach."""
    return urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_loopback(host) else []))


class _Watched:
    """File that reports how much of it was read."""

    def __init__(self, read: Callable[[int], bytes], size: int, progress: Progress) -> None:
        self._read = read
        self._size = size
        self._done = 0
        self._progress = progress

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
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
    """Add the options for the server and its token."""
    parser.add_argument(
        "--server", default="http://127.0.0.1:8040", metavar="URL", help="Address of the server (default: %(default)s)."
    )
    parser.add_argument(
        "--token",
        default="",
        metavar="T",
        help=(
            f"Token of the server, needed for changes. Set {TOKEN_VARIABLE} to keep it out of the process list "
            "(default: the token of your own server on this machine)."
        ),
    )


def actions_of(parser: argparse.ArgumentParser, required: bool = False) -> Callable[..., argparse.ArgumentParser]:
    """Return a function that adds actions, after which the server options are accepted as well."""
    after = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    for name in ("--server", "--token"):
        after.add_argument(name, help=argparse.SUPPRESS)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=required)
    return partial(actions.add_parser, parents=[after])


def _local_server(parts: urllib.parse.SplitResult) -> tuple[str, str]:
    """Return the address of the server, and the token of your own server there. `localhost` becomes its real address.

    Raises:
        BadParameter: The port is invalid.
    """
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise BadParameter(f"--server {parts.netloc!r} is no address", "for example: http://127.0.0.1:8040") from error
    host = parts.hostname or ""
    for address in ("127.0.0.1", "::1") if host == "localhost" else (host,):
        token = find_token(address, port)
        if token and is_ip_address(address):
            return f"[{address}]:{port}" if ":" in address else f"{address}:{port}", token
    return parts.netloc, ""
