"""The task of a case, and the check of its requirements."""

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

FRAMEWORK_PACKAGES = {"pytorch": ("torch",), "megengine": ("MegEngine",), "tensorflow": ("tensorflow",)}  # pip packages


@dataclass(frozen=True)
class CaseTask:
    """The case in `task.json`.

    Attributes:
        root: Folder with `benchmarks/` and `inference_engine/`.
        vendor: Name of the platform.
        framework: Name of the framework.
        device: The device, such as `cpu` or `cuda:1`.
        data_dir: Folder of the data, "" without data.
        command: Settings of the command line.
        description: The result of `Case.description`.
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
        """Return the name of the case."""
        return self.description["name"]


def read_case_task(work: Path) -> CaseTask:
    """Read the case of a work folder.

    Raises:
        OSError, ValueError, KeyError, TypeError: The file is missing or was not written by an agent.
    """
    return build(CaseTask, json.loads((work / "task.json").read_text("utf-8"))["case"])


def check_requirements(task: CaseTask, vendor: Vendor, engine: Sequence[str]) -> None:
    """Check the requirements of a case before it runs.

    Args:
        task: The case.
        vendor: The platform.
        engine: Packages of the engine that compiles.

    Raises:
        TaskFailure: Packages, data or the device are missing; the text names all of them.
    """
    packages = [
        *required_packages(task.description["requirements"], task.vendor),
        *FRAMEWORK_PACKAGES.get(task.framework, ()),
        *engine,
    ]
    package_names = {package_name(item).lower() for item in packages}
    folder = Path(task.root, "benchmarks", task.name)
    packages += [item for item in imported_packages(folder, task.framework) if item.lower() not in package_names]
    missing_packages = list(missing_requirements(dict.fromkeys(packages)))
    data_dir, location = (
        Path(task.data_dir or "/nowhere"),
        task.data_dir or msg("child.any_folder_name_one", "any folder: name one by --data"),
    )
    missing_data = [item for item in task.description.get("data", ()) if not (data_dir / item).exists()]
    problems = [msg("child.package", f"package: {item}") for item in missing_packages] + [
        msg("child.data_not", f"data: {item} is not in {location}") for item in missing_data
    ]
    if not missing_packages and task.framework == "pytorch" and vendor.device != "cpu" and not vendor.device_name():
        problems.append(
            msg("child.device_pytorch_sees_no", f"device: PyTorch in {sys.executable} sees no {vendor.title}")
        )
    if problems:
        packages = [repr(item.partition(" (")[0]) for item in missing_packages if item != TRTEXEC]
        hint = msg("child.m_pip_install", f"{sys.executable} -m pip install {' '.join(packages)}") if packages else ""
        raise TaskFailure(
            "no_runtime" if missing_packages else "input_error",
            msg("child.missing", f"missing: {'; '.join(problems)}"),
            hint,
        )
