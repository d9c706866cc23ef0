"""`visualprof advise` on this machine: output, files and rejected requests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.remote.child_runs import tiny_onnx
from visualprof.cli import main
from visualprof.cli._subjects import reports_below


@pytest.mark.slow
@pytest.mark.long
def test_a_model_is_advised_here_with_rows_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tiny_onnx(tmp_path / "net.onnx"), tmp_path / "out"
    np.savez(tmp_path / "rows.npz", x=np.ones((6, 4), "float32"), scale=np.float32(2))
    (tmp_path / "metric.py").write_text("def metric(original, candidate):\n    return candidate[0].shape[0]\n")
    words = ["advise", str(model), "--batch", "2", "--backend", "onnxruntime", "--only", "onnx-fp16", "--threads", "1"]
    words += ["--data", str(tmp_path / "rows.npz"), "--metric", str(tmp_path / "metric.py"), "-o", str(out)]
    assert main([*words, "--format", "json", "--max-error", "0.5"]) == 0
    advice = json.loads(capsys.readouterr().out)["advice"]
    assert advice["candidate"] == ["original", "onnx-fp16"]
    assert advice["verdict"][1] in ("faster", "equal", "slower", "undecided", "no effect")
    assert advice["metric"][1] in (3.0, None)  # rows 0, 2, 4 judge; nothing is measured of what has no effect
    (report,) = reports_below(str(out))
    assert [point.batch for point in report.points] == [2]
    assert report.advice is not None
    assert report.advice.data_rows == 3
    assert main([*words, "--only", "original"]) == 0  # the result there is replaced
    assert "original" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--apply"], "--apply makes versions, which a server keeps"),
        (["--data", "none.npz"], "none.npz cannot be read"),
        (["--data", "rows.npy"], "rows.npy cannot be read: a single array without the name of its input"),
        (["--metric", "none.py"], "none.py cannot be read"),
        (["--only", "onnx-fp61", "--backend", "onnxruntime"], "there is no candidate 'onnx-fp61'"),
    ],
)
def test_impossible_requests_are_rejected_before_anything_runs(
    tmp_path: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from visualprof.remote.agent.machine import probe, runtimes
    from visualprof.remote.protocol import Capabilities

    machine = probe.Machine(Capabilities("x86", "x86_64", "Linux", "host", "cpu", 2, 1 << 30, 0, "0"))
    monkeypatch.setattr(runtimes, "probe_all", lambda *_: machine)
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.zeros((3, 2), np.float32))
    assert main(["advise", str(tiny_onnx(tmp_path / "net.onnx")), *words]) == 2
    assert why in capsys.readouterr().err


def test_a_folder_that_is_not_a_result_is_left_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert main(["advise", str(tiny_onnx(tmp_path / "net.onnx")), "-o", str(tmp_path / "mine")]) == 2
    assert "no result" in capsys.readouterr().err
    assert (tmp_path / "mine" / "thesis.txt").exists()
