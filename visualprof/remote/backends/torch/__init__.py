"""PyTorch: TorchScript, torch.export and single operators, on CPU and CUDA. Files that need unpickling are rejected."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.backends import (
    Backend,
    Feeds,
    FileFormat,
    ProfileFile,
    Session,
    call_format,
    resolve_options,
)
from visualprof.remote.backends.torch.exported import SAVE, Call, is_export, load_export
from visualprof.remote.operators import call_file
from visualprof.remote.protocol import Spec, TaskFailure

OPTIONS = {
    "mode": ("eager", "compile"),  # for a .pt2: operator by operator, or torch.compile
    "optimize": ("none", "freeze", "optimize_for_inference"),  # for TorchScript
    "memory_format": (msg("backends.model", "as the model"), "channels_last"),
    "lower_by": ("autocast", "cast"),  # for the precisions f16 and bf16
}
TYPES = {"f16": "float16", "bf16": "bfloat16"}
IMAGES = 4  # dimensions of the tensors that channels_last reorders
SIZES = 1024  # input sizes for which torch.compile may compile a model
WARM_UP = 5  # TorchScript specializes in its first runs
BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')


class TorchSession(Session):
    """A module with its inference modes, which are active in this thread until the session is closed."""

    def __init__(self, module: Any, call: Callable[[Feeds], Call], spec: Spec, options: dict[str, str]) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._module = module
        self._call = call
        self._settings = _settings(spec, options)
        self.device = self._torch.device(spec.device)
        self._cuda = self.device.type == "cuda"
        self._dtype = getattr(self._torch, TYPES[spec.precision]) if spec.precision in TYPES else None
        self._casts = self._dtype is not None and options["lower_by"] == "cast"
        self._channels_last = options["memory_format"] == "channels_last"
        self._modes = self.modes()

    def modes(self) -> ExitStack:
        """Enter the modes in this thread."""
        modes = ExitStack()
        modes.enter_context(self._torch.inference_mode())
        if self._dtype and not self._casts:
            modes.enter_context(self._torch.autocast(self.device.type, self._dtype))
        return modes

    def prepare(self, feeds: Feeds) -> Any:
        """Return the module's arguments on the device, and reset the device's peak memory."""
        if self._cuda:
            self._torch.cuda.reset_peak_memory_stats(self.device)
        tensors = {name: self._placed(self._torch.from_numpy(values)) for name, values in feeds.items()}
        if self._cuda:
            self._torch.cuda.synchronize(self.device)
        return self._call(tensors)

    def _placed(self, tensor: Any) -> Any:
        """Move an input to the device, with the type and memory order of the weights."""
        dtype = self._dtype if self._casts and tensor.is_floating_point() else tensor.dtype
        last = self._channels_last and tensor.ndim == IMAGES
        order = self._torch.channels_last if last else self._torch.preserve_format
        return tensor.to(self.device, dtype, memory_format=order)

    def infer(self, prepared: Any) -> Any:
        """Run once and wait for the device."""
        outputs = self.call(prepared)
        if self._cuda:
            self._torch.cuda.synchronize(self.device)
        return outputs

    def call(self, prepared: Any) -> Any:
        """Run once without waiting for the device."""
        return self._module(*prepared[0], **prepared[1])

    def fetch(self, outputs: Any) -> list[Any]:
        """Return every output tensor as an array, bfloat16 as float32, because numpy has no bfloat16."""
        leaves: list[Any] = self._torch.utils._pytree.tree_leaves(outputs)  # noqa: SLF001
        tensors = [leaf.detach().cpu() for leaf in leaves if isinstance(leaf, self._torch.Tensor)]
        return [(t.float() if t.dtype == self._torch.bfloat16 else t).numpy() for t in tensors]

    def effective(self) -> dict[str, str]:
        """Return precision, device, threads and options."""
        return {**self._settings, "device": str(self.device), "threads": str(self._torch.get_num_threads())}

    def memory_bytes(self) -> int | None:
        """Return the peak memory of tensors on the device since the last `prepare`."""
        return int(self._torch.cuda.max_memory_allocated(self.device)) if self._cuda else None

    def close(self) -> None:
        """Leave the modes."""
        self._modes.close()

    def concurrent_sessions(self, count: int) -> Sequence[Session]:
        """Return the module for several threads, on CUDA with one stream each."""
        return [ConcurrentTorchSession(self, self._torch.cuda if self._cuda else None) for _ in range(count)]


class OperatorSession(TorchSession):
    """One operator call instead of a module. It returns no outputs, because its values are random."""

    def __init__(self, path: Path, spec: Spec) -> None:
        operator, self._measured = call_file.measure_file(path, spec)
        super().__init__(
            operator.prepare_call(),
            _by_order,
            spec,
            {"form": "operator", **resolve_options(replace(spec, options={}), OPTIONS)},
        )

    def fetch(self, outputs: Any) -> list[Any]:
        """Return no outputs."""
        return []

    def effective(self) -> dict[str, str]:
        """Return the settings, including the times of the operator alone."""
        return {"precision": msg("backends.run", "as in the run"), "form": "operator", **self._measured}


class ConcurrentTorchSession(Session):
    """A session for one of several threads.

    Args:
        session: The shared session.
        cuda: `torch.cuda` if the thread has a stream.
    """

    def __init__(self, session: TorchSession, cuda: Any) -> None:
        self._session, self._cuda = session, cuda
        self._modes = ExitStack()

    def prepare(self, feeds: Feeds) -> Any:
        """Enter the modes in this thread and prepare the inputs."""
        self._modes = self._session.modes()
        if self._cuda:
            self._stream = self._cuda.Stream(self._session.device)
            self._modes.enter_context(self._cuda.stream(self._stream))
        return self._session.prepare(feeds)

    def infer(self, prepared: Any) -> Any:
        """Run once and wait for the stream."""
        outputs = self._session.call(prepared)
        if self._cuda:
            self._stream.synchronize()
        return outputs

    def close(self) -> None:
        """Leave the modes."""
        self._modes.close()


def devices() -> list[str]:
    """Return the CPU and each CUDA device."""
    torch: Any = importlib.import_module("torch")
    return ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]


def timeline(path: Path, spec: Spec, feeds: Feeds, runs: int, out: Path) -> list[ProfileFile]:
    """Write `timeline.json`, in which each run is a step."""
    session = load(path, spec, feeds)
    prepared = session.prepare(feeds)
    for _ in range(WARM_UP):
        session.infer(prepared)
    profiler: Any = importlib.import_module("torch.profiler")
    kinds = [profiler.ProfilerActivity.CPU]
    if spec.device.startswith("cuda"):
        kinds.append(profiler.ProfilerActivity.CUDA)
    recording = profiler.profile(
        activities=kinds,
        schedule=profiler.schedule(wait=0, warmup=1, active=runs, repeat=1),
        record_shapes=True,
        profile_memory=True,
    )
    with recording:
        for _ in range(1 + runs):
            session.infer(prepared)
            recording.step()
    file = out / "timeline.json"
    recording.export_chrome_trace(str(file))
    session.close()
    return [ProfileFile(file.name, _start_ns(file), "chrome_object")]


def load(path: Path, spec: Spec, feeds: Feeds) -> TorchSession:
    """Load a file; its content determines the format. TorchScript inputs go by order, .pt2 inputs by name."""
    torch: Any = importlib.import_module("torch")
    if spec.device.startswith("cuda") and not torch.cuda.is_available():
        raise TaskFailure(
            "model_error",
            msg("backends.pytorch_sees_no_device", f"this PyTorch sees no device {spec.device}"),
            msg("backends.build_cpu_alone", "it is a build for the CPU only"),
        )
    if spec.threads:
        torch.set_num_threads(spec.threads)
    if call_file.is_call(path, "torch"):
        return OperatorSession(path, spec)
    options = resolve_options(spec, OPTIONS)
    if spec.device != "cpu":
        torch.backends.cudnn.allow_tf32 = spec.precision == "auto"  # on by default
    if is_export(path):
        return _exported(torch, path, spec, options, feeds)
    if options["mode"] == "compile":
        raise _refused(
            spec,
            msg(
                "backends.torch_compile_not_compile",
                "torch.compile does not compile TorchScript, which has its own compiler",
            ),
            "mode",
        )
    module = torch.jit.load(str(path), map_location=spec.device)
    module = _lowered(torch, module.eval() if hasattr(module, "training") else module, spec, options)
    if options["optimize"] != "none":
        module = torch.jit.freeze(module.eval())
    if options["optimize"] == "optimize_for_inference":
        module = torch.jit.optimize_for_inference(module)
    return TorchSession(module, _by_order, spec, {"form": "TorchScript", **options})


def _exported(torch: Any, path: Path, spec: Spec, options: dict[str, str], feeds: Feeds) -> TorchSession:
    """Load a .pt2, compiled for the sizes of the feeds; other sizes are compiled when they occur."""
    if options["optimize"] != "none":
        raise _refused(
            spec,
            msg(
                "backends.option_optimize_torchscript", f"the option optimize={options['optimize']} is for TorchScript"
            ),
            "optimize",
        )
    module, call = load_export(torch, path, spec.device, feeds)
    module = _lowered(torch, module, spec, options)
    options = {"form": "torch.export", **options}
    if options["mode"] == "eager":
        return TorchSession(module, call, spec, options)
    session = TorchSession(_compiled(torch, module, whole=True), call, spec, options)
    session.infer(session.prepare(feeds))
    return session


def from_module(module: Any, spec: Spec) -> TorchSession:
    """Return a session of a module in memory, whose inputs go by order. Sizes are compiled when they occur."""
    options = resolve_options(spec, OPTIONS)
    torch: Any = importlib.import_module("torch")
    module = _lowered(torch, module.eval(), spec, options)
    if options["mode"] == "compile":
        module = _compiled(torch, module, whole=False)
    return TorchSession(module, _by_order, spec, {"form": "module", **options})


def _compiled(torch: Any, module: Any, whole: bool) -> Any:
    """Return a module that is compiled for each size; `whole`: as one graph without Python between graphs."""
    dynamo: Any = importlib.import_module("torch._dynamo")
    for limit in (
        "recompile_limit",
        "cache_size_limit",
    ):  # above the limit, sizes are not compiled; the name depends on the version
        if hasattr(dynamo.config, limit):
            setattr(dynamo.config, limit, SIZES)
    return torch.compile(module, fullgraph=whole, dynamic=False)


def _lowered(torch: Any, module: Any, spec: Spec, options: dict[str, str]) -> Any:
    """Return a module whose weights have the type and memory order of the options."""
    if options["lower_by"] == "cast" and spec.precision not in TYPES:
        raise _refused(
            spec,
            msg("backends.option_lower_cast_precisions", "the option lower_by=cast is for the precisions f16 and bf16"),
            "lower_by",
        )
    if options["memory_format"] == "channels_last":
        module = module.to(memory_format=torch.channels_last)
    return module.to(getattr(torch, TYPES[spec.precision])) if options["lower_by"] == "cast" else module


def _settings(spec: Spec, options: dict[str, str]) -> dict[str, str]:
    """Return the settings of a session, without its device and threads."""
    model_precision = (
        msg("backends.model_tf32_convolutions", "as the model, tf32 in convolutions")
        if spec.precision == "auto" and spec.device != "cpu"
        else msg("backends.model", "as the model")
    )
    precision = f"{spec.precision} by {options['lower_by']}" if spec.precision in TYPES else model_precision
    names = ("form", "optimize" if options["form"] == "TorchScript" else "mode", "memory_format")
    return {"precision": precision, **{name: options[name] for name in names}}


def _refused(spec: Spec, error: str, option: str) -> TaskFailure:
    return TaskFailure(
        "input_error",
        msg("backends.spec", f"spec '{spec.id}': {error}"),
        msg("backends.leave_out_option", f"leave out the option {option}"),
    )


def _by_order(tensors: Feeds) -> Call:
    return tuple(tensors.values()), {}


def _start_ns(file: Path) -> int:
    """Return the epoch of a trace's time 0, `baseTimeNanoseconds`; 0 for older versions, which count from 1970."""
    base = BASE.search(file.read_bytes())
    return int(base[1]) if base else 0


TORCHSCRIPT = FileFormat("torchscript", "TorchScript", (".pt", ".ts"), typed_inputs=False, suffix_hints={".pth": SAVE})
EXPORT = FileFormat(
    "torch_export",
    msg("backends.torch_export_pt2", "torch.export .pt2"),
    (".pt2",),
    sweep_hint=msg(
        "backends.export_dynamic_shapes_x",
        "export it with dynamic_shapes={'x': {0: torch.export.Dim('batch')}} to sweep it",
    ),
)
BACKEND = Backend(
    name="torch",
    package="torch",
    module="torch",
    files=(TORCHSCRIPT, EXPORT, call_format("torch")),
    devices=devices,
    load=load,
    passes={"timeline": timeline},
    precisions=("auto", "f32", "f16", "bf16"),
    options=OPTIONS,
    requires=("numpy",),
    cpu_index="https://download.pytorch.org/whl/cpu",  # 0.2 GB instead of 5
)
