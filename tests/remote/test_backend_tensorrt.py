"""TensorRT without a GPU: what the backend asks of its API, which stands in here, and what it makes of the answers.

The stand-in's engine gives twice what it is fed, on memory of the host; it was never compared with a real one.
"""

from __future__ import annotations

import ctypes
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.conftest import answer, rows
from tests.remote.child_runs import tiny_onnx
from visualprof.remote.backends import backend
from visualprof.remote.backends.tensorrt import devices, layers, load
from visualprof.remote.cases import all_vendors
from visualprof.remote.converters import converter
from visualprof.remote.protocol import Spec, TaskFailure


class Cuda(ModuleType):
    """Memory of the host as that of a device. held: what is not freed."""

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)

    def __init__(self) -> None:
        super().__init__("cuda.bindings.runtime")
        self.held: dict[int, Any] = {}

    def cudaGetDeviceCount(self) -> tuple[int, int]:
        return 0, 2

    def cudaSetDevice(self, number: int) -> tuple[int]:
        return (0 if number < 2 else 101,)

    def cudaStreamCreate(self) -> tuple[int, int]:
        return 0, 7

    def cudaStreamSynchronize(self, stream: int) -> tuple[int]:
        return (0,)

    def cudaMalloc(self, size: int) -> tuple[int, int]:
        buffer = ctypes.create_string_buffer(size)
        self.held[ctypes.addressof(buffer)] = buffer
        return 0, ctypes.addressof(buffer)

    def cudaMemcpy(self, target: int, source: int, size: int, kind: int) -> tuple[int]:
        ctypes.memmove(target, source, size)
        return (0,)

    def cudaFree(self, place: int) -> tuple[int]:
        del self.held[place]
        return (0,)


class Engine:
    """Of a plan, which is the JSON of what it was built with: y = 2 x."""

    num_io_tensors = 2
    num_layers = 3
    profiler: Any = None

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.operator_placement: dict[str, int] = {}
        self.shape: tuple[int, ...] = ()

    def get_tensor_name(self, i: int) -> str:
        return "xy"[i]

    def get_tensor_mode(self, name: str) -> str:
        return "in" if name == "x" else "out"

    def get_tensor_dtype(self, name: str) -> str:
        return "f4"

    def create_execution_context(self) -> Engine:
        return self

    def create_engine_inspector(self) -> Any:
        told = json.dumps({"Layers": [{"Name": "scale", "LayerType": "Scale"}], "Bindings": ["x", "y"]})
        return SimpleNamespace(get_engine_information=lambda form: told)

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shape = shape
        least, _, most = self.plan["shapes"][name]
        return all(a <= size <= b for a, size, b in zip(least, shape, most, strict=True))

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shape

    def set_tensor_address(self, name: str, place: int) -> None:
        self.operator_placement[name] = place

    def execute_async_v3(self, stream: int) -> bool:
        size = int(np.prod(self.shape))
        x, y = (np.ctypeslib.as_array((ctypes.c_float * size).from_address(self.operator_placement[n])) for n in "xy")
        y[:] = 2 * x
        if self.profiler:
            self.profiler.report_layer_time("scale", 0.5)
        return stream == 7


class Trt(ModuleType):
    """The API. built: plans of the engines that were built."""

    class Logger:
        WARNING = 2

        def __init__(self, level: int) -> None:
            self.level = level

    class IProfiler:
        pass

    BuilderFlag = SimpleNamespace(TF32="TF32", FP16="FP16")
    ProfilingVerbosity = SimpleNamespace(DETAILED="detailed")
    TensorIOMode = SimpleNamespace(INPUT="in")
    LayerInformationFormat = SimpleNamespace(JSON="json")
    nptype = np.dtype

    def __init__(self) -> None:
        super().__init__("tensorrt")
        self.built: list[dict[str, Any]] = []

    def OnnxParser(self, network: Any, logger: Any) -> Any:
        errors = ["no importer for Nothing"]
        whole = lambda path: Path(path).suffix == ".onnx"  # noqa: E731
        return SimpleNamespace(parse_from_file=whole, num_errors=1, get_error=errors.__getitem__)

    def Builder(self, logger: Any) -> Any:
        plan: dict[str, Any] = {"flags": ["TF32"], "shapes": {}}

        def built(network: Any, config: Any) -> bytes:
            self.built.append({**plan, "effort": config.builder_optimization_level})
            return json.dumps(self.built[-1]).encode()

        return SimpleNamespace(
            create_network=lambda flags: SimpleNamespace(num_inputs=1, get_input=lambda i: SimpleNamespace(name="x")),
            create_builder_config=lambda: SimpleNamespace(
                set_flag=plan["flags"].append, clear_flag=plan["flags"].remove, add_optimization_profile=lambda p: 0
            ),
            create_optimization_profile=lambda: SimpleNamespace(
                set_shape=lambda name, *sizes: plan["shapes"].update({name: sizes})
            ),
            build_serialized_network=built,
        )

    def Runtime(self, logger: Any) -> Any:
        return SimpleNamespace(deserialize_cuda_engine=lambda data: Engine(json.loads(data)) if data else None)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> tuple[Trt, Cuda]:
    trt, cuda = Trt(), Cuda()
    for name, module in {"tensorrt": trt, "cuda.bindings.runtime": cuda}.items():
        monkeypatch.setitem(sys.modules, name, module)
    return trt, cuda


def x(batch: int) -> dict[str, Any]:
    return {"x": np.arange(4 * batch, dtype=np.float32).reshape(batch, 4)}


