"""visualprof case: new, check, run, list, compare, show."""

from __future__ import annotations

import argparse
import ast
import json
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.remote.case_sites import numpy_case, order_of
from visualprof.cli import case, main
from visualprof.cli._case_run import _command, _folder, _step_timeouts
from visualprof.errors import BadParameter
from visualprof.reader.results.case import CaseResult, read_case
from visualprof.remote.cases import Vendor
from visualprof.remote.cases.folder import read_case as case_of
from visualprof.remote.child.case.task import CaseTask, check_requirements
from visualprof.remote.protocol import TaskFailure

RESULT = {
    "schema": "visualprof.case/1",
    "case": "resnet50",
    "framework": "pytorch",
    "vendor": "nvidia",
    "compiler": "tensorrt",
    "precision": "fp16",
    "batch_size": 256,
    "state": "succeeded",
    "flops_per_s": 101.481e12,
    "mfu": 0.32526,
    "e2e_ns": 613_400_000_000,
    "memory_used_bytes": 21152661504,
    "memory_total_bytes": 40 << 30,
    "validation": {"whole_per_s": 1358.94, "core_per_s": 4263.25, "accuracy": 0.762, "samples": 50000},
    "inference": {"whole_per_s": 1391.4, "core_per_s": 12406.0, "accuracy": 0.762, "samples": 50000},
}


def _result(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "case.json").write_text(json.dumps({**RESULT, **changes}))
    return folder


def test_a_result_reads_as_flagperf_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["case", "show", str(_result(tmp_path / "run")), "--format", "flagperf"]) == 0
    line, _, table = capsys.readouterr().out.partition("\n\n")
    values = ast.literal_eval(line)
    assert list(values) == [
        "vendor",
        "compiler",
        "precision",
        "batchsize",
        "flops",
        "e2e_time(second)",
        "p_validation_whole(qps)",
        "p_validation_core(qps)",
        "p_inference_whole(qps)",
        "*p_inference_core(qps)",
        "val_average_acc",
        "infer_average_acc",
        "vendor_usage(GiB)",
        "vendor_max_mem(GiB)",
        "*MFU",
    ]
    assert (values["e2e_time(second)"], values["vendor_usage(GiB)"], values["*MFU"]) == (613.4, 19.7, "32.5%")
    row = [cell.strip() for cell in table.splitlines()[2].strip("|").split("|")]
    assert row[:5] == ["tensorrt", "fp16", "256", "613.4", "1358.94"]
    assert row[5:] == ["4263.25", "1391.4", "12406.0", "32.5%", "0.762/0.762", "19.7/40.0"]


