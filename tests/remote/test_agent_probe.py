"""Probing a machine by the agent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from visualprof.remote.agent.machine import probe as module
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.probe import Interpreter, Machine, probe_machine
from visualprof.remote.protocol import Capabilities, Runtime, Spec

pytestmark = pytest.mark.slow


def interpreter(folder: Path, **modules: str) -> str:
    """A Python whose only runtimes are these modules."""
    packages = folder / "packages"
    packages.mkdir()
    for name, code in modules.items():
        (packages / f"{name}.py").write_text(code)
    start = (
        f"import sys, runpy; sys.path.insert(0, {str(packages)!r}); sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -I -S -c "{start}" "$@"\n')
    path.chmod(0o755)
    return str(path)


ORT = "__version__ = '1.2'\ndef get_available_providers(): return ['CPUExecutionProvider']\nprint('noise')\n"


def found(python: str, backend: str = "") -> tuple[Machine, list[str]]:
    messages: list[str] = []
    return probe_machine([Interpreter(python, backend)], ["lab"], 0, Nvml(object()), messages.append), messages


def test_this_machine_is_described() -> None:
    capabilities = probe_machine([], ["lab"], 2, Nvml(object()), print).capabilities
    assert (capabilities.tags, capabilities.sandbox, capabilities.gpus, capabilities.runtimes) == (["lab"], 2, [], [])
    assert capabilities.cores >= 1
    assert capabilities.memory_bytes > 1 << 28
    assert capabilities.cpu
    assert capabilities.hostname


@pytest.mark.parametrize(
    ("machine", "gpu", "platform"),
    [("x86_64", False, "x86"), ("x86_64", True, "cuda"), ("aarch64", False, "arm"), ("armv7l", False, "arm")],
)
def test_the_platform_is_that_of_machine_and_gpu(machine: str, gpu: bool, platform: str) -> None:
    assert module.detect_platform(machine, gpu) == platform


def test_converters_are_found_where_all_their_packages_are_installed(tmp_path: Path) -> None:
    python = interpreter(tmp_path, onnx="raise ImportError", onnxruntime=ORT)
    machine, _ = found(python)
    assert {"onnx_fp16", "onnx_opset", "ort_level"} <= set(machine.capabilities.converters)
    assert not {"onnxslim", "openvino_ir", "torchscript_onnx"} & set(machine.capabilities.converters)
    assert machine.converters["ort_level"] == [python]


def test_a_runtime_is_found_with_version_and_devices(tmp_path: Path) -> None:
    python = interpreter(tmp_path, onnxruntime=ORT)
    runtimes_found, messages = found(python)
    assert messages == []
    [runtime] = runtimes_found.capabilities.runtimes
    assert (runtime.backend, runtime.version, runtime.python, runtime.devices) == (
        "onnxruntime",
        "1.2",
        python,
        ["cpu"],
    )
    assert runtime.python_version.startswith("3.")
    assert sys.base_prefix in runtimes_found.prefixes[python]


def test_a_runtime_that_crashes_at_import_does_not_affect_others(tmp_path: Path) -> None:
    openvino = "import ctypes; ctypes.string_at(0)"
    runtimes_found, messages = found(interpreter(tmp_path, onnxruntime=ORT, openvino=openvino))
    assert [runtime.backend for runtime in runtimes_found.capabilities.runtimes] == ["onnxruntime"]
    [line] = messages
    assert line.startswith("openvino of ")
    assert "cannot be used" in line


def test_an_import_error_is_reported_by_its_last_line(tmp_path: Path) -> None:
    _, messages = found(
        interpreter(tmp_path, onnxruntime="raise ImportError('numpy.core.multiarray failed to import')")
    )
    assert messages[0].endswith("ImportError: numpy.core.multiarray failed to import")


def test_a_broken_interpreter_is_reported(tmp_path: Path) -> None:
    runtimes_found, messages = found(str(tmp_path / "none"))
    assert runtimes_found.capabilities.runtimes == []
    assert "No such file" in messages[0]


def test_an_interpreter_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE_TIMEOUT_S", 0.5)
    _, messages = found(interpreter(tmp_path, onnxruntime="import time; time.sleep(60)"))
    assert "no answer within 0.5 s" in messages[0]


def test_an_interpreter_is_probed_only_for_its_named_backend(tmp_path: Path) -> None:
    python = interpreter(tmp_path, onnxruntime=ORT)
    assert found(python, "onnxruntime")[0].capabilities.runtimes
    runtimes_found, messages = found(python, "openvino")
    assert runtimes_found.capabilities.runtimes == []
    assert messages == [f"{python} has no openvino"]


def test_the_agents_own_interpreter_counts() -> None:
    assert Interpreter().python == sys.executable


def test_a_spec_gets_the_newest_runtime_that_fits() -> None:
    runtimes = [
        Runtime("torch", "2.9.0", "/a", "3.11", ["cpu"]),
        Runtime("torch", "2.13.0", "/b", "3.11", ["cpu"]),
        Runtime("torch", "2.10.0", "/c", "3.11", ["cpu", "cuda:0"]),
    ]
    machine = Machine(Capabilities("x86", "x86_64", "Linux", "h", "c", 1, 1, 0, "0", [], runtimes))
    assert getattr(machine.newest_runtime(Spec("s", "torch", "", device="cpu")), "python", None) == "/b"
    assert getattr(machine.newest_runtime(Spec("s", "torch", "", device="cuda:0")), "python", None) == "/c"
    assert getattr(machine.newest_runtime(Spec("s", "torch", "2.9.0", device="cpu")), "python", None) == "/a"
    assert machine.newest_runtime(Spec("s", "torch", "2.9.0", device="cuda:0")) is None
    assert machine.devices() == ["cpu", "cuda:0"]


def test_an_interpreter_may_be_a_relative_path_or_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert Interpreter("bin/python").python == str(tmp_path / "bin" / "python"), "not the target of the link"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert Interpreter("python").python == str(tmp_path / "bin" / "python")
    assert Interpreter("missing/python").python == str(tmp_path / "missing" / "python")
