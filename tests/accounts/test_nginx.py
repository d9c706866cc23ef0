"""docs/team/nginx.conf, run by a real nginx before a real server: TLS, who asks, long bodies, agents that wait."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from teams import PASSWORD, SHELL

from tests.conftest import ROOT, until
from tests.server_settings import server_settings
from visualprof.accounts.service import Accounts
from visualprof.server import connections
from visualprof.server.serve import Server
from visualprof.server.session_token import TOKEN_HEADER

HOST, ANN, CLIENT = "dash.example.org", "ann@example.org", "127.0.0.5"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
OPENSSL = shutil.which("openssl")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the whole of 127.0.0.0/8 is Linux's"),
    pytest.mark.skipif(not (NGINX and OPENSSL), reason="needs nginx and openssl: apt-get install nginx-light openssl"),
]


class Client:
    """Send a request of a browser or an agent, whose address differs from that of the proxy."""

    def __init__(self, port: int) -> None:
        self._port, self.headers = port, dict[str, str]()

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=30, context=context, source_address=(CLIENT, 0)
        )
        data = body if isinstance(body, bytes) or body is None else json.dumps(body)
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        sent = {"Host": HOST, "Content-Type": kind, **self.headers, **headers}
        connection.request(method, path, data, sent)
        response = connection.getresponse()
        text = response.read()
        if cookie := response.getheader("Set-Cookie"):
            assert "Secure" in cookie
            self.headers["Cookie"] = cookie.partition(";")[0]
        connection.close()
        return response.status, json.loads(text) if text.startswith(b"{") else text


def configured(folder: Path, server: int, port: int) -> Path:
    """The document's file, with other ports and a certificate of our own."""
    certificate = ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem", "-subj", f"/CN={HOST}"]
    kind = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run([str(OPENSSL), *kind, *certificate], check=True, capture_output=True)
    text = (ROOT / "docs" / "team" / "nginx.conf").read_text("utf-8")
    missing = re.search(r"# ssl_certificate .*", text)
    assert missing
    directives = f"ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;"
    for original, replacement in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("server 127.0.0.1:8040", f"server 127.0.0.1:{server}"),
        (missing[0], directives),
    ):
        assert text.count(original) == 1
        text = text.replace(original, replacement)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = folder / "nginx.conf"
    around = f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
    file.write_text(f"{around}http {{ access_log off; {temporary}\n{text}}}\n", "utf-8")
    return file


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Server, Client]]:
    runs = tmp_path / "runs"
    runs.mkdir()
    settings = server_settings(
        accounts=True, base_url=f"https://{HOST}", proxies=("127.0.0.1/32",), dist=tmp_path / "dist"
    )
    with Server([runs], 0, settings) as server, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        server.start()
        Accounts(server.job_service.open().database, "off").users.create(SHELL, ANN, "Ann", "admin", PASSWORD)
        with subprocess.Popen([str(NGINX), "-c", str(configured(tmp_path, server.port, port))]) as nginx:
            try:
                until(lambda: _listens(port))
                yield server, Client(port)
            finally:
                nginx.terminate()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_people_and_agents_get_through_nginx(site: tuple[Server, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    server, ask = site
    forged = {"Origin": f"https://{HOST}", "Sec-Fetch-Site": "same-origin", "X-Forwarded-For": "203.0.113.9"}
    status, answer = ask("POST", "/api/v1/session", {"email": ANN, "password": PASSWORD}, **forged)
    assert status == 200, answer
    ask.headers[TOKEN_HEADER] = answer["token"]
    deeds = Accounts(server.job_service.open().database, "off").audit_events(None, 1)
    assert [(deed.action, deed.address) for deed in deeds] == [("log in", CLIENT)], "whom nginx saw, not who they say"

    accepted, accept = list[object](), connections.Channel.__init__
    with monkeypatch.context() as counted:
        counted.setattr(
            connections.Channel, "__init__", lambda *args, **more: (accepted.append(args), accept(*args, **more))[1]
        )
        for _ in range(5):
            assert ask("GET", "/api/v1/runs")[0] == 200
    assert len(accepted) <= 1, "what nginx has opened it keeps"

    values = io.BytesIO()
    np.save(values, np.zeros(3 << 18, np.float32))
    status, answer = ask("POST", "/api/v1/uploads?name=x.npy", values.getvalue())
    assert status == 201, "3 MiB are more than nginx takes by itself"
    assert answer["blob"] == hashlib.sha256(values.getvalue()).hexdigest()

    status, answer = ask("POST", "/api/v1/agents/codes", {})
    assert status in (200, 201), answer
    agent = Client(ask._port)
    agent.headers["Authorization"] = f"Bearer {answer['code']}"
    capabilities = {
        "platform": "x86",
        "machine": "x86_64",
        "system": "Linux",
        "hostname": "box",
        "cpu": "",
        "cores": 2,
        "memory_bytes": 1 << 30,
        "sandbox": 0,
        "version": "0",
        "runtimes": [],
    }
    about = {"protocol": 1, "name": "box", "public": True, "capabilities": capabilities}
    status, answer = agent("POST", "/api/v1/agent/register", about)
    assert status == 200, answer
    agent.headers["Authorization"] = f"Bearer {answer['token']}"
    begun = time.monotonic()
    assert agent("POST", "/api/v1/agent/lease", {"devices": ["cpu"], "wait_s": 1.5})[0] == 204
    assert time.monotonic() - begun >= 1.4, "it waits as without nginx"
    assert answer["intervals"]["poll_s"] < 60, "proxy_read_timeout of the document"
