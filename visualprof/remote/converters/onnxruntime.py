"""Optimize or quantize an ONNX model with the tools of ONNX Runtime."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Feeds, Rows
from visualprof.remote.converters.formats import onnx
from visualprof.remote.protocol import TaskFailure

LEVELS = {"extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL", "basic": "ORT_ENABLE_BASIC"}
FUSIONS = tuple(
    """
    SkipLayerNormFusion LayerNormFusion AttentionFusion EmbedLayerNormFusion BiasGeluFusion GeluFusionL2
    FastGeluFusion MatmulTransposeFusion MatMulAddFusion MatMulScaleFusion BiasSoftmaxFusion
    SimplifiedLayerNormFusion ConvActivationFusion ConvAddActivationFusion GemmActivationFusion
    QDQSelectorActionTransformer
    """.split()
)
OPERATORS = {"matmul": ["MatMul", "Gemm"], "all": None}
METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
BATCH = 8  # rows per run if the model leaves it open


class Reader:
    """A reader of inputs with the interface that ONNX Runtime expects."""

    def __init__(self, feeds: Iterator[Feeds]) -> None:
        self._feeds = feeds

    def get_next(self) -> Feeds | None:
        """Return the next inputs, `None` after the last ones."""
        return next(self._feeds, None)


def store_optimized(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Let a session write its graph. The level `all` includes layouts specific to this machine's processor."""
    ort: Any = importlib.import_module("onnxruntime")
    level = getattr(ort.GraphOptimizationLevel, LEVELS[options["level"]])
    onnx.write_optimized(model, target, level)


def store_without_fusion(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Write the optimized graph without the fusion.

    Raises:
        TaskFailure: The fusion makes no difference.
    """
    ort: Any = importlib.import_module("onnxruntime")
    level, fusion = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, options["fusion"]
    with tempfile.TemporaryDirectory() as folder:
        fused = Path(folder, "fused.onnx")
        onnx.write_optimized(model, fused, level)
        onnx.write_optimized(model, target, level, disabled_optimizers=[fusion])
        if onnx.content(fused).digest == onnx.content(target).digest:
            target.unlink()
            raise TaskFailure(
                "model_error",
                msg("converters.onnx_runtime_no_model", f"ONNX Runtime does not apply {fusion} to this model"),
                msg("converters.try_another_fusion", "try another fusion"),
            )


def fuse_transformer(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Fuse patterns of the model's kind. Heads and width are read from the graph."""
    optimizer: Any = importlib.import_module("onnxruntime.transformers.optimizer")
    fused = optimizer.optimize_model(str(model), options["kind"], num_heads=0, hidden_size=0, opt_level=0)
    onnx.write(fused.model, target)


def quantize_dynamic(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Quantize only matrix products by default: convolutions with signed weights get 6 to 8 times slower on x86."""
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    kind = options["weights"] if options["weights"] != "auto" else "uint8" if options["operators"] == "all" else "int8"
    with onnx.writable_copy(model) as copy:
        quantization.quantize_dynamic(
            copy,
            target,
            op_types_to_quantize=OPERATORS[options["operators"]],
            per_channel=options["per_channel"] == "yes",
            weight_type=getattr(quantization.QuantType, f"Q{kind[:-1].replace('int', 'Int').replace('u', 'U')}8"),
            use_external_data_format=onnx.exceeds_one_file(onnx.read(model)),
        )


def quantize_static(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Insert pairs of QuantizeLinear and DequantizeLinear, which other runtimes also read."""
    assert rows is not None
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    kinds = quantization.QuantType
    with onnx.writable_copy(model) as copy:
        quantization.quantize_static(
            copy,
            str(target),
            Reader(rows.feeds(onnx.shapes(model), BATCH)),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=options["per_channel"] == "yes",
            activation_type=kinds.QInt8 if options["activations"] == "int8" else kinds.QUInt8,
            weight_type=kinds.QInt8,
            calibrate_method=getattr(quantization.CalibrationMethod, METHODS[options["ranges"]]),
            use_external_data_format=onnx.exceeds_one_file(onnx.read(model)),
        )


def quantize_to_4_bits(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Replace MatMul with a weight by MatMulNBits, which computes in int8 where that is faster (accuracy 4)."""
    module: Any = importlib.import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    settings = {"block_size": int(options["block"]), "accuracy_level": int(options["accuracy"])}
    quantizer = module.MatMulNBitsQuantizer(onnx.read(model), is_symmetric=True, **settings)
    quantizer.process()
    onnx.write(quantizer.model.model, target)


_from_onnx = partial(Converter, takes="onnx", makes="onnx")
CONVERTERS = (
    _from_onnx(
        name="ort_level",
        title=msg("converters.graph_optimised_onnx_runtime_2", "Graph optimized by ONNX Runtime"),
        needs=onnx.NEEDS,
        convert=store_optimized,
        options={"level": tuple(LEVELS)},
        runtimes=("onnxruntime",),
        settings={"optimization": "disable"},
    ),
    _from_onnx(
        name="ort_fusion_off",
        title=msg("converters.graph_optimised_onnx_runtime", "Graph optimized by ONNX Runtime without one fusion"),
        needs=onnx.NEEDS,
        convert=store_without_fusion,
        options={"fusion": FUSIONS},
        runtimes=("onnxruntime",),
        settings={"optimization": "disable"},
    ),
    _from_onnx(
        name="ort_transformer",
        title=msg("converters.transformer_fused_onnx_runtime", "Transformer fused for ONNX Runtime"),
        needs={**onnx.NEEDS, "sympy": "sympy"},
        convert=fuse_transformer,
        unsuitable_reason=onnx.needs_operator("Softmax", "LayerNormalization", "Attention"),
        options={"kind": ("bert", "gpt2", "t5", "bart", "vit", "swin", "clip", "conformer", "unet", "vae")},
        runtimes=("onnxruntime",),
    ),
    _from_onnx(
        name="ort_int8_dynamic",
        title=msg("converters.dynamic_int8_onnx_runtime", "Dynamic int8 for ONNX Runtime"),
        needs=onnx.NEEDS,
        convert=quantize_dynamic,
        unsuitable_reason=onnx.needs_operator("MatMul", "Gemm", "Conv", "LSTM", "Attention"),
        options={"operators": tuple(OPERATORS), "weights": ("auto", "int8", "uint8"), "per_channel": ("no", "yes")},
        runtimes=("onnxruntime",),
    ),
    _from_onnx(
        name="ort_int8_static",
        title=msg("converters.static_int8_qdq", "Static int8 (QDQ)"),
        needs=onnx.NEEDS,
        convert=quantize_static,
        unsuitable_reason=onnx.needs_operator("MatMul", "Gemm", "Conv", "Add", "Mul"),
        options={"ranges": tuple(METHODS), "activations": ("uint8", "int8"), "per_channel": ("no", "yes")},
        calibrates=True,
    ),
    _from_onnx(
        name="ort_int4",
        title=msg("converters.weights_4_bits_onnx", "Weights in 4 bits for ONNX Runtime"),
        needs={**onnx.NEEDS, "onnx_ir": "onnx-ir"},
        convert=quantize_to_4_bits,
        unsuitable_reason=onnx.needs_operator("MatMul", weighted=True),
        options={"block": ("32", "64", "128", "16"), "accuracy": ("4", "1", "0")},
        runtimes=("onnxruntime",),
    ),
)
