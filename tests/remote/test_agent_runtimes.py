"""Making environments for runtimes, with a Python that only plays one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from visualprof.remote.agent.errors import AgentError
from visualprof.remote.agent.machine import runtimes
from visualprof.remote.agent.machine.runtimes import find_pythons, install, installed_pythons, supports_python
from visualprof.remote.backends import backend
from visualprof.remote.protocol import Gpu

MakePython = Callable[..., Path]

# Says that it is Python 3.10; `-m venv` makes a copy of it, `-m pip` notes what it was asked for.
PYTHON = """#!/bin/sh
case "$*" in
  *"-I -c"*) echo '[[3, {minor}], true]' ;;
  *"-m venv"*) [ -z "{no_venv}" ] || {{ echo no ensurepip >&2; exit 1; }}
     for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python"
     printf '#!/bin/sh\\n[ -x %s ] && echo "found $0"\\n' "$last/bin/python" > "$last/bin/script"
     chmod +x "$last/bin/script"; ln -s /bin/sh "$last/bin/linked"; echo "command = $last" > "$last/pyvenv.cfg" ;;
  *"-m pip"*) echo "$@" >> {notes}; exit {pip} ;;
  *probe.pyz*) echo '{answer}' ;;
esac
"""
ANSWER = '{"version": "1.19.2", "devices": ["cpu"]}'


@pytest.fixture
def python(tmp_path: Path) -> MakePython:
    def make(name: str = "python3.10", pip: int = 0, no_venv: str = "", answer: str = ANSWER) -> Path:
        folder = tmp_path / "pythons"
        folder.mkdir(exist_ok=True)
        path = folder / name
        minor = name.rpartition(".")[2]
        text = PYTHON.format(minor=minor, pip=pip, no_venv=no_venv, answer=answer, notes=tmp_path / "notes")
        path.write_text(text)
        path.chmod(0o755)
        return path

    return make


def test_an_environment_is_made_and_named_by_its_version(tmp_path: Path, python: MakePython) -> None:
    messages: list[str] = []
    environment = install("onnxruntime==1.19.2", str(python()), tmp_path / "runtimes", messages.append)
    assert environment == tmp_path / "runtimes" / "onnxruntime-1.19.2"
    assert installed_pythons(tmp_path / "runtimes") == [str(environment / "bin" / "python")]
    asked = (tmp_path / "notes").read_text()
    assert " onnxruntime==1.19.2 " in asked
    assert "numpy" in asked
    assert "ready" in messages[-1]
    assert list((tmp_path / "runtimes").iterdir()) == [environment], "nothing half made is left"


def test_scripts_of_an_environment_work(tmp_path: Path, python: MakePython) -> None:
    environment = install("onnxruntime", str(python()), tmp_path / "runtimes", print)
    script = environment / "bin" / "script"
    assert subprocess.run([script], capture_output=True, text=True, check=True).stdout == f"found {script}\n"
    assert (environment / "pyvenv.cfg").read_text() == f"command = {environment}\n"
    assert (environment / "bin" / "linked").is_symlink()


CPU = "--index-url https://download.pytorch.org/whl/cpu torch==1.19.2"
GPU = Gpu("cuda:0", "H200", 1)


@pytest.mark.parametrize(
    ("requirement", "index", "gpus", "asked"),
    [
        ("torch==1.19.2", "", [], [CPU, "torch==1.19.2 numpy"]),
        ("torch==1.19.2", "", [GPU], ["torch==1.19.2 numpy"]),
        ("torch", "https://mirror/simple", [], ["--index-url https://mirror/simple torch", "torch numpy"]),
        ("onnxruntime", "", [], ["onnxruntime numpy onnx"]),
        ("onnxslim==0.1.98", "", [GPU], ["onnxslim==0.1.98 onnxruntime onnx numpy onnx"]),
        ("torchscript_onnx", "", [], ["--index-url https://download.pytorch.org/whl/cpu torch", "torch onnx numpy"]),
        ("mge_optimize", "", [], ["megengine numpy<2 onnx"]),
    ],
)
def test_without_a_gpu_torch_comes_without_cuda(
    tmp_path: Path, python: MakePython, requirement: str, index: str, gpus: list[Gpu], asked: list[str]
) -> None:
    messages: list[str] = []
    install(requirement, str(python()), tmp_path / "runtimes", messages.append, index, lambda: gpus)
    pip = "-m pip install --disable-pip-version-check --no-input "
    notes = (tmp_path / "notes").read_text().splitlines()
    assert [line.partition(pip)[2] for line in notes] == asked
    assert any("without CUDA" in line for line in messages) == ("whl/cpu" in asked[0])


def test_a_case_has_a_separate_environment(tmp_path: Path, python: MakePython) -> None:
    file = tmp_path / "bert" / "requirements.txt"
    file.parent.mkdir()
    file.write_text("torch\ntransformers>=4.40  # its model\n")
    environment = install("onnxruntime", str(python()), tmp_path / "runtimes", print, "", list, file)
    assert environment.name == "onnxruntime-1.19.2-bert"
    first, second = (tmp_path / "notes").read_text().splitlines()
    assert first.endswith("--index-url https://download.pytorch.org/whl/cpu torch")
    assert second.endswith("onnxruntime numpy onnx torch transformers>=4.40")
    with pytest.raises(AgentError, match=r"nothing\.txt"):
        install("onnxruntime", str(python()), tmp_path / "runtimes", print, "", list, tmp_path / "nothing.txt")


def test_an_environment_that_pip_could_not_fill_does_not_count(tmp_path: Path, python: MakePython) -> None:
    with pytest.raises(AgentError, match="ended with status 1") as error:
        install("onnxruntime==99", str(python(pip=1)), tmp_path / "runtimes", print)
    assert "onnxruntime==99 exists for Python 3.10" in error.value.hint
    assert installed_pythons(tmp_path / "runtimes") == []
    assert list((tmp_path / "runtimes").iterdir()) == []


def test_an_environment_whose_runtime_cannot_be_imported_is_ignored(tmp_path: Path, python: MakePython) -> None:
    with pytest.raises(AgentError, match="onnxruntime was installed and cannot be used"):
        install("onnxruntime", str(python(answer="")), tmp_path / "runtimes", print)
    assert installed_pythons(tmp_path / "runtimes") == []


def test_a_new_environment_replaces_the_previous_one(tmp_path: Path, python: MakePython) -> None:
    first = install("onnxruntime", str(python()), tmp_path / "runtimes", print)
    (first / "old").touch()
    assert install("onnxruntime", str(python()), tmp_path / "runtimes", print) == first
    assert not (first / "old").exists()


def test_a_python_without_venv_is_explained(tmp_path: Path, python: MakePython) -> None:
    with pytest.raises(AgentError) as error:
        install("onnxruntime", str(python(no_venv="x")), tmp_path / "runtimes", print)
    assert "apt install python3.10-venv" in error.value.hint


def test_an_unknown_backend_is_rejected_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="'caffe' is neither a backend nor a converter") as error:
        install("caffe", "", tmp_path, print)
    assert "onnxruntime" in error.value.hint


def test_options_of_pip_cannot_come_in_as_a_requirement(tmp_path: Path) -> None:
    for requirement in ("--index-url=http://x", "onnxruntime --pre", "onnxruntime==1 -e .", "onnxruntime>=1", ""):
        with pytest.raises(AgentError, match="is neither a backend nor a converter"):
            install(requirement, "", tmp_path, print)


def test_a_python_is_found_on_the_path(python: MakePython, monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer = python("python3.9"), python("python3.77")
    monkeypatch.setenv("PATH", f"{older.parent}:{os.environ['PATH']}")
    values_by_name = {item.path: item.version for item in find_pythons()}
    assert values_by_name[str(older)] == "3.9"
    assert values_by_name[str(newer)] == "3.77"
    assert values_by_name[sys.executable] == f"3.{sys.version_info[1]}"
    versions = [int(version.partition(".")[2]) for version in values_by_name.values()]
    assert versions == sorted(versions, reverse=True)


def test_the_newest_supported_python_is_chosen(
    tmp_path: Path,
    python: MakePython,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pythons = [runtimes.Python(str(python(f"python{version}")), version) for version in ("3.77", "3.10", "3.9")]
    monkeypatch.setattr(runtimes, "find_pythons", lambda: pythons)
    monkeypatch.setattr(runtimes, "all_backends", lambda: (replace(backend("onnxruntime"), python="3.9 3.10"),))
    messages: list[str] = []
    install("onnxruntime", "", tmp_path / "runtimes", messages.append)
    assert messages[0].startswith("onnxruntime with Python 3.10 ")


def test_without_a_supported_python_the_installed_ones_are_named(
    tmp_path: Path,
    python: MakePython,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pythons = [runtimes.Python(str(python("python3.77")), "3.77")]
    monkeypatch.setattr(runtimes, "find_pythons", lambda: pythons)
    monkeypatch.setattr(runtimes, "all_backends", lambda: (replace(backend("onnxruntime"), python="3.9 3.10"),))
    with pytest.raises(
        AgentError, match=r"has packages only for Python 3\.9 3\.10, and this machine has 3\.77"
    ) as error:
        install("onnxruntime", "", tmp_path / "runtimes", print)
    assert error.value.hint == "install Python 3.10, or give its path with --python"


def test_a_path_that_is_not_a_python_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="is not a working Python"):
        install("onnxruntime", "/bin/true", tmp_path, print)


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [("3.10", "3.10", True), ("3.1", "3.10", False), ("3.9", "3.8, 3.9", True), ("3.13", "", True)],
)
def test_versions_are_compared_as_a_whole(version: str, wanted: str, fits: bool) -> None:
    assert supports_python(version, wanted) is fits


def test_the_folder_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VISUALPROF_RUNTIMES", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert runtimes.runtimes_folder() == tmp_path / "visualprof" / "runtimes"
    monkeypatch.setenv("VISUALPROF_RUNTIMES", str(tmp_path / "own"))
    assert runtimes.runtimes_folder() == tmp_path / "own"
