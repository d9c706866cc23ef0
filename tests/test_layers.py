"""import-linter really refuses what the house rules forbid."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_guides import copied

LINT = str(Path(sys.executable).with_name("lint-imports"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return copied(tmp_path)


def lint(root: Path) -> str:
    """What import-linter says of a copy of the package; "" when all is well."""
    command = [LINT, "--no-cache"]
    done = subprocess.run(command, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode else ""


@pytest.mark.parametrize(
    ("folder", "name", "other"),
    [
        ("reader.formats", "kineto", "paddle"),
        ("reader.models", "onnx", "torchscript"),
        ("views", "runtime", "kernel"),
        ("remote.backends", "torch", "openvino"),
        ("remote.converters", "onnx_fp16", "onnxruntime"),
    ],
)
def test_plugins_of_a_kind_do_not_know_each_other(root: Path, folder: str, name: str, other: str) -> None:
    module = root / "visualprof" / folder.replace(".", "/") / name
    file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    file.write_text(file.read_text("utf-8") + f"\nfrom visualprof.{folder} import {other}\n", "utf-8")
    assert f"visualprof.{folder}.{name} -> visualprof.{folder}.{other}" in lint(root).replace(" \n", " ")


def test_views_do_not_import_the_server(root: Path) -> None:
    file = root / "visualprof" / "views" / "kernel.py"
    file.write_text(file.read_text("utf-8") + "\nfrom visualprof.server import app\n", "utf-8")
    assert "layers BROKEN" in lint(root)


def test_an_import_cycle_is_detected(root: Path) -> None:
    file = root / "visualprof" / "reader" / "source.py"
    file.write_text(file.read_text("utf-8") + "\nfrom visualprof.reader import registry\n", "utf-8")
    assert "no import cycles BROKEN" in lint(root)
