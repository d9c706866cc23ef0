"""A case's own code: found where FlagPerf has it, with the modules of FlagPerf's that it may import."""

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

MODULES = ("", "dataloader", "model", "evaluator", "export", "forward")  # of the framework's folder
REQUIRED_FUNCTIONS = FUNCTIONS[:4]


class CaseCode:
    """The functions of a case, None for the two that it may leave out.

    Args:
        root: the folder with `benchmarks/CASE/FRAMEWORK`.
        vendor: whose device `tools.torch_sync` waits for.
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
            named = (getattr(module, name, None) for module in loaded)
            if (function := next(filter(callable, named), None)) is not None:
                self.functions[name] = function
        if lacking := [name for name in REQUIRED_FUNCTIONS if name not in self.functions]:
            hint = msg("child.init_py_exports", f"{framework}/__init__.py exports {', '.join(REQUIRED_FUNCTIONS)}")
            raise TaskFailure("input_error", msg("child.case_no", f"the case has no {', '.join(lacking)}"), hint)


def find_engine(root: Path, vendor: Vendor, compiler: str) -> Engine:
    """What compiles: the case's own `inference_engine/VENDOR/COMPILER.py` with a class InferModel, else the vendor's.

    Raises: TaskFailure: there is neither.
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
    """What a class of FlagPerf's form makes."""
    _package("inference_engine", root / "inference_engine")
    _package(f"inference_engine.{vendor}", root / "inference_engine" / vendor)
    return importlib.import_module(f"inference_engine.{vendor}.{compiler}").InferModel(config, onnx_path, model)


def _is_there(folder: Path, name: str) -> bool:
    return not name or (folder / f"{name}.py").is_file()


def _package(name: str, folder: Path) -> None:
    """A package that has no file, before all others of that name."""
    module = ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)


def _synchronize(vendor: Vendor, config: Any) -> None:
    """`torch_sync(config)` for any vendor: FlagPerf's knows some by name and does nothing for the others."""
    vendor.synchronize()


def _export_as_written(framework: str) -> None:
    """Export by TorchScript unless a case says `dynamo`: FlagPerf's cases were written when there was nothing else."""
    if framework != "pytorch" or not importlib.util.find_spec("torch"):
        return
    onnx: Any = importlib.import_module("torch").onnx
    export = onnx.export

    def exported(*arguments: Any, **named: Any) -> Any:
        return export(*arguments, **({"dynamo": False} | named))

    if "dynamo" in inspect.signature(export).parameters:
        onnx.export = exported


def _shims(vendor: Vendor) -> None:
    """FlagPerf's `tools`, and loguru where it is not installed."""
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
