"""docs/team.md is true: its commands lead from nothing to a team's server, and so do its unit and its compose file."""

from __future__ import annotations

import argparse
import configparser
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sandbox
from teams import MODEL_FILE, PASSWORD

from tests.conftest import ROOT
from visualprof.cli import serve
from visualprof.cli._config import with_file
from visualprof.server.settings import SECRETS

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the commands are those of a Unix")

FILES = ROOT / "docs" / "team"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
YOU, HOST = "you@example.org", "dash.example.org"


def commands() -> list[str]:
    """Return the lines at the top of the document."""
    match = BLOCK.search((ROOT / "docs" / "team.md").read_text("utf-8"))
    assert match
    assert match[1] == "bash"
    return match[2].splitlines()


@dataclass
class Place:
    """A machine with the program in /opt/visualprof and an empty /data/runs."""

    folder: Path
    wheels: Path

    def run(
        self, command: list[str], readable: dict[str, Path], *writable: str, **variables: str
    ) -> subprocess.Popen[str]:
        """Start a command with a terminal; `until` reads its output."""
        folders = {path: sandbox.folder(self.folder / path.strip("/").replace("/", "-")) for path in writable}
        environment = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k.lower().endswith("_proxy")}
        environment["PIP_FIND_LINKS"] = f"{environment.get('PIP_FIND_LINKS', '')} /wheels"
        environment |= {"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin", "HOME": "/tmp", **variables}
        master, slave = os.openpty()
        process = subprocess.Popen(
            [*sandbox.machine(folders, {"/wheels": self.wheels, **readable}), *command],
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            text=True,
            cwd="/",
        )
        os.close(slave)
        self.terminal, self.seen = master, ""
        return process

    def until(self, pattern: str, timeout_s: float = 300) -> str:
        """What the terminal shows, and stands for the pattern's group."""
        end = time.monotonic() + timeout_s
        while not (match := re.search(pattern, self.seen)):
            assert time.monotonic() < end, self.seen
            try:
                self.seen += os.read(self.terminal, 4096).decode("utf-8", "replace")
            except OSError:  # the command has ended
                raise AssertionError(self.seen) from None
        self.seen = self.seen[match.end() :]
        return match[1]

    def drain(self) -> None:
        """Reads on, so that a server never waits for its terminal."""

        def read() -> None:
            with contextlib.suppress(OSError):
                while os.read(self.terminal, 4096):
                    pass

        threading.Thread(target=read, daemon=True).start()

    def types_password(self) -> None:
        for question in ("(password: )", "(again: )"):
            self.until(question)
            os.write(self.terminal, f"{PASSWORD}\n".encode())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Its program was installed by the document's own command, from a wheel of this checkout."""
    folder = tmp_path_factory.mktemp("place")
    sandbox.machine({}, {})
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder / "wheels", ROOT]
    subprocess.run(build, check=True, env={**os.environ, "VISUALPROF_SKIP_FRONTEND": "1"})
    deployment_place = Place(folder, folder / "wheels")
    first = [line for line in commands() if not line.startswith("visualprof ")]
    process = deployment_place.run(["bash", "-exc", "\n".join([*first, "echo 'all is' there"])], {}, "/opt/visualprof")
    deployment_place.until("(all is there)", 600)
    assert process.wait(10) == 0
    return deployment_place


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait(10)


def ask(port: int, method: str, path: str, body: Any = None, sender: str = "127.0.0.1", **headers: str) -> Any:
    """The JSON of an answer, with its cookie under that name."""
    data = b"" if body is None else json.dumps(body).encode()
    named = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    status, content_type, text = sandbox.asked(port, method, f"/api/v1/{path}", data, sender, named)
    assert status < 300, (status, text)
    return json.loads(text) | {"cookie": dict(content_type).get("Set-Cookie", "")}


