"""`visualprof convert`: results, messages and rejected requests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.remote.conversions import difference, run, small_onnx
from visualprof.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, the present one, with small.onnx and rows.npz."""
    monkeypatch.setenv("VISUALPROF_RUNTIMES", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    small_onnx(tmp_path / "small.onnx")
    np.savez("rows.npz", x=np.random.default_rng(0).standard_normal((16, 3, 8, 8), dtype=np.float32))
    return tmp_path


def convert(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["convert", "small.onnx", *arguments])
    out, err = capfd.readouterr()
    return status, out, err


def test_a_model_is_converted_and_reported(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    status, out, _ = convert(capfd, "--to", "onnx_fp16", "-o", "half.onnx")
    assert status == 0
    assert f"{folder / 'half.onnx'}: 4.20 KiB, the model has 7.01 KiB" in out
    assert "operators: Cast 0 -> 2" in out
    assert sorted(path.name for path in folder.iterdir()) == ["half.onnx", "rows.npz", "small.onnx"]
    feeds = {"x": np.load("rows.npz")["x"]}
    assert 0 < difference(run(folder / "half.onnx", feeds), run(folder / "small.onnx", feeds)) < 3e-3


def test_a_model_may_be_named_by_its_folder(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    assert main(["convert", str(folder), "--to", "onnx_fp16", "-o", "half.onnx"]) == 0
    assert "half.onnx: 4.20 KiB" in capfd.readouterr()[0]


def test_rows_of_data_calibrate(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = convert(capfd, "--to", "ort_int8_static", "--data", "rows.npz", "--format", "json")
    document = json.loads(out)
    assert (status, document["changed"], Path(document["files"][0]).name) == (0, True, "small.ort_int8_static.onnx")
    assert document["after"]["QuantizeLinear"] > document["before"].get("QuantizeLinear", 0)
    assert set(document["tools"]) == {"python", "onnxruntime", "onnx"}
    assert document["size_bytes"] == Path(document["files"][0]).stat().st_size


def test_a_model_of_two_files_stays_together(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    Path("out").mkdir()
    status, out, _ = convert(capfd, "--to", "openvino_ir", "-o", "out")
    assert (status, "belongs to it" in out) == (0, True)
    assert sorted(path.name for path in Path("out").iterdir()) == ["small.openvino_ir.bin", "small.openvino_ir.xml"]
    feeds = {"x": np.load("rows.npz")["x"]}
    assert difference(run(folder / "out/small.openvino_ir.xml", feeds), run(folder / "small.onnx", feeds)) < 1e-5


def test_settings_for_running_the_model_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = convert(capfd, "--to", "ort_level")
    assert (status, out.splitlines()[-1]) == (0, "to run it: --backend onnxruntime --option optimization=disable")


def test_a_conversion_without_effect_has_its_own_status_and_no_file(
    capfd: pytest.CaptureFixture[str], folder: Path
) -> None:
    status, out, _ = convert(capfd, "--to", "onnx_opset", "--option", "version=17")
    assert (status, "no effect" in out) == (3, True)
    assert sorted(path.name for path in folder.iterdir()) == ["rows.npz", "small.onnx"]


def test_converters_are_listed_with_missing_requirements(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = convert(capfd, "--list", "--format", "json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert status == 0
    assert rows["onnx_fp16"]["state"] == rows["openvino_ir"]["state"] == "ready"
    assert rows["ort_int8_static"]["title"].endswith("needs --data")
    assert rows["ort_level"]["options"]["level"][0] == "extended"
    assert "torchscript_freeze" not in rows
    shown = convert(capfd, "--list")[1]
    for name, row in rows.items():
        assert name in shown
        assert row["state"] == "ready" or row["state"].startswith(("nothing for it: ", "missing: visualprof agent"))


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["--to", "nix"], "does not exist", "onnx_fp16"),
        (["--to", "torchscript_freeze"], "takes no model of this format (onnx)", "onnx_fp16"),
        (["--to", "ort_level", "--option", "level=9"], "level is '9'", "extended, all, basic"),
        (["--to", "ort_level", "-o", "rows.npz"], "makes a .onnx", "rows.onnx"),
        (["--to", "ort_level", "-o", "small.onnx"], "is there already", ""),
        (["--to", "ort_int8_static"], "input_error: Static int8 (QDQ) needs rows of your data", "--data"),
        (["--to", "ort_int8_static", "--data", "small.onnx"], "input_error: the data cannot be read", "numpy.savez"),
        (["--to", "ort_fusion_off"], "model_error: ONNX Runtime does not apply SkipLayerNormFusion", "log: "),
        (["--to", "onnx_shapes", "--timeout", "0.01"], "timeout: did not finish within 0.01 s", ""),
    ],
)
def test_impossible_conversions_are_explained(
    capfd: pytest.CaptureFixture[str], folder: Path, arguments: list[str], error: str, hint: str
) -> None:
    status, _, err = convert(capfd, *arguments)
    assert status == 2
    assert error in err
    assert hint in err
    left = {path.name for path in folder.iterdir()}
    assert {name for name in left if not name.endswith(".log.txt")} == {"rows.npz", "small.onnx"}


def test_missing_files_and_arrays_are_rejected_as_models(capfd: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.zeros(3))
    for name, error in (("none.onnx", "no such file"), ("a.npy", "is an array, no model")):
        assert main(["convert", name, "--list"]) == 2
        assert error in capfd.readouterr().err
