"""A few random kills; many of them by hand: python -m tests.remote.chaos."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote import chaos

pytestmark = pytest.mark.slow


def test_what_was_acknowledged_ends_with_all_its_points(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    told = chaos.run(tmp_path, 4, 1, patience_s=60)
    assert told["jobs"] >= 3
