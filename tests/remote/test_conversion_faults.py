"""Converters and models that are broken or hostile: each ends in a named state, with its log."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.remote.conversions import LEVEL, shop, small_onnx, with_converter
from tests.remote.test_agent_faults import small_disk
from visualprof.remote.agent.errors import StopRequested
from visualprof.remote.agent.work.conversion import ConvertedModel, convert
from visualprof.remote.converters import Conversion
from visualprof.remote.protocol import TaskFailure

pytestmark = pytest.mark.slow

__all__ = ["small_disk"]

sandboxed = pytest.mark.skipif(LEVEL < 2, reason="needs bubblewrap")

CONVERTER = """
from visualprof.remote.converters import Converter

def convert(model, target, options, rows):
    import json, os, shutil, signal, socket, subprocess, sys, time
    print("begins", flush=True)
{body}

CONVERTER = Converter("hostile", "Hostile", "onnx", "onnx", {{"onnx": "onnx"}}, convert)
"""


def made_by(body: str, folder: Path, timeout_s: float = 30.0, **limits: Any) -> ConvertedModel:
    """What a converter of these lines makes."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    code = with_converter(CONVERTER.format(body=lines))
    model = small_onnx(folder / "small.onnx")
    return convert(Conversion("hostile", str(model)), {}, folder / "work", shop(code=code, **limits), timeout_s)


def failure_of(body: str, folder: Path, timeout_s: float = 30.0, **limits: Any) -> TaskFailure:
    with pytest.raises(TaskFailure) as error:
        made_by(body, folder, timeout_s, **limits)
    assert "begins" in (folder / "work" / "log.txt").read_text()
    return error.value


def test_an_honest_converter_makes_a_model(tmp_path: Path) -> None:
    converted_model = made_by("shutil.copy(model, target)", tmp_path)
    assert converted_model.model.read_bytes() == (tmp_path / "small.onnx").read_bytes()
    assert converted_model.converted.changed is False


@pytest.mark.parametrize(
    ("body", "reason", "error"),
    [
        ("target.write_bytes(b'garbage')", "model_error", "INVALID_PROTOBUF|ModelProto|Protobuf"),
        ("target.write_bytes(model.read_bytes()[:900])", "model_error", "INVALID_PROTOBUF|ModelProto|Protobuf"),
        ("pass", "model_error", "without an error and without a model"),
        ("raise ValueError('no rule for this')", "model_error", "ValueError: no rule for this"),
        ("raise MemoryError", "out_of_memory", "MemoryError"),
        ("import not_there", "no_runtime", "not_there"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "crashed", "SIGKILL"),
        ("os._exit(3)", "crashed", "status 3"),
        ("shutil.copy(model, target); os.symlink('/etc/passwd', target.with_name('more'))", "rejected", "links"),
    ],
)
def test_every_conversion_failure_has_a_code(tmp_path: Path, body: str, reason: str, error: str) -> None:
    failure = failure_of(body, tmp_path)
    assert failure.reason == reason
    assert re.search(error, failure.error), failure.error


@pytest.mark.long
def test_a_hanging_converter_is_killed_with_its_children(tmp_path: Path) -> None:
    body = (
        "p = subprocess.Popen(['sleep', '600'], start_new_session=True)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)"
    )
    began = time.monotonic()
    failure = failure_of(f"{body}\ntime.sleep(600)", tmp_path, timeout_s=2.0)
    assert failure.reason == "timeout"
    assert time.monotonic() - began < 25
    mark = str(tmp_path / "work").encode()
    assert not [pid for pid in os.listdir("/proc") if pid.isdecimal() and mark in _environment(pid)]


def _environment(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "environ").read_bytes()
    except OSError:
        return b""


def test_a_converter_that_eats_memory_is_ended(tmp_path: Path) -> None:
    failure = failure_of("x = []\nwhile True: x.append(os.urandom(1 << 24))", tmp_path, memory_bytes=600 << 20)
    assert failure.reason == "out_of_memory"


def test_a_converter_that_fills_the_disk_is_ended(small_disk: Path) -> None:
    body = "with target.open('wb') as file:\n    while True: file.write(bytes(1 << 20))"
    assert failure_of(body, small_disk).reason == "disk_full"


@sandboxed
def test_conversions_make_no_network_connections(tmp_path: Path) -> None:
    failure = failure_of("socket.create_connection(('192.0.2.1', 80), 5)", tmp_path)
    assert failure.reason == "input_error"
    assert failure.error.startswith("no network access")
    assert "unreachable" in failure.error


@sandboxed
def test_nothing_is_installed(tmp_path: Path) -> None:
    pip = "subprocess.run([sys.executable, '-m', 'pip', 'install', 'colorama==0.4.5'])"
    body = f"done = {pip}\nraise ValueError(done.returncode)"
    assert failure_of(body, tmp_path).error == "ValueError: 1"


@sandboxed
def test_the_model_and_files_elsewhere_are_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    assert "Read-only" in failure_of("model.write_bytes(b'other')", tmp_path).error
    assert "No such file" in failure_of(f"open({str(tmp_path / 'secret')!r})", tmp_path).error


def test_a_child_cannot_tell_of_files_elsewhere(tmp_path: Path) -> None:
    told = '{"converter": "x", "format": "onnx", "file": "../../../etc/passwd", "took_ns": 1, "changed": true}'
    body = f"""
shutil.copy(model, target)
with open("events.jsonl", "a") as file:
    file.write('{{"event": "converted", "converted": {told}}}\\n{{"event": "done"}}\\n')
os._exit(0)"""
    assert failure_of(body, tmp_path).reason == "rejected"


def test_an_invalid_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"\xff" * 1000)
    order = Conversion("onnx_opset", str(tmp_path / "bad.onnx"))
    with pytest.raises(TaskFailure) as error:
        convert(order, {}, tmp_path / "work", shop())
    assert error.value.reason == "model_error"


@pytest.mark.parametrize(("name", "kind"), [("saved_model.pb", "tf2onnx"), ("model.TM", "mge_optimize")])
def test_a_model_that_may_run_code_is_not_converted_without_a_sandbox(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(TaskFailure, match="may run any code, and this agent has no sandbox"):
        convert(Conversion(kind, str(tmp_path / name)), {}, tmp_path / "work", shop(level=0))
    assert not (tmp_path / "work").exists()


def test_a_conversion_can_be_stopped(tmp_path: Path) -> None:
    calls: list[float] = []

    def check() -> None:
        calls.append(0)
        if len(calls) > 5:
            raise StopRequested("cancelled")

    with pytest.raises(StopRequested):
        made_by("time.sleep(600)", tmp_path, check=check)
