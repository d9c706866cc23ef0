"""Fuse the attention, embeddings and norms of a transformer with ONNX Runtime's tool."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Fuse patterns of the model's kind. Heads and width are read from the graph."""
    optimizer: Any = importlib.import_module("onnxruntime.transformers.optimizer")
    fused = optimizer.optimize_model(str(model), options["kind"], num_heads=0, hidden_size=0, opt_level=0)
    onnx.write(fused.model, target)


CONVERTER = Converter(
    name="ort_transformer",
    title=msg("converters.transformer_fused_onnx_runtime", "Transformer fused for ONNX Runtime"),
    takes="onnx",
    makes="onnx",
    needs={**onnx.NEEDS, "sympy": "sympy"},
    convert=convert,
    unsuitable_reason=onnx.needs_operator("Softmax", "LayerNormalization", "Attention"),
    options={"kind": ("bert", "gpt2", "t5", "bart", "vit", "swin", "clip", "conformer", "unet", "vae")},
    runtimes=("onnxruntime",),
)
