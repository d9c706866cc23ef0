"""A case as its child finds it, and what the machine lacks for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.cases import Vendor
from visualprof.remote.cases.folder import required_packages
from visualprof.remote.cases.requirements import TRTEXEC, imported_packages, missing_requirements, package_name
from visualprof.remote.protocol import TaskFailure, build

FRAMEWORKS = {"pytorch": ("torch",), "megengine": ("MegEngine",), "tensorflow": ("tensorflow",)}  # packages of pip's


@dataclass(frozen=True)
class CaseTask:
    """A case as it is laid down.

    root: folder with `benchmarks/` and `inference_engine/`. data_dir: "" without data. command: the settings of the
    command line. device: `cpu`, `cuda:1`. description: of `Case.description`.
    """

    root: str
    vendor: str
    framework: str
    device: str = "cpu"
    data_dir: str = ""
    command: dict[str, Any] = field(default_factory=dict[str, Any])
    description: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        """Of the case."""
        return self.description["name"]


def read_case_task(work: Path) -> CaseTask:
    """The case of a work folder. Raises: OSError, ValueError, KeyError, TypeError: it is not what is written."""
    return build(CaseTask, json.loads((work / "task.json").read_text("utf-8"))["case"])


def check_requirements(task: CaseTask, vendor: Vendor, engine: Sequence[str]) -> None:
    """Look for what a case needs before anything of it runs. engine: packages of the engine that compiles.

    Raises: TaskFailure: packages, data or the vendor's device are missing, all of which it names.
    """
    packages = [
        *required_packages(task.description["requirements"], task.vendor),
        *FRAMEWORKS.get(task.framework, ()),
        *engine,
    ]
    named = {package_name(one).lower() for one in packages}
    folder = Path(task.root, "benchmarks", task.name)
    packages += [one for one in imported_packages(folder, task.framework) if one.lower() not in named]
    lacking = list(missing_requirements(dict.fromkeys(packages)))
    data_dir, where = (
        Path(task.data_dir or "/nowhere"),
        task.data_dir or msg("child.any_folder_name_one", "any folder: name one by --data"),
    )
    absent = [one for one in task.description.get("data", ()) if not (data_dir / one).exists()]
    problems = [msg("child.package", f"package: {one}") for one in lacking] + [
        msg("child.data_not", f"data: {one} is not in {where}") for one in absent
    ]
    if not lacking and task.framework == "pytorch" and vendor.device != "cpu" and not vendor.device_name():
        problems.append(
            msg("child.device_pytorch_sees_no", f"device: PyTorch in {sys.executable} sees no {vendor.title}")
        )
    if problems:
        packages = [repr(one.partition(" (")[0]) for one in lacking if one != TRTEXEC]
        hint = msg("child.m_pip_install", f"{sys.executable} -m pip install {' '.join(packages)}") if packages else ""
        raise TaskFailure(
            "no_runtime" if lacking else "input_error", msg("child.missing", f"missing: {'; '.join(problems)}"), hint
        )
