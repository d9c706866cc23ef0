"""Real conversions in the sandbox; ONNX Runtime recomputes the error of the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recordings import recording_path
from tests.remote.child_runs import megengine_python
from tests.remote.conversions import Feeds, convert, difference, run, shop, small_onnx
from visualprof.remote.agent.work import conversion
from visualprof.remote.converters import Conversion
from visualprof.remote.protocol import Input, TaskFailure

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # TorchScript is


def image(rows: int, seed: int = 0) -> Feeds:
    return {"x": np.random.default_rng(seed).standard_normal((rows, 3, 8, 8), dtype=np.float32)}


def tokens(rows: int) -> Feeds:
    rng = np.random.default_rng(0)
    return {"input_ids": rng.integers(0, 100, (rows, 64)), "attention_mask": np.ones((rows, 64), np.int64)}


# Largest relative errors: knowledge of these formats, not fitted; a wrong model is at 1.
SMALL: list[tuple[str, dict[str, str], float]] = [
    ("ort_level", {}, 1e-5),
    ("ort_level", {"level": "all"}, 1e-5),
    ("onnx_fp16", {}, 3e-3),
    ("onnx_fp16", {"keep": "Softmax,MatMul"}, 3e-3),
    ("ort_int8_dynamic", {}, 0.1),
    ("ort_int8_dynamic", {"operators": "all", "per_channel": "yes"}, 0.1),
    ("ort_int8_static", {}, 0.1),
    ("ort_int4", {"block": "16"}, 0.3),
    ("onnx_opset", {"version": "18"}, 1e-6),
    ("onnx_shapes", {"sizes": "batch=4"}, 1e-6),
    ("openvino_ir", {}, 1e-5),
    ("openvino_ir", {"weights": "f16"}, 3e-3),
    ("nncf_weights", {}, 0.1),
    ("nncf_int8", {}, 0.1),
]


@pytest.mark.parametrize(("name", "options", "bound"), SMALL, ids=lambda each: str(each))
def test_converted_models_compute_nearly_the_same(
    tmp_path: Path, name: str, options: dict[str, str], bound: float
) -> None:
    model = small_onnx(tmp_path / "small.onnx")
    calibrated = name in ("ort_int8_static", "nncf_int8")
    converted_model = convert(name, model, tmp_path / "work", data=image(64, 1) if calibrated else None, **options)
    assert converted_model.converted.changed in ((None,) if converted_model.converted.format == "openvino" else (True,))
    assert converted_model.converted.options | options == converted_model.converted.options
    assert converted_model.converted.tools["python"]
    assert converted_model.size_bytes == sum(file.stat().st_size for file in converted_model.folder.iterdir())
    optimize = converted_model.converted.settings.get("optimization") != "disable"
    error = difference(run(converted_model.model, image(4), optimize), run(model, image(4)))
    assert error <= bound
    assert error > 0 or bound < 1e-3, "fewer bits cost something"


@pytest.mark.parametrize("name", ["onnxslim", "onnxsim"])
def test_unchanged_models_are_reported_as_unchanged(tmp_path: Path, name: str) -> None:
    converted_model = convert(name, small_onnx(tmp_path / "small.onnx"), tmp_path / "work")
    assert converted_model.converted.changed is False
    assert converted_model.converted.before == converted_model.converted.after


BERT = "models/onnx/tinybert_scoped_dyn.onnx"
RESNET = "models/onnx/resnet10_dynbatch.onnx"
CONVERSIONS: list[tuple[str, str, dict[str, str], float, str]] = [
    (BERT, "ort_transformer", {}, 1e-5, "com.microsoft.Attention"),
    (BERT, "ort_int8_dynamic", {}, 0.06, "MatMulInteger"),
    (BERT, "ort_int4", {}, 0.1, "com.microsoft.MatMulNBits"),
    (BERT, "onnxslim", {}, 1e-5, ""),
    (BERT, "onnxsim", {}, 1e-5, "Slice"),
    (BERT, "onnx_fp16", {}, 2e-3, ""),
    ("models/onnx/tinybert_dynamo.onnx", "ort_fusion_off", {}, 1e-5, ""),
    ("models/onnx/tinybert_dynamo.onnx", "ort_int8_dynamic", {}, 0.06, "MatMulInteger"),
    (RESNET, "ort_int8_static", {}, 0.05, "QuantizeLinear"),
    (RESNET, "openvino_ir", {}, 1e-4, ""),
]


@pytest.mark.parametrize(
    ("model", "name", "options", "bound", "operator"), CONVERSIONS, ids=lambda each: str(each)[-24:]
)
def test_models_of_every_kind_are_converted(
    tmp_path: Path, model: str, name: str, options: dict[str, str], bound: float, operator: str
) -> None:
    path = recording_path(model)
    rng = np.random.default_rng(0)
    feeds = {"input": rng.standard_normal((16, 3, 96, 96), dtype=np.float32)} if "resnet" in model else tokens(16)
    converted_model = convert(
        name, path, tmp_path / "work", data=feeds if name == "ort_int8_static" else None, **options
    )
    optimize = converted_model.converted.settings.get("optimization") != "disable"
    some = {key: values[:2] for key, values in feeds.items()}
    assert difference(run(converted_model.model, some, optimize), run(path, some)) <= bound
    assert not operator or converted_model.converted.after.get(operator)


def test_a_speech_model_is_quantised_and_wrong(tmp_path: Path) -> None:
    """It loads and runs; a cosine of its one output sees nothing, the largest error does."""
    path = recording_path("models/onnx_real/silero_vad_16k_op15.onnx")
    converted_model = convert("ort_int8_dynamic", path, tmp_path / "work", operators="all", weights="int8")
    values = np.random.default_rng(0).standard_normal((1, 576), dtype=np.float32)
    feeds = {"input": values, "sr": np.array(16000), "state": np.zeros((2, 1, 128), np.float32)}
    assert converted_model.converted.changed
    assert difference(run(converted_model.model, feeds)[:1], run(path, feeds)[:1]) > 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "name", "error"),
    [
        ("models/onnx_real/basic_pitch_nmp.onnx", "ort_int4", "it has no MatMul with a weight"),
        ("models/onnx/subgraphs_if_loop.onnx", "onnx_opset", "it has local functions"),
        ("models/onnx/subgraphs_if_loop.onnx", "onnxslim", "RecursionError"),
        ("models/onnx/subgraphs_if_loop.onnx", "openvino_ir", "No conversion rule found"),
        ("models/onnx/resnet10_static.onnx", "onnx_shapes", "none of its inputs has an open dimension"),
        (BERT, "onnx_shapes", "the dimension 'batch' has no size"),
        (RESNET, "ort_fusion_off", "does not apply SkipLayerNormFusion to this model"),
        (RESNET, "ort_int8_static", "needs rows of your data"),
    ],
)
def test_a_conversion_that_cannot_be_says_why(tmp_path: Path, model: str, name: str, error: str) -> None:
    with pytest.raises(TaskFailure) as told:
        convert(name, recording_path(model), tmp_path / "work")
    assert error in told.value.error
    assert (tmp_path / "work" / "log.txt").exists()


# --- PyTorch ---


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with net.pt and net.pt2, and the module: x float32 [batch, 3, 32, 32] -> [batch, 10]."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = torch.nn
    module = layers.Sequential(
        layers.Conv2d(3, 16, 3, padding=1),
        layers.BatchNorm2d(16),
        layers.ReLU(),
        layers.Conv2d(16, 16, 3, stride=2),
        layers.ReLU(),
        layers.AdaptiveAvgPool2d(1),
        layers.Flatten(),
        layers.Linear(16, 10),
    ).eval()
    folder, sample = tmp_path_factory.mktemp("net"), torch.zeros(2, 3, 32, 32)
    torch.jit.trace(module, sample).save(str(folder / "net.pt"))
    shapes = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(module, (sample,), dynamic_shapes=shapes), folder / "net.pt2")
    return folder, module


INPUTS = {"inputs": "x=float32[batch,3,32,32]"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "name", "options", "bound"),
    [
        ("net.pt", "torchscript_onnx", INPUTS, 1e-5),
        ("net.pt2", "torch_export_onnx", {}, 1e-5),
        ("net.pt", "torchscript_freeze", {}, 1e-5),
        ("net.pt", "torchscript_channels_last", {}, 1e-5),
        ("net.pt", "torchscript_bf16", {}, 0.1),
    ],
)
def test_a_torch_model_is_converted(
    tmp_path: Path, net: tuple[Path, Any], file: str, name: str, options: dict[str, Any], bound: float
) -> None:
    import torch

    folder, module = net
    converted_model = convert(name, folder / file, tmp_path / "work", **options)
    x = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        original = [module(x).numpy()]
        if converted_model.converted.format == "onnx":
            session_input = "x" if file == "net.pt" else "input"
            outputs = run(converted_model.model, {session_input: x.numpy()})
        else:
            assert converted_model.converted.changed
            outputs = [torch.jit.load(str(converted_model.model))(x).numpy()]
    assert difference(outputs, original) <= bound


@pytest.mark.long
def test_converting_torchscript_to_onnx_names_missing_shapes(tmp_path: Path, net: tuple[Path, Any]) -> None:
    with pytest.raises(TaskFailure, match="TorchScript does not declare its inputs") as error:
        convert("torchscript_onnx", net[0] / "net.pt", tmp_path / "work")
    assert "inputs=" in error.value.hint


@pytest.mark.long
def test_the_inputs_of_a_job_suffice_for_a_conversion(tmp_path: Path, net: tuple[Path, Any]) -> None:
    inputs = [Input("x", "float32", ["batch", 3, 32, 32])]
    order = Conversion("torchscript_onnx", str(net[0] / "net.pt"), inputs=inputs)
    converted_model = conversion.convert(order, {}, tmp_path / "work", shop())
    assert converted_model.converted.options == INPUTS
    order = Conversion("onnx_shapes", str(converted_model.model), dims={"batch": 4})
    fixed = conversion.convert(order, {}, tmp_path / "more", shop())
    x = np.zeros((4, 3, 32, 32), np.float32)
    assert difference(run(fixed.model, {"x": x}), run(converted_model.model, {"x": x})) < 1e-6
    with pytest.raises(Exception, match="Got: 5 Expected: 4"):
        run(fixed.model, {"x": np.zeros((5, 3, 32, 32), np.float32)})


# --- MegEngine ---


@pytest.mark.long
@pytest.mark.parametrize("optimize", ["fuse_conv_bias_nonlinearity", "nchw44"])
def test_a_graph_of_megengine_is_optimised(tmp_path: Path, optimize: str) -> None:
    python, model = megengine_python(), recording_path("models/megengine/lenet.mge")
    converted_model = convert("mge_optimize", model, tmp_path / "work", python, None, optimize=optimize)
    assert converted_model.converted.changed
    assert (
        converted_model.converted.before["ConvolutionForward"]
        == converted_model.converted.after["ConvBiasForward"]
        == 2
    )
