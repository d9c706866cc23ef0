"""Every warning that the server knows about a file is also printed by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import RECORDINGS
from tests.server.sites import MakeSite
from visualprof.cli import main

PLACE: dict[str, Any] = {"ph": "X", "pid": 1, "tid": 1}
OPERATOR = {**PLACE, "cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 20}
LAUNCH = {**PLACE, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 100, "dur": 5, "args": {"correlation": 1}}
KERNEL = {
    **PLACE,
    "cat": "kernel",
    "name": "gemm",
    "pid": 0,
    "tid": 7,
    "dur": 50,
    "args": {"correlation": 1, "device": 0, "stream": 7},
}


def trace(*events: dict[str, Any]) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": [OPERATOR, LAUNCH, *events]})


DAMAGED = {
    "cut": trace({**KERNEL, "ts": 120}, OPERATOR)[:-40],
    "early": trace({**KERNEL, "ts": 60}),  # a kernel before its launch
    "zero": trace({**KERNEL, "ts": 0}),
    "damaged": trace(OPERATOR).replace('"dur": 20}, {', '"dur": 20, {', 1),
    "empty": json.dumps({"schemaVersion": 1, "traceEvents": []}),
}
PUBLIC = [p for p in sorted((RECORDINGS / "cases" / "reports").glob("*/*trace*.json")) if p.stat().st_size < 500_000]


def check(make_site: MakeSite, path: Path, content: bytes, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Return the warnings that the server knows, after checking that the command line prints each."""
    path.write_bytes(content)
    site = make_site()
    site.write(f"run/{path.name}", content)
    runs = site.client.get("/api/v1/runs/changes").get_json()["runs"]
    known = [w for run in runs for worker in run["workers"] for span in worker["spans"] for w in span["warnings"]]
    code = main(["view", "overview", str(path), "--format", "json"])
    out, err = capfd.readouterr()
    assert [warning for warning in known if warning not in err] == []
    if code == 0:
        assert set(known) <= set(json.loads(out)["warnings"])
    return known


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "own"))


@pytest.mark.parametrize("name", DAMAGED)
def test_the_command_line_prints_the_warnings_of_a_damaged_file(
    make_site: MakeSite, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    assert check(make_site, tmp_path / f"{name}.json", DAMAGED[name].encode(), capfd) != []


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.parent.name)
def test_the_command_line_prints_the_warnings_of_public_cases(
    make_site: MakeSite, tmp_path: Path, capfd: pytest.CaptureFixture[str], path: Path
) -> None:
    check(make_site, tmp_path / path.name, path.read_bytes(), capfd)
