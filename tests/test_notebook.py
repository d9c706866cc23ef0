"""The dashboard in a notebook; IPython itself is played, as a cell and its output are all of it."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import visualprof
from tests.conftest import SAMPLES
from visualprof import notebook
from visualprof.server.settings import DIST

pytestmark = pytest.mark.slow


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What cells display: frames as (address, height) and scripts as texts. Servers end with the test."""
    displayed: list[Any] = []
    shell = SimpleNamespace(run_cell=lambda cell: exec(cell, {}), register_magic_function=lambda *_: None)
    modules: dict[str, dict[str, Any]] = {
        "IPython": {},
        "IPython.core": {},
        "IPython.core.getipython": {"get_ipython": lambda: shell},
        "IPython.display": {
            "IFrame": lambda address, _, height: (address, height),
            "Javascript": str,
            "display": displayed.append,
            "HTML": lambda text: text,
        },
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(notebook, "_servers", {})
    yield displayed
    for server in notebook._servers.values():
        server.process.terminate()
        server.process.wait(30)


def policy(address: str) -> str:
    with urllib.request.urlopen(address.partition("#")[0], timeout=30) as answer:
        return answer.headers["Content-Security-Policy"]


def test_a_folder_is_shown_in_a_frame_by_one_server(tmp_path: Path, shown: list[Any], capsys: Any) -> None:
    visualprof.show(tmp_path / "runs", height=500)
    visualprof.show(tmp_path / "runs")
    (address, height), (again, _) = shown
    assert height == 500
    assert address == again
    assert f"visualprof shows {tmp_path}/runs at {address}" in capsys.readouterr().out
    assert policy(address).endswith("; frame-ancestors 'self' http://localhost:* http://127.0.0.1:* vscode-webview:")


def test_a_proxy_and_colab(tmp_path: Path, shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUALPROF_PROXY_URL", "https://hub.example.org/user/ann/proxy/%PORT%/")
    visualprof.show(tmp_path / "a")
    (server,) = notebook._servers.values()
    assert server.token
    assert shown[0][0] == f"https://hub.example.org/user/ann/proxy/{server.port}/#token={server.token}"
    local = f"http://127.0.0.1:{server.port}/"
    request = urllib.request.Request(local, headers={"Host": "hub.example.org"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.headers["Content-Security-Policy"].endswith(" https://hub.example.org")
    monkeypatch.delenv("VISUALPROF_PROXY_URL")
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    visualprof.show(tmp_path / "b")
    port = next(s.port for folder, s in notebook._servers.items() if folder.name == "b")
    assert f"proxyPort({port}, " in shown[1]
    assert 'new URL("#token=' in shown[1]


def test_a_cell_is_recorded_and_shown(tmp_path: Path, shown: list[Any]) -> None:
    pytest.importorskip("torch")
    cell = "import torch\ntorch.nn.Linear(8, 8)(torch.ones(4, 8))"
    notebook._profile(f"{tmp_path}/runs --stacks", cell)
    (file,) = (tmp_path / "runs").rglob("*.trace.json.gz")
    assert f"#/overview?run={file.parent.name}&token=" in shown[0][0]


def report_in(frame: str) -> str:
    """The page in a frame."""
    (page,) = re.findall(r'^<div><iframe sandbox="allow-scripts allow-downloads" .* srcdoc="([^"]*)"', frame, re.DOTALL)
    return html.unescape(page)


def test_a_report_is_shown_on_request_or_without_a_server(
    tmp_path: Path, shown: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    if not (DIST / "report.js").is_file():
        pytest.skip("the page is not built: make page")
    runs = shutil.copytree(SAMPLES / "onnxruntime-cpu", tmp_path / "runs")
    os.utime(runs / "if_loop.json.gz", (1, 1))
    visualprof.show(runs, static=True)
    assert "<title>tinybert" in report_in(shown[0])  # the newest

    def none(*_: object, **__: object) -> None:
        raise PermissionError("no processes here")

    monkeypatch.setattr(subprocess, "Popen", none)
    visualprof.show(runs / "if_loop.json.gz")
    assert "<title>if_loop" in report_in(shown[1])
    assert "no processes here; a report is shown in its place" in capsys.readouterr().err
    assert notebook._servers == {}


def test_a_server_that_cannot_start(tmp_path: Path, shown: list[Any]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(notebook.DashboardNotStarted, match="did not start"):
        visualprof.show(tmp_path / "file" / "runs")
    assert not shown
