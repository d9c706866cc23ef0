"""Store the graph as optimized by ONNX Runtime except for one fusion: some fusions are slower on some versions."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx
from visualprof.remote.protocol import TaskFailure

FUSIONS = tuple(
    """
    SkipLayerNormFusion LayerNormFusion AttentionFusion EmbedLayerNormFusion BiasGeluFusion GeluFusionL2
    FastGeluFusion MatmulTransposeFusion MatMulAddFusion MatMulScaleFusion BiasSoftmaxFusion
    SimplifiedLayerNormFusion ConvActivationFusion ConvAddActivationFusion GemmActivationFusion
    QDQSelectorActionTransformer
    """.split()
)


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
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


CONVERTER = Converter(
    name="ort_fusion_off",
    title=msg("converters.graph_optimised_onnx_runtime", "Graph optimized by ONNX Runtime without one fusion"),
    takes="onnx",
    makes="onnx",
    needs=onnx.NEEDS,
    convert=convert,
    options={"fusion": FUSIONS},
    runtimes=("onnxruntime",),
    settings={"optimization": "disable"},
)
