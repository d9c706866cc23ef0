"""The fastest products and copies of this device, compared with the datasheet that rooflines use."""

from __future__ import annotations

import json
from pathlib import Path

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator

TITLE = "peak rates and the datasheet"
BUDGET_S, PRIORITY = 15, 180
NEEDS = ("torch",)
# A large product reaches 60 to 95 % of a datasheet, a copy 80 to 95 %. More than the datasheet is a wrong datasheet.
LEAST_SHARES = {"fp32": 0.5, "tf32": 0.5, "fp16": 0.5, "bf16": 0.5, "bandwidth": 0.6}
TOLERANCES = {"share": 0.0}
SIDE, COPY_BYTES = 8192, 1 << 30
MEASURED = "peaks.json"
DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Measure products of large matrices and a copy within the memory."""
    from visualprof.peaks import find_peak

    if not accelerator.is_device:
        raise Skip("a CPU has no datasheet here")
    torch = accelerator.torch
    properties = torch.cuda.get_device_properties(0) if accelerator.kind == "cuda" else None
    memory = int(getattr(properties, "total_memory", 0))
    peak = find_peak(accelerator.name, memory)
    if peak is None:
        raise Skip(f"no datasheet of {accelerator.name}", "add it to visualprof/peaks.py")
    rates = {name: _product_rate(accelerator, name) for name in DTYPES if name in peak.flops}
    rates["bandwidth"] = _copy_rate(accelerator)
    launches = torch.zeros(1, device=accelerator.kind)
    datasheet = {name: peak.flops[name] for name in rates if name in peak.flops}
    if peak.bandwidth:
        datasheet["bandwidth"] = peak.bandwidth
    (folder / MEASURED).write_text(json.dumps({"rates": rates, "datasheet": datasheet}))
    figures = {f"share of {name}": rates[name] / peak for name, peak in datasheet.items()}
    figures |= {"launch, us": accelerator.median_ms(launches.zero_) * 1e3}
    return Oracle(
        values={f"share of {name} is plausible": 1.0 for name in datasheet}, figures=figures, files=[MEASURED]
    )


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return for each rate whether it lies between the least share and the whole of the datasheet."""
    measured = json.loads((folder / MEASURED).read_text("utf-8"))
    shares = {name: measured["rates"][name] / peak for name, peak in measured["datasheet"].items()}
    values = {
        f"share of {name} is plausible": float(LEAST_SHARES.get(name, 0.5) <= share <= 1.0)
        for name, share in shares.items()
    }
    return {name: values[name] for name in oracle.values if name in values}


def _product_rate(accelerator: Accelerator, precision: str) -> float:
    """Return the operations per second of a product of two large matrices."""
    torch = accelerator.torch
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    left, right = (
        torch.ones(SIDE, SIDE, dtype=getattr(torch, DTYPES[precision]), device=accelerator.kind) for _ in "ab"
    )
    return 2 * SIDE**3 / (accelerator.median_ms(lambda: torch.mm(left, right), 10, 3) / 1e3)


def _copy_rate(accelerator: Accelerator) -> float:
    """Return the bytes per second that a copy reads and writes."""
    source = accelerator.torch.zeros(COPY_BYTES, dtype=accelerator.torch.uint8, device=accelerator.kind)
    target = accelerator.torch.empty_like(source)
    return 2 * COPY_BYTES / (accelerator.median_ms(lambda: target.copy_(source), 10, 3) / 1e3)
