"""Checks of an installation and of the accelerator of this machine, which take seconds."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from visualprof import __version__
from visualprof.errors import MissingData
from visualprof.gpu_kit import Skip
from visualprof.gpu_kit.accelerator import KINDS, Accelerator
from visualprof.gpu_kit.report import Report, new_report
from visualprof.messages import msg

# What each optional package adds.
PACKAGES = {
    "torch": "records PyTorch programs; measures TorchScript and torch.export models",
    "onnxruntime": "records and measures ONNX models",
    "openvino": "measures ONNX and OpenVINO models",
    "tensorrt": "measures TensorRT engines",
    "megengine": "records and measures MegEngine models",
    "paddle": "records Paddle programs",
    "duckdb": "answers SQL: visualprof query",
    "pandas": "frames of the Python API",
    "pyecharts": "charts of the Python API",
}

ACCELERATOR_LIMIT_S = 16.0  # all checks together end within 20 s
ACCELERATOR_COMMAND = (sys.executable, "-m", "visualprof.gpu_kit.doctor")


class Finding(msgspec.Struct, kw_only=True):
    """One fact about this machine.

    Attributes:
        ok: Whether the subject is present and works; None if unknown.
        value: Detail, such as a version.
        advice: A remedy, or the functions that are missing without the subject.
        required: Whether visualprof needs the subject.
    """

    name: str
    ok: bool | None
    value: str = ""
    advice: str = ""
    required: bool = False


_FINDINGS = msgspec.json.Decoder(Finding)


def check_installation() -> list[Finding]:
    """Return facts about the installed packages, the cache and the sandbox."""
    from visualprof.reader import native
    from visualprof.reader.cache import Cache
    from visualprof.remote.agent.machine.sandbox import sandbox_level

    why: list[str] = []
    level = sandbox_level("auto", why.append)
    native_ok = native.library() is not None
    findings = [
        Finding(name="visualprof", ok=True, value=f"{__version__}, Python {platform.python_version()}"),
        Finding(
            name="native reader",
            ok=native_ok,
            value=native.describe_state().removeprefix("yes ").removeprefix("no: "),
        ),
        _writable("cache", Cache.default().folder),
        Finding(name="sandbox", ok=level > 0, value=f"level {level}", advice="; ".join(why)),
    ]
    return findings + [_package(name, purpose) for name, purpose in PACKAGES.items()]


def check_accelerator(
    kind: str, limit_s: float = ACCELERATOR_LIMIT_S, command: Sequence[str] = ACCELERATOR_COMMAND
) -> list[Finding]:
    """Return facts about the accelerator. A driver that hangs ends only the process that asks it.

    Args:
        kind: An element of `KINDS`, or "auto".
        limit_s: Time for all facts.
        command: Program that prints them, one JSON object per line.
    """
    try:
        done = subprocess.run([*command, kind], capture_output=True, timeout=limit_s, check=False)
        output, problem = done.stdout, f"the check ended with status {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        output, problem = error.output or b"", f"no answer after {limit_s:g} s"
    return parse_findings(output, problem)


def parse_findings(output: bytes, problem: str) -> list[Finding]:
    """Return the printed facts; a check that was ended early adds a fact about the next one.

    Args:
        output: One JSON object per line, and lines that libraries print; the last line may be incomplete.
        problem: Why the check ended early; "" if it is complete.
    """
    findings = [_FINDINGS.decode(line) for line in output.split(b"\n")[:-1] if line.startswith(b"{")]
    if problem:
        last = f"after: {findings[-1].name}" if findings else "driver or framework"
        advice = "restart the machine or its driver if another program also hangs"
        findings.append(Finding(name=last, ok=False, value=problem, advice=advice, required=True))
    return findings


def accelerator_findings(kind: str) -> Iterator[Finding]:
    """Yield facts about the accelerator from its driver, the framework and ONNX Runtime."""
    from visualprof.peaks import find_peak
    from visualprof.remote.agent.machine.nvml import Nvml

    try:
        accelerator = find_accelerator(kind)
    except MissingData as error:
        yield Finding(name="accelerator", ok=False, value=error.error, advice=error.hint, required=True)
        return
    yield Finding(name="accelerator", ok=True, value=f"{accelerator.kind}: {accelerator.name}", required=True)
    driver = driver_version(accelerator)
    yield Finding(name="driver", ok=True if driver else None, value=driver)
    nvml = Nvml()
    gpus = nvml.gpus()
    yield Finding(
        name="readings (NVML)",
        ok=bool(gpus) if accelerator.kind == "cuda" else None,
        value=", ".join(gpu.name for gpu in gpus),
        advice=f"jobs have no utilization, clocks and power: {nvml.problem}",
    )
    yield _works("a kernel runs", lambda: _run_kernel(accelerator))
    yield _works("device activity is recorded", lambda: _record_kernel(accelerator))
    yield _works("memory history", lambda: _record_history(accelerator))
    yield Finding(
        name="datasheet",
        ok=find_peak(accelerator.name) is not None if accelerator.is_device else None,
        advice=f"no roofline: {accelerator.name} is not in visualprof/peaks.py",
    )
    yield Finding(
        name="ONNX Runtime provider", ok=_provider(accelerator), advice="ONNX jobs run on the CPU: onnxruntime-gpu"
    )


def find_accelerator(kind: str) -> Accelerator:
    """Return the accelerator of a kind; "auto" returns the first that is available.

    Raises:
        MissingData: This machine has no such accelerator.
    """
    reasons: list[str] = []
    for candidate in (kind,) if kind != "auto" else KINDS[:-1]:
        try:
            return Accelerator(candidate)
        except Skip as skip:  # noqa: PERF203 - at most three kinds
            reasons.append(skip.error)
    raise MissingData(
        "; ".join(dict.fromkeys(reasons)), msg("doctor.device_cpu", "--device cpu runs the kit without an accelerator")
    )


def begin_report(kind: str) -> Report:
    """Return a report without parts for the accelerator of this machine.

    Raises:
        MissingData: This machine has no such accelerator.
    """
    accelerator = find_accelerator(kind)
    versions = {name: version for name in PACKAGES if (version := _version(name))}
    return new_report(accelerator.kind, accelerator.name, driver_version(accelerator), versions)


def _package(name: str, purpose: str) -> Finding:
    version = _version(name)
    return Finding(name=name, ok=bool(version), value=version, advice=purpose)


def _version(name: str) -> str:
    """Return the version of an installed package; "" if it is missing."""
    if not importlib.util.find_spec(name):
        return ""
    distributions = metadata.packages_distributions().get(name, [name])
    return metadata.version(distributions[0])


def _writable(name: str, folder: Path) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return Finding(
        name=name,
        ok=os.access(existing, os.W_OK),
        value=str(folder),
        advice="set VISUALPROF_CACHE_DIR to a folder that you may write",
        required=True,
    )


def _works(name: str, trial: Callable[[], str]) -> Finding:
    """Return whether a trial works on the device; the trial returns a short detail, or raises Skip."""
    try:
        return Finding(name=name, ok=True, value=trial())
    except Skip as skip:
        return Finding(name=name, ok=None, value=skip.error)
    except Exception as error:  # noqa: BLE001 - drivers and frameworks raise anything
        return Finding(name=name, ok=False, value=f"{type(error).__name__}: {error}"[:200], required=True)


def _run_kernel(accelerator: Accelerator) -> str:
    ones = accelerator.torch.ones(64, 64, device=accelerator.kind)
    total = float((ones @ ones).sum())
    if total != 64**3:
        raise ArithmeticError(f"the product of ones sums to {total}")
    return f"launch {accelerator.median_ms(ones.zero_, 50) * 1e3:.1f} us"


def _record_kernel(accelerator: Accelerator) -> str:
    """Record one matrix product. The profiler records no device activity without permission for its counters."""
    profiler: Any = importlib.import_module("torch.profiler")
    ones = accelerator.torch.ones(64, 64, device=accelerator.kind)
    activities = [getattr(profiler.ProfilerActivity, name) for name in {"CPU", _activity(accelerator)}]
    with profiler.profile(activities=activities) as recorded:
        accelerator.torch.mm(ones, ones)
        accelerator.synchronize()
    kernels = [event for event in recorded.events() if "CPU" not in str(event.device_type)]
    if accelerator.is_device and not kernels:
        raise PermissionError("the profiler recorded no kernel: allow the performance counters to users")
    return f"{len(kernels)} kernels"


def _activity(accelerator: Accelerator) -> str:
    return {"cuda": "CUDA", "xpu": "XPU", "npu": "PrivateUse1", "cpu": "CPU"}[accelerator.kind]


def _record_history(accelerator: Accelerator) -> str:
    if accelerator.kind != "cuda":
        raise Skip(f"PyTorch records no memory history on {accelerator.kind}")
    memory = accelerator.torch.cuda.memory
    memory._record_memory_history(max_entries=100)  # noqa: SLF001 - PyTorch's documented way
    accelerator.torch.ones(1 << 20, device="cuda")
    entries = sum(map(len, memory._snapshot()["device_traces"]))  # noqa: SLF001
    memory._record_memory_history(enabled=None)  # noqa: SLF001
    if not entries:
        raise RuntimeError("no allocation was recorded")
    return f"{entries} entries"


def _provider(accelerator: Accelerator) -> bool | None:
    """Whether ONNX Runtime can use the device; None without ONNX Runtime or on the CPU."""
    if not accelerator.is_device or not importlib.util.find_spec("onnxruntime"):
        return None
    runtime: Any = importlib.import_module("onnxruntime")
    return any(provider.lower().startswith(accelerator.kind) for provider in runtime.get_available_providers())


def driver_version(accelerator: Accelerator, root: Path = Path("/")) -> str:
    """Return the version of the device's driver; "" if it is unknown.

    Args:
        accelerator: The device.
        root: Root of the file system with the files of the drivers.
    """
    if accelerator.kind == "xpu":
        return str(getattr(accelerator.torch.xpu.get_device_properties(0), "driver_version", ""))
    if accelerator.kind == "npu":
        return _value_in(root / "usr/local/Ascend/driver/version.info", "Version=")
    return (_nvidia_driver() or _value_in(root / "sys/module/amdgpu/version", "")) if accelerator.is_device else ""


def _value_in(path: Path, prefix: str) -> str:
    """Return the rest of the first line with a prefix; "" without the file or such a line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return ""
    return next((line.removeprefix(prefix).strip() for line in lines if line.startswith(prefix)), "")


def _nvidia_driver() -> str:
    """Return the version of NVIDIA's driver; "" if it is unknown."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        version = nvml.nvmlSystemGetDriverVersion()
    except Exception:  # noqa: BLE001 - the errors of pynvml and of a missing module share no class
        return ""
    return version.decode() if isinstance(version, bytes) else str(version)


if __name__ == "__main__":
    for finding in accelerator_findings(sys.argv[1]):
        sys.stdout.buffer.write(msgspec.json.encode(finding) + b"\n")
        sys.stdout.buffer.flush()
