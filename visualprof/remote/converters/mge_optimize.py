"""Apply one of MegEngine's inference optimizations to a dumped graph."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import megengine

# Some hang or crash on unsuitable processors, so the result is run once.
PASSES = tuple(
    """
    fuse_conv_bias_nonlinearity fuse_conv_bias_with_z fuse_preprocess fuse_grain nchw44 nchw44_dot nchw88
    nchw4 nchw32 nchw64 chwn4 hwcd4 io16xc32 ioc16
    """.split()
)


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Apply optimize_for_inference."""
    graphs: Any = importlib.import_module("megengine.core.tensor.megbrain_graph")
    loaded = megengine.read(model)
    optimized, _ = graphs.optimize_for_inference(loaded.output_vars_list, **{f"enable_{options['optimize']}": True})
    data, _ = graphs.dump_graph([getattr(out, "var", out) for out in optimized], keep_var_name=2)
    target.write_bytes(data)


CONVERTER = Converter(
    name="mge_optimize",
    title=msg("converters.megengine_optimised_inference", "MegEngine, optimized for inference"),
    takes="megengine",
    makes="megengine",
    needs={"megengine": "megengine"},
    convert=convert,
    options={"optimize": PASSES},
    timeout_minutes=1.0,
)