def log_in(port: int, **headers: str) -> dict[str, str]:
    """Return the headers that a page sends from now on."""
    session = ask(port, "POST", "session", {"email": YOU, "password": PASSWORD}, **headers)
    assert session["person"]["role"] == "admin"
    return {"Cookie": session["cookie"].partition(";")[0], "X_Visualprof_Token": session["token"]}


@pytest.mark.long
@pytest.mark.slow
def test_from_nothing_to_a_job_of_a_team(place: Place) -> None:
    """Its lines as they stand; the password is typed."""
    assert len(commands()) <= 5
    last = [line for line in commands() if line.startswith("visualprof ")]
    script = "\n".join([". /opt/visualprof/bin/activate", *last])
    process = place.run(["bash", "-ec", script], {}, "/opt/visualprof", "/data/runs")
    with ended(process):
        place.types_password()
        port = int(place.until(r"http://\S+:(\d+)/"))
        place.drain()
        you = log_in(port)
        token = ask(port, "POST", "account/tokens", {"name": "ci"}, **you)["new_token"]
        submit = ["submit", str(MODEL_FILE), "--server", f"http://127.0.0.1:{port}", "--backend", "onnxruntime"]
        wish = ["--batch", "1,2", "--min-s", "0.05", "--profile-runs", "3", "--wait"]  # which fails where the job does
        done = subprocess.run(
            [sys.executable, "-m", "visualprof", *submit, *wish],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env={**os.environ, "VISUALPROF_TOKEN": token},
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (job,) = ask(port, "GET", "jobs", **you)["jobs"]
        assert (job["state"], job["tasks"][0]["points"]) == ("succeeded", 2)
        reports = ask(port, "GET", "evaluation", **you)["reports"]
        assert [(report["id"], report["points"]) for report in reports] == [(job["tasks"][0]["run"], 2)]


def shipped(name: str) -> str:
    return (FILES / name).read_text("utf-8")


def test_the_options_file_of_the_document_is_valid() -> None:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    read = with_file(str(FILES / "visualprof.toml"), parser, [])
    assert (read.logdir, read.accounts, read.proxies) == (["/data/runs"], True, ["127.0.0.1/32"])
    everything = re.sub(r"^# (?=\S+ = )", "", shipped("visualprof.toml"), flags=re.MULTILINE)
    assert everything.count(" = ") > shipped("visualprof.toml").count("\n# ") + 4


def test_the_document_names_the_shipped_files() -> None:
    text = (ROOT / "docs" / "operating.md").read_text("utf-8")
    assert [path.name for path in FILES.iterdir() if f"(team/{path.name})" not in text] == []


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "visualprof.service"
    unit.write_text(shipped("visualprof.service").replace("/opt/visualprof/bin/visualprof", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@dataclass
class Deployment:
    """A command, what it may write, what lies there beside, its variables, and from where its proxy asks.

    healthy: the command that ends with 0 while it answers.
    """

    command: list[str]
    writable: list[str]
    readable: dict[str, Path]
    variables: dict[str, str]
    proxy: str
    healthy: list[str]


def of_systemd(tmp_path: Path) -> Deployment:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(shipped("visualprof.service"))
    service = unit["Service"]
    assert (service["ProtectSystem"], service["PrivateTmp"]) == ("strict", "yes")
    writable = [service["ReadWritePaths"], f"/var/lib/{service['StateDirectory']}"]
    writable.append(f"/var/cache/{service['CacheDirectory']}")
    variables = dict(assignment.split("=", 1) for assignment in shlex.split(service["Environment"]))
    options = {"/etc/visualprof/visualprof.toml": FILES / "visualprof.toml"}
    command = [*shlex.split(service["ExecStart"]), "--with-agent"]  # which keeps something of its own
    return Deployment(command, writable, options, variables, "127.0.0.1", ["true"])


def of_compose(tmp_path: Path) -> Deployment:
    """Its network is one of this machine here."""
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load(shipped("compose.yaml"))
    service, caddy = compose["services"]["visualprof"], compose["services"]["caddy"]
    address = caddy["networks"]["inside"]["ipv4_address"]
    assert f'compose.yaml: ["{address}/32"]' in shipped("visualprof.toml")
    network = compose["networks"]["inside"]["ipam"]["config"][0]["subnet"].removesuffix("0/24")
    assert all(one["networks"]["inside"]["ipv4_address"].startswith(network) for one in (service, caddy))
    assert HOST in shlex.split(caddy["command"])
    assert "visualprof:8040" in shlex.split(caddy["command"])
    local_address = address.replace("172.", "127.")
    (tmp_path / "visualprof.toml").write_text(shipped("visualprof.toml").replace("127.0.0.1/32", f"{local_address}/32"))
    volumes = [volume.split(":") for volume in service["volumes"]]
    readable = {there: tmp_path / name for name, there, *mode in volumes if mode == ["ro"]}
    writable = [there for _, there, *mode in volumes if not mode]
    assert {name for name, *_ in volumes if not name.startswith(".")} <= compose["volumes"].keys()
    variables = dict(assignment.split("=") for assignment in service["environment"] if "=" in assignment)
    handed_on = {
        assignment
        for assignment in service["environment"]
        if assignment.startswith("VISUALPROF_") and "=" not in assignment
    }
    assert handed_on == {
        "VISUALPROF_DATABASE",
        *SECRETS.values(),
    }
    assert caddy["depends_on"]["visualprof"]["condition"] == "service_healthy"
    kind, python, *healthy = service["healthcheck"]["test"]
    assert (kind, python) == ("CMD", "python")
    healthy = [sys.executable, *healthy]
    return Deployment(shlex.split(service["command"]), writable, readable, variables, local_address, healthy)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("deployed", [of_systemd, of_compose])
def test_a_service_behind_a_proxy(place: Place, tmp_path: Path, deployed: Any) -> None:
    """It writes nowhere else; the cookie is for TLS alone; X-Forwarded-For counts from the proxy, not from others."""
    place.folder = tmp_path
    deployment: Deployment = deployed(tmp_path)
    program = {"/opt/visualprof": place.wheels.parent / "opt-visualprof", **deployment.readable}
    variables = {"PATH": "/opt/visualprof/bin:/usr/bin:/bin", **deployment.variables}
    (options,) = deployment.readable
    admin = ["visualprof", "admin", "--config", options, "create-user", YOU, "--role", "admin"]
    process = place.run(admin, program, *deployment.writable, **variables)
    place.types_password()
    assert process.wait(60) == 0
    process = place.run(deployment.command, program, *deployment.writable, **variables)
    with ended(process):
        port = int(place.until(r"http://\S+:(\d+)/"))
        place.drain()
        healthy = [part.replace(":8040/", f":{port}/") for part in deployment.healthy]
        assert subprocess.run(healthy, check=False).returncode == 0
        with sandbox.proxy(port, HOST, deployment.proxy) as front:
            session = ask(front, "POST", "session", {"email": YOU, "password": PASSWORD}, Origin=f"https://{HOST}")
            name, *attributes = session["cookie"].split("; ")
            assert name.startswith("__Host-visualprof=")
            assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/"} <= set(attributes)
            you = {"Cookie": name, "X_Visualprof_Token": session["token"]}
            said = {"sender": "127.9.9.9", "X_Forwarded_For": "198.51.100.7"}
            ask(port, "POST", "session", {"email": YOU, "password": PASSWORD}, **said)
            deeds = ask(front, "GET", "audit", **you)["deeds"]
            assert [deed["address"] for deed in deeds if deed["action"] == "log in"] == ["127.9.9.9", "127.0.0.1"]
            end = time.monotonic() + 60
            while "--with-agent" in deployment.command and not any(
                agent["online"] for agent in ask(front, "GET", "agents", **you)["agents"]
            ):
                assert time.monotonic() < end, "the server's agent does not find a place for its state"
                time.sleep(0.2)
