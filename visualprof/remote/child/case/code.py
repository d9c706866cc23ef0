"""The code of a case, found where FlagPerf stores it, with the FlagPerf modules that it may import."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from visualprof.messages import msg
from visualprof.remote.cases import Engine, InferModel, Vendor
from visualprof.remote.cases.folder import FUNCTIONS
from visualprof.remote.cases.requirements import engine_requirements
from visualprof.remote.child.case import logger
from visualprof.remote.protocol import TaskFailure

MODULES = ("", "dataloader", "model", "evaluator", "export", "forward")  # in the framework's folder; "": the package
REQUIRED_FUNCTIONS = FUNCTIONS[:4]


class CaseCode:
    """The functions of a case by name. The two forward functions may be missing.

    Args:
        root: The folder with `benchmarks/CASE/FRAMEWORK`.
        case: Name of the case.
        framework: Name of the framework.
        vendor: The platform for whose device `tools.torch_sync` waits.
    """

    def __init__(self, root: Path, case: str, framework: str, vendor: Vendor) -> None:
        _shims(vendor)
        sys.path.insert(0, str(root))
        sys.path.append(str(root / "benchmarks" / case))  # last: its folder `megengine` is not the package
        for name, folder in (("benchmarks", ""), (f"benchmarks.{case}", case)):
            _package(name, root / "benchmarks" / folder)
        vendor.prepare(framework)
        _export_as_written(framework)
        package = f"benchmarks.{case}.{framework}"
        folder = root / "benchmarks" / case / framework
        modules = [f"{package}.{name}" if name else package for name in MODULES if _is_there(folder, name)]
        loaded = [importlib.import_module(name) for name in modules]
        self.functions: dict[str, Callable[..., Any]] = {}
        for name in FUNCTIONS:
            candidates = (getattr(module, name, None) for module in loaded)
            if (function := next(filter(callable, candidates), None)) is not None:
                self.functions[name] = function
        if missing := [name for name in REQUIRED_FUNCTIONS if name not in self.functions]:
            hint = msg("child.init_py_exports", f"{framework}/__init__.py exports {', '.join(REQUIRED_FUNCTIONS)}")
            raise TaskFailure("input_error", msg("child.case_no", f"the case has no {', '.join(missing)}"), hint)


def find_engine(root: Path, vendor: Vendor, compiler: str) -> Engine:
    """Return the engine of a compiler: the case's own class InferModel, otherwise the platform's engine.

    A case stores its class in `inference_engine/VENDOR/COMPILER.py`.

    Raises:
        TaskFailure: There is no such compiler.
    """
    folder = root / "inference_engine" / vendor.name
    if (folder / f"{compiler}.py").is_file():
        requires = engine_requirements(folder / f"{compiler}.py")
        return Engine(partial(_own_engine, root, vendor.name, compiler), requires, loads_compiled=True)
    if compiler in vendor.engines:
        return vendor.engines[compiler]
    names = ", ".join(sorted(vendor.engines)) or "none"
    hint = msg(
        "child.add_inference_engine_py",
        f"it has {names}; or add inference_engine/{vendor.name}/{compiler}.py with a class InferModel",
    )
    raise TaskFailure("input_error", msg("child.no_compiler", f"{vendor.title} has no compiler {compiler!r}"), hint)


def _own_engine(root: Path, vendor: str, compiler: str, config: Any, onnx_path: str, model: Any) -> InferModel:
    """Return the compiled model of a case's own InferModel class."""
    _package("inference_engine", root / "inference_engine")
    _package(f"inference_engine.{vendor}", root / "inference_engine" / vendor)
    return importlib.import_module(f"inference_engine.{vendor}.{compiler}").InferModel(config, onnx_path, model)


def _is_there(folder: Path, name: str) -> bool:
    return not name or (folder / f"{name}.py").is_file()


def _package(name: str, folder: Path) -> None:
    """Register a package without a file, which hides other packages of that name."""
    module = ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)


def _synchronize(vendor: Vendor, config: Any) -> None:
    """Implement `torch_sync(config)` for any platform; FlagPerf's version ignores platforms that it does not know."""
    vendor.synchronize()


def _export_as_written(framework: str) -> None:
    """Export with TorchScript unless a case passes `dynamo`, because FlagPerf's cases were written for it."""
    if framework != "pytorch" or not importlib.util.find_spec("torch"):
        return
    onnx: Any = importlib.import_module("torch").onnx
    export = onnx.export

    def exported(*arguments: Any, **named: Any) -> Any:
        return export(*arguments, **({"dynamo": False} | named))

    if "dynamo" in inspect.signature(export).parameters:
        onnx.export = exported


def _shims(vendor: Vendor) -> None:
    """Register FlagPerf's `tools`, and a replacement for loguru if it is not installed."""
    tools: Any = ModuleType("tools")
    tools.__path__ = []
    tools.torch_sync = partial(_synchronize, vendor)
    sync: Any = ModuleType("tools.torch_sync")
    sync.torch_sync = tools.torch_sync
    sys.modules |= {"tools": tools, "tools.torch_sync": sync}
    if importlib.util.find_spec("loguru"):
        loguru: Any = importlib.import_module("loguru")
        for name, number in logger.LEVELS.items():
            if " " in name:
                loguru.logger.level(name, no=number)
        return
    module: Any = ModuleType("loguru")
    module.logger = logger.Logger()
    sys.modules["loguru"] = module
