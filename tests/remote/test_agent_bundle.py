"""The archives: the child's code, and an agent that needs no installation."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.remote.agent_runs import server
from tests.remote.fake_server import TOKEN, FakeServer
from visualprof.remote.agent import bundle

pytestmark = pytest.mark.slow

__all__ = ["server"]


@pytest.fixture
def pyz(tmp_path: Path) -> Path:
    path = tmp_path / "agent.pyz"
    path.write_bytes(bundle.agent_archive())
    return path


def isolated(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a Python that sees this project's sources nowhere."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "VISUALPROF_RUNTIMES": str(folder / "none")}
    return subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", *command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_code_of_the_child_contains_only_what_it_needs() -> None:
    with zipfile.ZipFile(io.BytesIO(bundle.child_archive())) as archive:
        names = set(archive.namelist())
    assert {"__main__.py", "visualprof/__init__.py", "visualprof/remote/protocol/job.py"} <= names
    assert "visualprof/remote/child/main.py" in names
    assert "visualprof/remote/backends/onnxruntime.py" in names
    assert not any("agent" in name or "server" in name or "queue" in name for name in names)


def test_the_same_sources_give_the_same_bytes() -> None:
    first = bundle.child_archive()
    bundle.child_archive.cache_clear()
    assert bundle.child_archive() == first


def test_the_agent_starts_from_its_archive(pyz: Path, tmp_path: Path) -> None:
    done = isolated(str(pyz), "--sandbox", "off", "probe", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["cores"] >= 1
    assert document["sandbox"] == 0


def test_an_archive_makes_the_same_archives(pyz: Path, tmp_path: Path) -> None:
    script = f"""
import hashlib, sys
sys.path.insert(0, {str(pyz)!r})
from visualprof.remote.agent import bundle
assert bundle.__file__.startswith({str(pyz)!r})
made = [bundle.child_archive(), bundle.probe_archive(), bundle.agent_archive()]
print([hashlib.sha256(each).hexdigest() for each in made])
"""
    inner = isolated("-c", script, folder=tmp_path)
    outer = isolated("-c", script.replace(repr(str(pyz)), repr(str(Path(bundle.__file__).parents[3]))), folder=tmp_path)
    assert inner.returncode == outer.returncode == 0, inner.stderr + outer.stderr
    assert inner.stdout == outer.stdout


def test_the_archive_reports_missing_modules(pyz: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "psutil.py").write_text("raise ImportError('no psutil')")
    script = f"""
import runpy, sys
sys.path.insert(0, {str(blocked)!r})
sys.argv = ['agent.pyz', '--server', 'http://127.0.0.1:1', '--token', 't']
runpy.run_path({str(pyz)!r}, run_name='__main__')
"""
    done = isolated("-c", script, folder=tmp_path)
    assert done.returncode == 2
    assert "the agent needs psutil" in done.stderr
    assert "-m pip install psutil" in done.stderr


def test_an_agent_from_the_archive_measures(pyz: Path, tmp_path: Path, server: FakeServer) -> None:
    pytest.importorskip("onnxruntime")
    task = server.submit(b"not a model")
    done = isolated(
        str(pyz),
        "--server",
        server.url,
        "--token",
        TOKEN,
        "--state",
        str(tmp_path / "state"),
        "--once",
        "--allow-root",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert task.report is not None
    assert task.report["reason"] == "model_error", "the real child has refused it"