def test_an_engine_is_built_for_each_size_and_kept(api: tuple[Trt, Cuda]) -> None:
    trt, cuda = api
    session = load(Path("m.onnx"), Spec("s", "tensorrt", device="cuda:1"), x(2))
    for batch in (2, 3, 2):
        prepared = session.prepare(x(batch))
        (y,) = session.fetch(session.infer(prepared))
        np.testing.assert_array_equal(y, 2 * x(batch)["x"])
    assert [plan["shapes"]["x"] for plan in trt.built] == [((2, 4),) * 3, ((3, 4),) * 3]
    assert len(cuda.held) == 2  # one input, one output
    session.close()
    assert not cuda.held


@pytest.mark.parametrize(
    ("spec", "flags", "told"),
    [
        ({}, [], "as the model"),
        ({"precision": "auto"}, ["TF32"], "as the model, tf32 allowed"),
        ({"precision": "f16"}, ["FP16"], "f16 where it is faster"),
    ],
)
def test_the_precision_selects_the_builder_flags(
    api: tuple[Trt, Cuda], spec: dict[str, Any], flags: list[str], told: str
) -> None:
    asked = Spec("s", "tensorrt", device="cuda:0", options={"effort": "5"}, **spec)
    session = load(Path("m.onnx"), asked, x(1))
    assert (api[0].built[0]["flags"], api[0].built[0]["effort"]) == (flags, 5)
    assert session.effective() == {"precision": told, "effort": "5", "device": "cuda:0"}


@pytest.mark.parametrize(
    ("model", "spec", "told"),
    [
        ("m.onnx", {"precision": "bf16"}, "not in bf16"),
        ("m.onnx", {"device": "cpu"}, "no device cpu"),
        ("m.txt", {}, "no importer for Nothing"),
    ],
)
def test_unsupported_requests_are_reported(api: tuple[Trt, Cuda], model: str, spec: dict[str, Any], told: str) -> None:
    with pytest.raises(TaskFailure, match=told):
        load(Path(model), replace(Spec("s", "tensorrt", device="cuda:0"), **spec), x(1))


def test_a_failed_cuda_call_is_an_error(api: tuple[Trt, Cuda]) -> None:
    with pytest.raises(RuntimeError, match="CUDA: 101"):
        load(Path("m.onnx"), Spec("s", "tensorrt", device="cuda:9"), x(1))


def test_an_engine_of_a_range_of_batches_is_made_and_run(api: tuple[Trt, Cuda], tmp_path: Path) -> None:
    kind = converter("tensorrt_engine")
    source, target = tmp_path / "m.onnx", tmp_path / "m.engine"
    tiny_onnx(source)
    with pytest.raises(TaskFailure, match="the model has no input 'scale'"):
        kind.convert(source, target, kind.resolve_options({}), None)
    import onnx

    model = onnx.load(source)
    del model.graph.input[1]
    onnx.save(model, source)
    kind.convert(source, target, kind.resolve_options({"precision": "f16", "batch": "1:2:4"}), None)
    assert json.loads(target.read_bytes()) == {
        "flags": ["FP16"],
        "shapes": {"x": [[1, 4], [2, 4], [4, 4]]},
        "effort": 3,
    }
    session = load(target, Spec("s", "tensorrt", device="cuda:0"), x(4))
    (y,) = session.fetch(session.infer(session.prepare(x(4))))
    np.testing.assert_array_equal(y, 2 * x(4)["x"])
    with pytest.raises(TaskFailure, match="does not take"):
        session.prepare(x(5))
    for wrong in ("4:2:1", "many"):
        with pytest.raises(TaskFailure, match="the option batch"):
            kind.convert(source, target, kind.resolve_options({"batch": wrong}), None)


def test_the_profile_can_be_read_by_the_reader(api: tuple[Trt, Cuda], tmp_path: Path) -> None:
    (told,) = layers(Path("m.onnx"), Spec("s", "tensorrt", device="cuda:0"), x(2), 4, tmp_path)
    assert rows(answer("operator", tmp_path / told.name), "host_self_ns") == {"scale": [500_000]}
    assert json.loads((tmp_path / "layers.json").read_text())["Layers"][0]["Name"] == "scale"


def test_the_devices_are_cuda_devices_only(api: tuple[Trt, Cuda], monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices() == ["cuda:0", "cuda:1"]
    monkeypatch.setattr(Cuda, "cudaGetDeviceCount", lambda self: (100, 0))
    assert devices() == []
    assert backend("tensorrt").module == "tensorrt"  # which no interpreter without it has


def test_a_case_compiles_for_its_batch_and_compiling_other_sizes_is_not_inference(
    api: tuple[Trt, Cuda], tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    source = tmp_path / "m.onnx"
    tiny_onnx(source)
    model = onnx.load(source)
    del model.graph.input[1]
    onnx.save(model, source)
    config: Any = SimpleNamespace(case="net", batch_size=3, fp16=True, effort=5)
    engine = all_vendors()["nvidia"].engines["tensorrt"].make(config, str(source), None)
    built = [(plan["shapes"]["x"][1], plan["flags"], plan["effort"]) for plan in api[0].built]
    assert built == [((3, 4), ["FP16"], 5)]
    for batch, compiles in ((3, False), (2, True), (2, False)):
        [y], foo_s = engine([x(batch)["x"]])
        np.testing.assert_array_equal(y, 2 * x(batch)["x"])
        assert (foo_s > 0) == compiles
    assert len(api[0].built) == 2
