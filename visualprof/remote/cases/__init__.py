"""Benchmark cases: validate a model in its framework, compile it with a platform's engine, and compare both.

A case is a folder (docs/cases.md):

    configurations.yaml    batch_size, flops, fp16, compiler, num_workers, log_freq, repeat, no_validation,
                           exist_onnx_path, exist_compiler_path, and other keys that vendors may override
    parameters.yaml        values that vendors may not change; `tolerance`: accuracy that inference may lose (0.01)
    vendor_config/VENDOR.yaml        (or VENDOR_configurations.yaml)
    FRAMEWORK/__init__.py            `build_dataloader(config)`, `create_model(config)`, `evaluator(outputs, target)`,
                                     `export_model(model, config) -> path of the ONNX file`, and where the case needs
                                     its own, `model_forward(model, dataloader, evaluator, config)` and
                                     `engine_forward(engine, dataloader, evaluator, config)`, both
                                     -> (whole samples a second, core samples a second, accuracy), and where it has
                                     them, a dictionary of further metrics
    requirements.txt, requirements-VENDOR.txt    packages by pip's names, checked before anything starts
    case.yaml              title, framework (the default of several), data: [required files or folders below data_dir],
                           weights: [the same]
    data/                  small data that ships with the case: the default of data_dir

or FlagPerf's own tree, in which `configs/CASE` and `benchmarks/CASE/FRAMEWORK` are separate. Shipped cases are the
folders of `library/`. Vendors (accelerator platforms) are the files of `vendors/`, each with a `VENDOR`. A new one
needs no other change.

Only the standard library is imported: the code runs in the command and in the interpreter of a runtime.
Times passed to and from FlagPerf's functions are float seconds; stored times are int ns.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

STEPS = ("init", "data+model", "validation", "export", "compile", "inference", "summary")
CASE_SCHEMA = "visualprof.case/1"


class InferModel(Protocol):
    """A compiled model. It may also have `effective()` -> dict[str, str]: precision, threads, ... that really run."""

    def __call__(self, inputs: list[Any], /) -> tuple[list[Any], float]:
        """Run one batch. Return the outputs as tensors of the framework, and the seconds that were not inference."""
        ...


@dataclass(frozen=True)
class Engine:
    """The engine of a `compiler:` in a configuration.

    Args:
        make: (config, path of the ONNX file or "", model) -> a compiled model, as FlagPerf's class InferModel.
        requires: Required packages, as in a requirements file: `tensorrt>=8,<10`.
        onnx: Whether it reads the exported file; otherwise the step `export` is skipped.
        loads_compiled: Whether it can load the file `exist_compiler_path` instead of compiling.
        fp16: Whether it computes in half precision if the configuration asks for it.
        backend: The backend of `remote.backends` whose runtime an agent needs; "" for that of the compiler's name.
        frameworks: Frameworks that use this engine by default, because no other engine reads their exported files.
    """

    make: Callable[[Any, str, Any], InferModel]
    requires: tuple[str, ...] = ()
    onnx: bool = True
    loads_compiled: bool = False
    fp16: bool = True
    backend: str = ""
    frameworks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Peak:
    """The peak performance of a device.

    Attributes:
        flops: Operations per second.
        source: `datasheet` or `measured`, with the clock where it matters.
    """

    flops: float
    source: str


def _nothing(*_: Any) -> None:
    return None


@dataclass(frozen=True)
class Vendor:
    """An accelerator platform: the maker of a device, or the CPU.

    A case sees one device. `visible` hides all others, so that FlagPerf's `.cuda()` selects the right one.

    Args:
        name: The name in `vendor_config/NAME.yaml` and `--vendor NAME`.
        title: The name in texts.
        device: `cpu` or `cuda`, as in `Spec.device`.
        engines: Engines by the compiler's name.
        synchronize: Waits until the device has finished all its work.
        prepare: (framework) called once before the case's code is imported; may make `.cuda()` do nothing.
        device_name: Returns the name of the device that the case sees, "" if unknown.
        peak: (`fp32` or `fp16`) -> its peak performance, `None` if unknown. May measure for at most a second.
        monitor: `module:class` of the sampler, loaded by the process that starts the child; "" for the host's only. It
            is
            created without arguments and has `gpus()`, `uuid(device)` and `sample(device)` as
            `agent.machine.nvml.Nvml`, with the same names for the readings.
        visible: The environment variable that hides other devices, "" without such a variable.
    """

    name: str
    title: str
    device: str
    engines: Mapping[str, Engine] = field(default_factory=dict[str, Engine])
    synchronize: Callable[[], None] = _nothing
    prepare: Callable[[str], None] = _nothing
    device_name: Callable[[], str] = str
    peak: Callable[[str], Peak | None] = _nothing
    monitor: str = ""
    visible: str = ""

    @property
    def framework_compilers(self) -> dict[str, str]:
        """The default compiler of frameworks that need an engine of their own; other cases name theirs."""
        return {framework: name for name, engine in self.engines.items() for framework in engine.frameworks}


@cache
def all_vendors() -> dict[str, Vendor]:
    """Return the platforms of the folder by name."""
    from visualprof.remote.cases import vendors

    modules = (importlib.import_module(f"{vendors.__name__}.{m.name}") for m in pkgutil.iter_modules(vendors.__path__))
    platforms = (module.VENDOR for module in modules if hasattr(module, "VENDOR"))
    return {vendor.name: vendor for vendor in sorted(platforms, key=lambda vendor: vendor.name)}
