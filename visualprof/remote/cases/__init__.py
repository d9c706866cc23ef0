"""Benchmark cases: a model is validated in its framework, compiled by a vendor's engine, and both are compared.

A case is a folder (docs/cases.md):

    configurations.yaml    batch_size, flops, fp16, compiler, num_workers, log_freq, repeat, no_validation,
                           exist_onnx_path, exist_compiler_path, and whatever else the case wants vendors to choose
    parameters.yaml        what vendors may not change; `tolerance` is the accuracy that inference may lose (0.01)
    vendor_config/VENDOR.yaml        (or VENDOR_configurations.yaml)
    FRAMEWORK/__init__.py            `build_dataloader(config)`, `create_model(config)`, `evaluator(outputs, target)`,
                                     `export_model(model, config) -> path of the ONNX file`, and where the case needs
                                     its own, `model_forward(model, dataloader, evaluator, config)` and
                                     `engine_forward(engine, dataloader, evaluator, config)`, both
                                     -> (whole samples a second, core samples a second, accuracy), and where it has
                                     them, a dictionary of further metrics
    requirements.txt, requirements-VENDOR.txt    packages by pip's names, checked before anything starts
    case.yaml              title, framework (of several, where nobody chooses), data: [files or folders below data_dir
                           that have to be there], weights: [the same]
    data/                  small data that comes with it: data_dir where nobody names another one

or FlagPerf's own tree, in which `configs/CASE` and `benchmarks/CASE/FRAMEWORK` lie apart. Cases that ship are the
folders of `library/`. Vendors are the files of `vendors/`, each with a `VENDOR`: nothing else is edited for a new one.

Standard library alone: it is read by the command, and runs in the interpreter of a runtime, as the backends do.
Times that FlagPerf's functions exchange are float seconds, as theirs; everything that is kept is int ns.
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
    """A compiled model. May also have `effective()` -> dict[str, str]: what really runs (precision, threads, ...)."""

    def __call__(self, inputs: list[Any], /) -> tuple[list[Any], float]:
        """One batch: the outputs as tensors of the framework, and seconds that are no part of inference (0.0)."""
        ...


@dataclass(frozen=True)
class Engine:
    """What a `compiler:` of a configuration names.

    Args:
        make: (config, path of the ONNX file or "", model) -> a compiled model, as FlagPerf's class InferModel.
        requires: packages that it needs, as in a requirements file: `tensorrt>=8,<10`.
        onnx: whether it reads the exported file; else the step `export` is left out.
        keeps: whether `exist_compiler_path` names something that it can load in place of compiling.
        fp16: whether it computes in half precision when the configuration says so.
        backend: of `remote.backends`, whose runtime an agent has to have for it; "" that of the compiler's name.
    """

    make: Callable[[Any, str, Any], InferModel]
    requires: tuple[str, ...] = ()
    onnx: bool = True
    loads_compiled: bool = False
    fp16: bool = True
    backend: str = ""


@dataclass(frozen=True)
class Peak:
    """What a device can do. flops: a second. source: `datasheet`, `measured`, with the clock where it counts."""

    flops: float
    source: str


def _nothing(*_: Any) -> None:
    return None


@dataclass(frozen=True)
class Vendor:
    """A maker of devices, or the CPU.

    A case sees one device, the first: `visible` hides all others, so that FlagPerf's `.cuda()` means the right one.

    Args:
        name: as in `vendor_config/NAME.yaml` and `--vendor NAME`.
        title: what texts call it.
        device: `cpu` or `cuda`, of `Spec.device`.
        engines: by the compiler's name.
        synchronize: waits until the device has done all that it was asked for.
        prepare: (framework) called once before the case's code is imported; may make `.cuda()` do nothing.
        device_name: of the device that the case sees, "" unknown.
        peak: (`fp32` or `fp16`) -> its most operations a second, None unknown. May measure, for a second at most.
        monitor: `module:class` of the sampler, loaded by whoever starts the child, "" for the host's alone. It is made
            without arguments and has `gpus()`, `uuid(device)` and `sample(device)` as `agent.machine.nvml.Nvml`, with
            the same names for the readings.
        visible: the environment variable that hides other devices, "" none.
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


@cache
def all_vendors() -> dict[str, Vendor]:
    """The vendors of the folder by their names."""
    from visualprof.remote.cases import vendors

    modules = (importlib.import_module(f"{vendors.__name__}.{m.name}") for m in pkgutil.iter_modules(vendors.__path__))
    found = (module.VENDOR for module in modules if hasattr(module, "VENDOR"))
    return {vendor.name: vendor for vendor in sorted(found, key=lambda vendor: vendor.name)}
