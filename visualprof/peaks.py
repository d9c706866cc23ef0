"""What devices can do at most: dense products by type, what the other units add, and the bandwidth of the memory.

A peak is units x clock x operations a clock and unit, as the makers work out their own; figures with sparsity are twice
as much. Only devices whose sheet we know are here: others have no roof.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Units(NamedTuple):
    """Of one kind of multiprocessor, operations a clock. products: by type. other: fp32 outside of products."""

    products: Mapping[str, int]
    other: int


class Model(NamedTuple):
    """A device. mhz: clock of products; other_mhz: that of the rest. gb_s: of its memory, 10^9 bytes a second."""

    names: str
    units: Units
    number: int
    mhz: int
    other_mhz: int
    gb_s: float
    source: str
    least_gb: int = 0  # memory that tells it from a smaller one of its name


class Peak(NamedTuple):
    """flops: FLO/s of products by type. other: FLO/s of everything else. bandwidth: bytes/s, None where unknown.

    units, mhz: multiprocessors and the clock of their products. source: where the figures are from.
    """

    flops: Mapping[str, float]
    other: float
    bandwidth: float | None
    units: int
    mhz: int
    source: str


def _halves(fp16: int, tf32: int, fp32: int, **more: int) -> Units:
    return Units({"fp16": fp16, "bf16": fp16, "tf32": tf32, "fp32": fp32, **more}, fp32)


VOLTA = Units({"fp16": 1024, "fp32": 128, "fp64": 64}, 128)
TURING = Units({"fp16": 1024, "fp32": 128, "int8": 2048}, 128)
A100 = _halves(2048, 1024, 128, fp64=128, int8=4096)
AMPERE, AMPERE_PRO = _halves(512, 256, 256, int8=2048), _halves(1024, 512, 256, int8=2048)
HOPPER = _halves(4096, 2048, 256, fp64=256, fp8=8192, int8=8192)
BLACKWELL = _halves(8192, 4096, 256, fp8=16384, fp4=32768)
ADA, ADA_PRO = _halves(512, 256, 256, fp8=1024), _halves(1024, 512, 256, fp8=2048, int8=2048)
CDNA2 = Units({"fp16": 1024, "bf16": 1024, "fp32": 256, "fp64": 256, "int8": 1024}, 128)
CDNA3 = _halves(2048, 1024, 256, fp64=256, fp8=4096, int8=4096)
CDNA4 = Units({"fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192, "fp4": 16384, "fp32": 256, "fp64": 128}, 256)
VECTOR = ("fp32", "fp64")  # at the clock of the rest
SHEET, PAPER = "datasheet", "architecture"


def _row(
    name: str, units: Units, count: int, mhz: int | tuple[int, int], gb_s: float, source: str, gb: int = 0
) -> Model:
    products, other = mhz if isinstance(mhz, tuple) else (mhz, mhz)
    return Model(rf"\b(?:{name})\b", units, count, products, other, gb_s, source, gb)


# The first row of a name counts.
MODELS = (
    _row("V100S-PCIE", VOLTA, 80, 1597, 1134, SHEET),
    _row("V100-PCIE", VOLTA, 80, 1380, 900, SHEET),
    _row("V100-(?:SXM2|SXM3|DGXS)", VOLTA, 80, 1530, 900, SHEET),
    _row("T4", TURING, 40, 1590, 320, SHEET),
    _row("A[18]00.*PCIe", A100, 108, 1410, 1935, SHEET, 60),
    _row("A[18]00", A100, 108, 1410, 2039, SHEET, 60),
    _row("A100", A100, 108, 1410, 1555, SHEET),
    _row("A30", A100, 56, 1440, 933, SHEET),
    _row("A10", AMPERE_PRO, 72, 1695, 600, SHEET),
    _row("A40", AMPERE_PRO, 84, 1740, 696, SHEET),
    _row("RTX A6000", AMPERE_PRO, 84, 1800, 768, SHEET),
    _row("RTX 3090 Ti$", AMPERE, 84, 1860, 1008, PAPER),
    _row("RTX 3090$", AMPERE, 82, 1695, 936, PAPER),
    _row("RTX 3070$", AMPERE, 46, 1725, 448, PAPER),
    _row("H200$", HOPPER, 132, (1830, 1980), 4800, SHEET),
    _row("H100 PCIe", HOPPER, 114, (1620, 1755), 2039, PAPER),
    _row("H100 80GB HBM3", HOPPER, 132, (1830, 1980), 3350, PAPER),
    _row("B200", BLACKWELL, 148, (1856, 1965), 8000, SHEET),
    _row("L4$", ADA_PRO, 58, 2040, 300, SHEET),
    _row("L40S", ADA_PRO, 142, 2520, 864, SHEET),
    _row("RTX 6000 Ada Generation", ADA_PRO, 142, 2505, 960, SHEET),
    _row("RTX 4090$", ADA, 128, 2520, 1008, PAPER),
    _row("RTX 4080$", ADA, 76, 2505, 716.8, PAPER),
    _row("RTX 5090$", ADA, 170, 2407, 1792, PAPER),
    _row("RTX 5080$", ADA, 84, 2617, 960, PAPER),
    _row("MI210", CDNA2, 104, 1700, 1638, SHEET),
    _row("MI250X", CDNA2, 110, 1700, 1638, SHEET),
    _row("MI250", CDNA2, 104, 1700, 1638, SHEET),
    _row("MI300X(?: VF)?", CDNA3, 304, 2100, 5300, SHEET),
    _row("MI325X(?: VF)?", CDNA3, 304, 2100, 6000, SHEET),
    _row("MI350X(?: VF)?", CDNA4, 256, 2200, 8000, SHEET),
    _row("MI355X(?: VF)?", CDNA4, 256, 2400, 8000, SHEET),
)  # fmt: skip


def peak_of(name: str, memory_bytes: int = 0, multiprocessors: int = 0) -> Peak | None:
    """What a device can do, by its name; a part of one has the operations of its multiprocessors and no bandwidth.

    Args: memory_bytes, multiprocessors: of the device, 0 unknown.
    """
    fitting = (m for m in MODELS if re.search(m.names, name, re.IGNORECASE) and memory_bytes >= m.least_gb * 10**9)
    model = next(fitting, None)
    if model is None:
        return None
    count = multiprocessors or model.number
    clocks, others = count * model.mhz * 1e6, count * model.other_mhz * 1e6
    return Peak(
        flops={type: each * (others if type in VECTOR else clocks) for type, each in model.units.products.items()},
        other=model.units.other * others,
        bandwidth=model.gb_s * 1e9 if count == model.number else None,
        units=count,
        mhz=model.mhz,
        source=model.source,
    )


# Of the links to the other devices of a host, 10^9 bytes a second in one direction: half of what the datasheets add up.
LINKS = (
    (r"\bV100-SXM[23]\b", 150), (r"\bA100-SXM4?\b", 300), (r"\bA800-SXM4?\b", 200),
    (r"\bH800 ?(?!PCIe|NVL)", 200), (r"\bH(?:100|200)(?! ?(?:PCIe|NVL))\b", 450), (r"(?<!G)\bB[23]00\b", 900),
    (r"\bMI300X\b", 448),
)  # fmt: skip


def link_of(name: str) -> float | None:
    """Bytes a second that a device can send to the others of its host, by its name; None for a device not listed."""
    return next((gb_s * 1e9 for names, gb_s in LINKS if re.search(names, name)), None)
