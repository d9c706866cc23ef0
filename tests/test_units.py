"""Units: rates are decimal (MB/s, GB/s) and sizes binary (MiB, GiB) in the web UI, on the command line and in docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from visualprof.cli._terminal import cell

ROOT = Path(__file__).parent.parent
BINARY_RATE = re.compile(r"\b[KMGTP]iB/s\b")
SOURCES = ROOT / "visualprof" / "frontend" / "src"
TEXTS = (
    *(ROOT / "docs").rglob("*.md"),
    *ROOT.glob("*.md"),
    *(ROOT / "visualprof").rglob("*.py"),
    *(path for path in SOURCES.rglob("*") if path.suffix in (".json", ".ts", ".vue")),
)


@pytest.mark.parametrize(
    ("bytes_per_s", "text"),
    [(999, "999 B/s"), (1500, "1.50 kB/s"), (2.5e6, "2.50 MB/s"), (3.35e12, "3.35 TB/s"), (12e9, "12.00 GB/s")],
)
def test_rates_on_the_command_line_are_decimal(bytes_per_s: float, text: str) -> None:
    assert cell("rate", bytes_per_s) == text


def test_sizes_on_the_command_line_are_binary() -> None:
    assert cell("bytes", 3 * 2**20) == "3.00 MiB"


def test_no_text_shows_a_binary_rate() -> None:
    assert [str(path.relative_to(ROOT)) for path in TEXTS if BINARY_RATE.search(path.read_text("utf-8"))] == []
