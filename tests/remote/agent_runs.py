"""Runs the agent as a process, with a fake child or the real one, against a fake server."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.remote.fake_server import TOKEN, FakeServer  # noqa: E402
from visualprof.remote.agent.machine.processes import MARK_VARIABLE  # noqa: E402


@dataclass
class AgentProcess:
    """An agent that runs. log: what it says."""

    process: subprocess.Popen[bytes]
    state: Path
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def ended(self, seconds: float = 40.0) -> int:
        return self.process.wait(seconds)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def children(self) -> list[int]:
        """Living processes of its tasks."""
        return marked(self.state)


def marked(state: Path) -> list[int]:
    """Processes of tasks below a state folder."""
    return [item.pid for item in psutil.process_iter() if _is_marked(item, str(state))]


def _is_marked(process: psutil.Process, state: str) -> bool:
    try:
        mark = process.environ().get(MARK_VARIABLE, "")
        return mark.startswith(state) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


StartAgent = Callable[..., AgentProcess]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as fake_server:
        yield fake_server


@pytest.fixture
def start(server: FakeServer, tmp_path: Path) -> Iterator[StartAgent]:
    with agents(server, tmp_path) as started_agents:
        yield started_agents


@contextmanager
def agents(server: FakeServer, folder: Path) -> Iterator[StartAgent]:
    """Starts agents, and ends whatever is left of them."""
    started: list[AgentProcess] = []

    def start(*arguments: str, name: str = "state", real: bool = False, **env: str) -> AgentProcess:
        state, log = folder / name, folder / f"{name}-{len(started)}.log"
        script = ["-m", "visualprof", "agent"] if real else [str(ROOT / "tests" / "remote" / "agent_runs.py")]
        command = [
            sys.executable,
            *script,
            "--server",
            server.url,
            "--state",
            str(state),
            "--sandbox",
            "off",
            *arguments,
        ]
        environment = {**os.environ, "VISUALPROF_AGENT_TOKEN": TOKEN, "PYTHONPATH": str(ROOT), "SECRET": "s3cret"}
        environment |= {"VISUALPROF_RUNTIMES": str(folder / "runtimes"), **env}
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
            )
        started.append(AgentProcess(process, state, log))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            _end(each)


def _end(agent: AgentProcess) -> None:
    with suppress(ProcessLookupError):
        os.killpg(agent.process.pid, signal.SIGKILL)
    agent.process.wait()
    end = time.monotonic() + 5
    while (left := marked(agent.state)) and time.monotonic() < end:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def fake_code() -> bytes:
    """code.pyz with the fake child in it."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for package in ("visualprof", "visualprof/remote", "visualprof/remote/child"):
            archive.writestr(f"{package}/__init__.py", "")
        archive.writestr("visualprof/remote/child/main.py", (ROOT / "tests/remote/agent_child.py").read_bytes())
        archive.writestr("__main__.py", (ROOT / "visualprof/remote/agent/work/child_main.py").read_bytes())
    return held.getvalue()


def main() -> int:
    """The agent with a fake child, on a machine whose only runtime is this interpreter."""
    import argparse

    from visualprof.remote.agent import bundle, command
    from visualprof.remote.agent.daemon import AgentDaemon
    from visualprof.remote.agent.errors import AgentError
    from visualprof.remote.agent.machine.probe import Machine
    from visualprof.remote.agent.machine.probe_main import describe_interpreter
    from visualprof.remote.agent.machine.sandbox import sandbox_level
    from visualprof.remote.agent.state import Settings
    from visualprof.remote.protocol import Capabilities, Runtime

    devices = os.environ.get("FAKE_DEVICES", "cpu").split(",")

    def look(*_: object) -> Machine:
        runtime = Runtime(os.environ.get("FAKE_BACKEND", "onnxruntime"), "9.9", sys.executable, "3.11.0", devices)
        level = sandbox_level(parsed.sandbox, command.say)
        capabilities = Capabilities("x86", "x86_64", "Linux", "here", "a CPU", 2, 1 << 30, level, "0", [], [runtime])
        return Machine(capabilities, {sys.executable: tuple(describe_interpreter()["prefixes"])})

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    parsed = parser.parse_args()
    settings = Settings(
        server=parsed.server,
        token=os.environ["VISUALPROF_AGENT_TOKEN"],
        name="fake",
        state=Path(parsed.state),
        sandbox=parsed.sandbox,
        memory_bytes=round(parsed.memory * 2**30),
        once=parsed.once,
        exit_with_parent=parsed.exit_with_parent,
        code=bundle.child_archive if os.environ.get("REAL_CHILD") else fake_code,
        probe=look,
    )
    try:
        return AgentDaemon(settings, command.say).run()
    except AgentError as error:
        command.say(f"{error.error} ({error.hint})")
        return 2


if __name__ == "__main__":
    sys.exit(main())
