"""Benchmark cases for tests: in numpy alone, and in FlagPerf's own form."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from visualprof.remote.agent.bundle import child_archive
from visualprof.remote.agent.work.case_run import CaseRequest
from visualprof.remote.cases.folder import read_case

CONFIGURATIONS = """batch_size: 4
flops: 2 * 3
fp16: false
compiler: plain
num_workers: 0
log_freq: 1
repeat: 2
no_validation: false
exist_onnx_path: null
exist_compiler_path: null
"""
# Rows of 0 to 19; the model doubles them. Of the targets, 2 of 20 are wrong: 0.9.
DATALOADER = """import numpy as np

def build_dataloader(config):
    rows = np.arange(20, dtype=np.float32)
    target = rows * 2
    target[[3, 7]] = -1
    size = config.batch_size
    return [(rows[i : i + size, None], target[i : i + size]) for i in range(0, 20, size)]
"""
MODEL = """def create_model(config):
    return lambda x: x * 2
"""
EVALUATOR = """def evaluator(output, target):
    return output[:, 0] == target
"""
EXPORT = """def export_model(model, config):
    path = config.log_dir + "/model.txt"
    with open(path, "w") as file:
        file.write("2")
    return path
"""
# An engine of FlagPerf's form; of the outputs it loses those over 30: 15 wrong below, 16 to 19 above.
ENGINE = """class InferModel:
    def __init__(self, config, onnx_path, model):
        with open(onnx_path) as file:
            self.factor = float(file.read())

    def __call__(self, inputs):
        output = inputs[0] * self.factor
        output[output > 30] = 0
        return [output], 0
"""
FUNCTIONS = "\n".join(
    f"from .{module} import {name}"
    for module, name in (
        ("dataloader", "build_dataloader"),
        ("model", "create_model"),
        ("evaluator", "evaluator"),
        ("export", "export_model"),
    )
)


def numpy_case(folder: Path, **files: str) -> Path:
    """A case of all files in one folder. files: what differs, `model` of `numpy/model.py`; `engine` of the engine."""
    inner = {
        "__init__": FUNCTIONS,
        "dataloader": DATALOADER,
        "model": MODEL,
        "evaluator": EVALUATOR,
        "export": EXPORT,
    }
    texts = {f"numpy/{name}.py": files.get(name, text) for name, text in inner.items()}
    texts |= {
        "configurations.yaml": files.get("configurations", CONFIGURATIONS),
        "parameters.yaml": files.get("parameters", "tolerance: 0.25\n"),
        "inference_engine/cpu/plain.py": files.get("engine", ENGINE),
    }
    if "forward" in files:
        texts["numpy/forward.py"] = files["forward"]
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def order_of(folder: Path, name: str = "", **changes: Any) -> CaseRequest:
    """The case of a folder for this interpreter, without a sandbox. name: of one in a tree of FlagPerf's."""
    case = read_case(folder, name)
    data = str(case.data_dir or "")
    given: dict[str, Any] = {
        "vendor": "cpu",
        "framework": case.frameworks[0],
        "data_dir": data,
        "pythons": [(sys.executable, ())],
        "memory_bytes": 8 << 30,
        "timeout_s": 120.0,
        "code": child_archive(),
        **changes,
    }
    return CaseRequest(case.description(), case.files, **given)