def test_results_are_listed_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setting = {"key": "fp16", "origin": "case"}
    _result(tmp_path / "runs" / "a", settings=[{**setting, "value": "true"}])
    _result(tmp_path / "runs" / "b", precision="fp32", mfu=None, settings=[{**setting, "value": "false"}])
    (tmp_path / "runs" / "c").mkdir()
    (tmp_path / "runs" / "c" / "case.json").write_text('{"schema": "another"}')
    assert main(["case", "list", "--logdir", str(tmp_path / "runs"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["run"][-1], row["precision"], row["core_per_s"]) for row in document["results"]] == [
        ("a", "fp16", 12406.0),
        ("b", "fp32", 12406.0),
    ]
    assert main(["case", "compare", str(tmp_path / "runs"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == {"fp16": ["true", "false"]}
    assert main(["case", "compare", str(tmp_path / "runs")]) == 0
    assert "fp16: true, false" in capsys.readouterr().out
    assert main(["case", "show", str(tmp_path / "runs" / "c")]) == 2


def test_a_new_case_is_complete_and_has_a_valid_name(tmp_path: Path) -> None:
    assert main(["case", "new", str(tmp_path / "mine")]) == 0
    case = case_of(tmp_path / "mine")
    assert (case.frameworks, case.parameters, case.vendors) == (("pytorch",), {"tolerance": 0.01}, {"cpu": {}})
    assert case.requirements == {"": ["torch", "onnx"]}
    for name in ("mine", "not a name", "class"):
        assert main(["case", "new", str(tmp_path / name)]) == 2


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "nowhere"],
        ["check", "nowhere"],
        ["run", "{net}", "--vendor", "nobody"],
        ["run", "{net}", "--framework", "paddle"],
        ["run", "{net}", "--data", "/nowhere"],
        ["run", "{net}", "--set", "x"],
        ["show", "/nowhere"],
        ["compare", "/nowhere"],
    ],
)
def test_impossible_options_are_reported(tmp_path: Path, words: list[str]) -> None:
    net = numpy_case(tmp_path / "net")
    assert main(["case", *(word.replace("{net}", str(net)) for word in words)]) == 2


@pytest.mark.long
@pytest.mark.slow
def test_a_case_is_checked_and_run_for_each_of_a_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, logdir = str(numpy_case(tmp_path / "net")), tmp_path / "runs"
    assert main(["case", "check", net, "--set", "repeat=2", "--sandbox", "off"]) == 0
    output = capsys.readouterr().out
    assert "batch_size = 4 (case)" in output
    assert "warning: repeat: the command line sets 2, which is already the value" in output
    command = ["case", "run", net, "--logdir", str(logdir), "--matrix", "batch_size=4,5", "--sandbox", "off"]
    assert main([*command, "--set", "repeat=1"]) == 0
    results: list[CaseResult] = [case for file in sorted(logdir.rglob("case.json")) if (case := read_case(file))]
    assert [(result.batch_size, result.state, result.inference and result.inference.n) for result in results] == [
        (4, "succeeded", 5),
        (5, "succeeded", 4),
    ]


def test_a_successful_case_is_measured_again_in_a_new_run(tmp_path: Path) -> None:
    args = argparse.Namespace(out="", logdir=str(tmp_path), again=False)
    order = order_of(numpy_case(tmp_path / "net"), command={"batch_size": 8})
    first = _folder(args, order, several=False)
    assert first == tmp_path / "net" / "cpu-plain-batch_size=8"
    assert _folder(args, order, several=False) == first  # it did not get to an end
    (first / "case.json").write_text(json.dumps(RESULT))
    assert _folder(args, order, several=False).name == "cpu-plain-batch_size=8~2"
    args.again = True
    assert _folder(args, order, several=False).name == "cpu-plain-batch_size=8~3"
    args.out = str(tmp_path / "mine")
    assert _folder(args, order, several=False) == tmp_path / "mine"
    assert _folder(args, order, several=True) == tmp_path / "mine" / "net" / "cpu-plain-batch_size=8"


@pytest.mark.parametrize(
    ("words", "compiler"),
    [
        (["--framework", "megengine"], "megengine"),
        (["--framework", "tensorflow"], "litert"),
        (["--framework", "tensorflow", "--compiler", "none"], None),
        (["--framework", "megengine", "--set", "compiler=onnxruntime"], "onnxruntime"),
        (["--framework", "pytorch"], "of the case"),
        ([], "of the case"),
    ],
)
def test_a_framework_with_an_engine_of_its_own_uses_it_by_default(words: list[str], compiler: str | None) -> None:
    parser = argparse.ArgumentParser()
    case.add_arguments(parser)
    args = parser.parse_args(["run", "digits", *words])
    assert _command(args).get("compiler", "of the case") == compiler


def test_step_timeouts_apply_to_a_step_or_to_all() -> None:
    assert _step_timeouts(argparse.Namespace(step_timeout=["600", "compile=1800"])) == {"": 600.0, "compile": 1800.0}
    for wrong in ("lunch=5", "compile=", "compile=0", "soon", "nan"):
        with pytest.raises(BadParameter, match="no step, or no seconds"):
            _step_timeouts(argparse.Namespace(step_timeout=[wrong]))


@pytest.mark.parametrize(("device", "problem"), [("", "missing: device: PyTorch in"), ("H200", "")])
def test_a_device_that_pytorch_does_not_see_is_missing(tmp_path: Path, device: str, problem: str) -> None:
    if not find_spec("torch"):
        pytest.skip("needs PyTorch")
    task = CaseTask(str(tmp_path), "nvidia", "pytorch", "cuda:0", description={"name": "net", "requirements": {}})
    (tmp_path / "benchmarks" / "net" / "pytorch").mkdir(parents=True)
    vendor = Vendor("nvidia", "NVIDIA GPU", "cuda", device_name=lambda: device)
    with pytest.raises(TaskFailure, match=problem) if problem else nullcontext():
        check_requirements(task, vendor, ())


@pytest.mark.parametrize("value", ["1" * 5000, "[" * 900, "!!timestamp x", "x" * 5000])
def test_an_unusual_setting_is_an_error_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    folder = numpy_case(tmp_path / "net")
    for action in ("check", "run"):
        assert main(["case", action, str(folder), "--set", f"repeat={value}"]) != 0
        assert "cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "é" * 200 + ":y"])
def test_an_unusual_case_name_is_an_error_without_a_traceback(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["case", "check", name]) != 0
    assert "case" in capsys.readouterr().err
