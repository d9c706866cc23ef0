"""The shipped cases: their layers per vendor, what they compute, and known results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.remote.case_sites import order_of
from visualprof.reader.results.case import CaseResult, read_case
from visualprof.remote.agent.work.case_run import run_local_case
from visualprof.remote.cases import all_vendors
from visualprof.remote.cases.arithmetic import evaluate
from visualprof.remote.cases.folder import read_case as read_folder
from visualprof.remote.cases.folder import shipped_cases
from visualprof.remote.cases.layers import HOST_KEYS, merge

CASES = sorted(shipped_cases())


@pytest.mark.parametrize("vendor", ["cpu", "nvidia", "amd"])
@pytest.mark.parametrize("name", CASES)
def test_the_layers_of_a_case_fit_each_vendor(name: str, vendor: str) -> None:
    case = read_folder(shipped_cases()[name])
    merged = merge(dict.fromkeys(HOST_KEYS, ""), case.case, case.parameters, case.vendors.get(vendor, {}), {})
    assert merged.warnings == []
    assert merged["compiler"] in all_vendors()[vendor].engines
    assert case.title
    assert [one for one in case.data if not (case.data_dir or Path("/nowhere")).joinpath(one).is_file()] == []


@pytest.mark.parametrize(
    ("name", "flops"),
    [  # of PyTorch's FlopCounterMode; for what it does not count, attention on a CPU, see the case
        ("resnet50", 8_178_368_512),
        ("vit", 33_697_001_472 + 12 * 2 * 2 * 197 * 197 * 768),
        ("digits", 2 * (8 * 8 * 16 * 9 + 8 * 8 * 32 * 16 * 9 + 10 * 512)),
    ],
)
def test_operations_of_a_sample(name: str, flops: int) -> None:
    assert evaluate(read_folder(shipped_cases()[name]).case["flops"]) == flops


def convolved(x: Any, weight: Any, bias: Any) -> Any:
    """3 x 3 with a border of 1, and what is above 0."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = x.shape[2:]
    shifted = [padded[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    product = np.einsum("knchw,ock->nohw", np.stack(shifted), weight.reshape(*weight.shape[:2], 9), optimize=True)
    return np.maximum(product + bias[:, None, None], 0)


def test_the_digits_that_the_cnn_knows_are_recomputed() -> None:
    data = shipped_cases()["digits"] / "data"
    rows, w = np.load(data / "digits.npz"), np.load(data / "weights.npz")
    assert sum(w[name].size for name in w.files) == 9930
    x = rows["images"].reshape(-1, 1, 8, 8).astype(np.float32) / 16
    x = convolved(convolved(x, w["0.weight"], w["0.bias"]), w["2.weight"], w["2.bias"])
    x = x.reshape(-1, 32, 4, 2, 4, 2).max((3, 5)).reshape(-1, 512)
    logits = x @ w["6.weight"].T + w["6.bias"]
    assert (int((logits.argmax(1) == rows["digits"]).sum()), len(x)) == (441, 450)
    best = np.sort(logits, 1)[:, -2:]
    assert (best[:, 1] - best[:, 0]).min() > 0.2, "no answer hangs on the last bits"


def measured(name: str, compiler: str, run: Path, **settings: Any) -> CaseResult:
    pytest.importorskip("torch")
    pytest.importorskip(compiler)
    folder = shipped_cases()[name]
    command = {"compiler": compiler, "repeat": 1, **settings}
    run_local_case(order_of(folder, framework="pytorch", data_dir=str(folder / "data"), command=command), run)
    result = read_case(run / "case.json")
    assert result is not None
    assert (result.state, result.error) == ("succeeded", "")
    return result


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["onnxruntime", pytest.param("openvino", marks=pytest.mark.long)])
def test_digits_reach_441_of_450_in_both(tmp_path: Path, compiler: str) -> None:
    result = measured("digits", compiler, tmp_path / "run")
    assert result.validation is not None
    assert result.inference is not None
    assert result.validation.accuracy == result.inference.accuracy == pytest.approx(441 / 450, abs=1e-12)
    assert (result.verdict, result.accuracy_difference) == ("same", 0.0)
    assert result.flops_per_s == pytest.approx(618_496 * (result.inference.core_per_s or 0))
    share = (result.flops_per_s or 0) / (result.peak_flops or 1)  # above 1 on a machine that was busy meanwhile
    assert result.mfu == (pytest.approx(share) if share <= 1 else None)


@pytest.mark.long
def test_a_language_model_has_the_time_to_its_first_token(tmp_path: Path) -> None:
    result = measured("llm", "onnxruntime", tmp_path / "run")
    assert result.validation is not None
    assert result.inference is not None
    assert result.inference.accuracy == result.validation.accuracy
    assert (result.inference.accuracy or 0) > 0.9
    # 32 prompts of 32 tokens: a prompt is 32 tokens, and a token of a batch of 4 takes what one step takes.
    metrics = result.metrics
    assert metrics["tokens_per_s"] == pytest.approx(32 * (result.inference.core_per_s or 0))
    first_and_others = metrics["time_to_first_token_ms"] + 31 * metrics["time_per_token_ms"]
    assert 4 * 32 / first_and_others * 1000 == pytest.approx(metrics["tokens_per_s"], rel=0.5)
