"""Checks of the accelerator by `visualprof doctor`: drivers that hang, and versions of drivers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.doctor import ACCELERATOR_LIMIT_S, check_accelerator, driver_version, parse_findings

LINE = b'{"name":"accelerator","ok":true,"value":"cuda: NVIDIA A100","required":true}\n'


def test_a_driver_that_hangs_ends_only_its_own_process() -> None:
    (finding,) = check_accelerator("cuda", 0.1, ("sh", "-c", "exec tail -f /dev/null"))
    assert (finding.ok, finding.value, finding.required) == (False, "no answer after 0.1 s", True)
    assert ACCELERATOR_LIMIT_S <= 16, "the other checks need up to 4 of 20 seconds"


def test_facts_before_the_hang_are_kept() -> None:
    first, second = parse_findings(b"a library prints\n" + LINE + b'{"name":"drive', "no answer after 16 s")
    assert (first.name, first.ok, first.value) == ("accelerator", True, "cuda: NVIDIA A100")
    assert (second.name, second.ok) == ("after: accelerator", False)
    assert [finding.name for finding in parse_findings(LINE, "")] == ["accelerator"]


def test_a_check_that_crashes_is_a_fact() -> None:
    (finding,) = check_accelerator("cuda", 60, (sys.executable, "-c", "import os; os.abort()"))
    assert finding.ok is False
    assert "status -6" in finding.value


@pytest.mark.parametrize(
    ("kind", "file", "text", "version"),
    [
        ("npu", "usr/local/Ascend/driver/version.info", "Version=24.1.rc1\nascendhal_version=7\n", "24.1.rc1"),
        ("cuda", "sys/module/amdgpu/version", "6.8.5\n", "6.8.5"),
        ("cuda", "elsewhere", "", ""),
        ("cpu", "sys/module/amdgpu/version", "6.8.5\n", ""),
    ],
)
def test_the_version_of_a_driver_is_that_of_its_file(
    kind: str, file: str, text: str, version: str, tmp_path: Path
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    device: Any = SimpleNamespace(kind=kind, is_device=kind != "cpu")
    assert driver_version(cast("Accelerator", device), tmp_path) == version


def test_intels_driver_is_asked_through_pytorch() -> None:
    properties = SimpleNamespace(driver_version="1.3.31441")
    torch = SimpleNamespace(xpu=SimpleNamespace(get_device_properties=lambda _: properties))
    device: Any = SimpleNamespace(kind="xpu", is_device=True, torch=torch)
    assert driver_version(cast("Accelerator", device)) == "1.3.31441"
