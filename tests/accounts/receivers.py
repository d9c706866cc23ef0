"""Receivers of notifications: an HTTP server and a mail server inside this process."""

from __future__ import annotations

import http.server
import socketserver
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass
class Hook:
    """Answers with the statuses in turn, the last one from then on, and keeps what came."""

    statuses: list[int]
    port: int = 0
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?x=1"


@contextmanager
def webhook(*statuses: int, **headers: str) -> Generator[Hook]:
    hook = Hook(list(statuses or (204,)))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.got.append(({"path": self.path, **dict(self.headers.items())}, body))
            self.send_response(hook.statuses.pop(0) if len(hook.statuses) > 1 else hook.statuses[0])
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield hook
        server.shutdown()


@dataclass
class Mailbox:
    port: int = 0
    refuses: bool = False
    said: list[str] = field(default_factory=list)
    got: list[EmailMessage] = field(default_factory=list)


@contextmanager
def mail_server() -> Generator[Mailbox]:
    box = Mailbox()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 here")
            while line := self.rfile.readline().decode().strip():
                box.said.append(line)
                word = line.partition(" ")[0].upper()
                if word == "EHLO":
                    self.say("250-here\r\n250 AUTH PLAIN")
                elif word == "AUTH":
                    self.say("235 welcome")
                elif word == "DATA":
                    self.say("354 go on")
                    lines = list(iter(self.rfile.readline, b".\r\n"))
                    box.got.append(message_from_bytes(b"".join(lines), policy=policy.default))  # type: ignore[arg-type]
                    self.say("250 kept")
                elif word == "QUIT":
                    self.say("221 bye")
                    break
                else:
                    self.say("550 nobody is called so" if box.refuses and word == "RCPT" else "250 well")

        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        box.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield box
        server.shutdown()
