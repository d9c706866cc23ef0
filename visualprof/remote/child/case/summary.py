"""Results derived from the steps of a case: MFU, verdict on the accuracy, a point for evaluations, FlagPerf's line."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

from visualprof.messages import msg
from visualprof.remote.cases import Vendor
from visualprof.remote.cases.arithmetic import evaluate
from visualprof.remote.cases.layers import MergedConfig
from visualprof.remote.cases.requirements import installed_version
from visualprof.remote.child.case.forward import RoundTimer, finite_number
from visualprof.remote.child.host import peak_rss_bytes
from visualprof.remote.child.measure import latency_statistics, pack_samples

ACCURACY_TOLERANCE = 0.01  # accuracy that may be lost, unless parameters.yaml sets `tolerance`
PACKAGES = tuple(
    """
    torch torchvision transformers onnx onnxruntime onnxruntime-gpu openvino tensorrt MegEngine
    ai-edge-litert tensorflow numpy
    """.split()
)


def extra_metrics(returned: tuple[Any, ...]) -> dict[str, float]:
    """Return the further metrics that a case's function returned as a dictionary after its three values."""
    metrics = cast("dict[Any, Any]", returned[3]) if len(returned) > 3 and isinstance(returned[3], dict) else {}
    return {str(name): value for name, item in metrics.items() if (value := finite_number(item)) is not None}


def measured_passes(result: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return validation and inference, empty if they did not run."""
    return result.get("validation", {}), result.get("inference", {})


def derived_fields(result: dict[str, Any], vendor: Vendor, merged: MergedConfig | None) -> dict[str, Any]:
    """Return the fields of the result that follow from other fields."""
    assert merged is not None
    validation, inference = measured_passes(result)
    flops = merged["flops"]
    per_sample = None if flops is None else evaluate(flops)
    measured = inference if result["compiler"] is not None else validation
    peak = vendor.peak(result["precision"])
    fields = {
        "flops_per_sample": per_sample,
        "device_name": vendor.device_name(),
        "versions": _versions(),
        "peak_flops": peak.flops if peak else None,
        "peak_source": peak.source if peak else "",
        **utilization(per_sample, measured.get("core_per_s"), peak.flops if peak else None),
    }
    tolerance = merged.settings.get("tolerance")
    tolerance_value = finite_number(tolerance.value) if tolerance else ACCURACY_TOLERANCE
    return fields | accuracy_verdict(validation.get("accuracy"), inference.get("accuracy"), tolerance_value)


def utilization(per_sample: float | None, core_per_s: float | None, peak: float | None) -> dict[str, float | None]:
    """Return operations per second, and their share of the peak (MFU); `None` if unknown.

    A share above 1 is unknown: the peak was measured on a busy machine, or `flops` is too high.
    """
    flops = per_sample * core_per_s if per_sample and core_per_s else None
    return {"flops_per_s": flops, "mfu": flops / peak if flops and peak and flops <= peak else None}


def accuracy_verdict(validation: float | None, inference: float | None, tolerance: float | None) -> dict[str, Any]:
    """Compare the accuracy of inference with that of validation; within the tolerance they are the same."""
    if validation is None or inference is None or tolerance is None:
        return {"accuracy_difference": None, "tolerance": tolerance, "verdict": ""}
    difference = inference - validation
    verdict = "same" if abs(difference) <= tolerance else "worse" if difference < 0 else "better"
    return {"accuracy_difference": difference, "tolerance": tolerance, "verdict": verdict}


def write_point(out: Path, clocks: RoundTimer, passed: dict[str, Any], load_ns: int, emit: Callable[..., None]) -> None:
    """Write the calls as evaluations store their runs: a line of `points.jsonl`, and `latencies.bin`."""
    calls = np.array([call for one in clocks.rounds for call in one.calls], np.int64)
    (out / "latencies.bin").write_bytes(pack_samples(calls))
    if not len(calls) or not passed["samples"]:
        return
    batch, duration_ns = passed["samples"] / len(calls), max(1, int(calls.sum()))
    line = {
        "batch": max(1, round(batch)),
        "n": len(calls),
        "duration_ns": duration_ns,
        "load_ns": load_ns,
        "first_ns": passed["first_ns"] or 0,
        "warmup_n": passed["warmup_n"],
        "qps": len(calls) * 1e9 / duration_ns,
        "samples_per_s": passed["samples"] * 1e9 / duration_ns,
        "whole_samples_per_s": passed["whole_per_s"],
        **latency_statistics(calls),
        "involuntary_switches": None,
        "pressure": None,
        "host_busy": passed["host_busy"],
        "rss_bytes": peak_rss_bytes(),
        "gpu_memory_bytes": None,
        "energy_j_per_sample": None,
        "throttled": None,
        "start_ns": passed["start_ns"],
        "end_ns": passed["end_ns"],
        "latencies": [0, len(calls)],
    }
    (out / "points.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    emit("point", point=line)


def print_finish_info(result: dict[str, Any]) -> None:
    """Print FlagPerf's last line to the log."""
    validation, inference = measured_passes(result)
    info = {
        "vendor": result["vendor"],
        "compiler": result["compiler"],
        "precision": result["precision"],
        "batchsize": result["batch_size"],
        "flops": result["flops_per_s"],
        "e2e_time(second)": round(result["e2e_ns"] / 1e9, 3),
        "p_validation_whole(qps)": validation.get("whole_per_s"),
        "p_validation_core(qps)": validation.get("core_per_s"),
        "p_inference_whole(qps)": inference.get("whole_per_s"),
        "*p_inference_core(qps)": inference.get("core_per_s"),
        "val_average_acc": validation.get("accuracy"),
        "infer_average_acc": inference.get("accuracy"),
    }
    print(msg("child.finish_info", "Finish Info"), "|", info, flush=True)  # noqa: T201 - the log of the run


def _versions() -> dict[str, str]:
    known = {name: installed_version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **{name: version for name, version in known.items() if version}}
