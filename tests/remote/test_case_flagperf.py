"""A case of FlagPerf's form, with its imports, its calls and its engine, on a CPU where `.cuda()` does nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.remote.case_sites import order_of
from visualprof.cli._case_shown import flagperf
from visualprof.reader.results.case import read_case
from visualprof.remote.agent.work.case_run import run_local_case
from visualprof.remote.child.case.logger import Logger

FILES = {
    "configs/smallnet/configurations.yaml": """batch_size: 8
flops: 2 * 3 * 4 * 9 * 8 * 8
fp16: false
compiler: onnxruntime
num_workers: 0
log_freq: 2
repeat: 2
no_validation: false
exist_onnx_path: null
exist_compiler_path: null
""",
    "configs/smallnet/parameters.yaml": "",
    "configs/smallnet/vendor_config/nvidia_configurations.yaml": "trt_tmp_path: smallnet.trt\n",
    "benchmarks/smallnet/pytorch/__init__.py": """from .dataloader import build_dataloader
from .model import create_model
from .export import export_model
from .evaluator import evaluator
from .forward import model_forward, engine_forward
""",
    "benchmarks/smallnet/pytorch/dataloader.py": """import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from loguru import logger


def build_dataloader(config):
    images = torch.from_numpy(np.load(config.data_dir + "/images.npy"))
    if config.fp16:
        images = images.half()
    labels = torch.from_numpy(np.load(config.data_dir + "/labels.npy"))
    logger.info("images: " + str(len(images)))
    return DataLoader(TensorDataset(images, labels), batch_size=config.batch_size, shuffle=False,
                      num_workers=config.num_workers, drop_last=True, pin_memory=False)
""",
    "benchmarks/smallnet/pytorch/model.py": """import torch


def create_model(config):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
                                torch.nn.Linear(4 * 8 * 8, 10))
    model.cuda()
    model.eval()
    if config.fp16:
        model.half()
    return model
""",
    "benchmarks/smallnet/pytorch/evaluator.py": """import torch


def evaluator(pred, ground_truth):
    pred = torch.argmax(pred, dim=1)
    return (pred == ground_truth).float()
""",
    "benchmarks/smallnet/pytorch/export.py": """import torch
import os


def export_model(model, config):
    if config.exist_onnx_path is not None:
        return config.exist_onnx_path
    name = config.case + "_bs" + str(config.batch_size) + "_" + config.framework + "_fp16" + str(config.fp16)
    onnx_path = config.perf_dir + "/onnxs/" + name + ".onnx"
    dummy = torch.randn(config.batch_size, 3, 8, 8)
    if config.fp16:
        dummy = dummy.half()
    dummy = dummy.cuda()
    os.makedirs(os.path.dirname(onnx_path), exist_ok=True)
    with torch.no_grad():
        torch.onnx.export(model, dummy, onnx_path, verbose=False, input_names=["input"], output_names=["output"],
                          training=torch.onnx.TrainingMode.EVAL, do_constant_folding=True)
    return onnx_path
""",
    "benchmarks/smallnet/pytorch/forward.py": """from loguru import logger
import torch
import numpy as np
import time
from tools import torch_sync
from benchmarks.smallnet.pytorch import *


def rates(config, dataloader, duration, core_time, what):
    samples = config.repeat * len(dataloader) * config.batch_size
    logger.info(what + "(" + config.framework + ") Perf: " + str(samples / duration) + " ips")
    logger.info(what + "(" + config.framework + ") core Perf: " + str(samples / core_time) + " ips")
    return round(samples / duration, 3), round(samples / core_time, 3)


def model_forward(model, dataloader, evaluator, config):
    if config.no_validation:
        return None, None, None
    start, core_time, acc = time.time(), 0.0, []
    for times in range(config.repeat):
        logger.debug("Repeat: " + str(times + 1))
        all_top1 = []
        for step, (x, y) in enumerate(dataloader):
            torch_sync(config)
            core_time_start = time.time()
            if step % config.log_freq == 0:
                logger.debug("Step: " + str(step) + " / " + str(len(dataloader)))
            with torch.no_grad():
                x = x.cuda()
                y = y.cuda()
                pred = model(x)
                torch_sync(config)
                core_time += time.time() - core_time_start
                all_top1.extend(evaluator(pred, y).cpu())
        acc.append(np.mean(all_top1))
    logger.info("Top1: " + str(acc))
    return *rates(config, dataloader, time.time() - start, core_time, "Validation"), round(float(np.mean(acc)), 3)


def engine_forward(model, dataloader, evaluator, config):
    start, core_time, foo_time, acc = time.time(), 0.0, 0.0, []
    for times in range(config.repeat):
        all_top1 = []
        for step, (x, y) in enumerate(dataloader):
            torch_sync(config)
            core_time_start = time.time()
            with torch.no_grad():
                outputs = model([x])
                pred, foo_time = outputs[0][0].float(), foo_time + outputs[1]
                torch_sync(config)
                core_time += time.time() - core_time_start
                all_top1.extend(evaluator(pred.reshape(-1, 10), y).cpu())
        acc.append(np.mean(all_top1))
    duration = time.time() - start - foo_time
    return *rates(config, dataloader, duration, core_time - foo_time, "Inference"), round(float(np.mean(acc)), 3)
""",
}


@pytest.mark.slow
def test_a_flagperf_case_runs_unchanged(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    np = pytest.importorskip("numpy")
    root, data = tmp_path / "inference", tmp_path / "data"
    for place, text in FILES.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text, "utf-8")
    data.mkdir()
    images = np.random.default_rng(0).standard_normal((44, 3, 8, 8), np.float32)  # 5 batches of 8; 4 are dropped
    torch.manual_seed(3)
    layers = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(256, 10)
    with torch.no_grad():
        labels = torch.nn.Sequential(*layers).eval()(torch.from_numpy(images)).argmax(1).numpy()
    labels[:4] = (labels[:4] + 1) % 10  # 36 of 40 are right
    np.save(data / "images.npy", images)
    np.save(data / "labels.npy", labels)
    run = tmp_path / "run"
    run_local_case(order_of(root, data_dir=str(data)), run)
    result = read_case(run / "case.json")
    assert result is not None
    assert (result.state, result.error) == ("succeeded", ""), (run / "log.txt").read_text()[-2000:]
    validation, inference = result.validation, result.inference
    assert validation is not None
    assert inference is not None
    assert (validation.own, validation.accuracy, inference.accuracy, result.verdict) == (True, 0.9, 0.9, "same")
    assert (inference.n, inference.samples) == (10, 80)
    # The case's own clock stands around ours, with a line of log within: it tells no more samples a second.
    calls = np.fromfile(run / "latencies.bin", "<u4").astype(np.int64)
    assert inference.core_per_s is not None
    assert 0 < inference.core_per_s <= 80e9 / calls.sum() * 1.05
    assert (run / "onnxs/smallnet_bs8_pytorch_fp16False.onnx").is_file()
    assert "Repeat: 2" in (run / "log.txt").read_text()
    line, _, table = flagperf(result).partition("\n\n")
    told = ast.literal_eval(line)  # as FlagPerf reads it
    assert (told["vendor"], told["batchsize"], told["precision"], told["val_average_acc"]) == ("cpu", 8, "fp32", 0.9)
    assert told["flops"] == pytest.approx(2 * 3 * 4 * 9 * 64 * inference.core_per_s)
    assert table.splitlines()[2].startswith("| onnxruntime | fp32 | 8 | ")
    assert "| 0.9/0.9 |" in table


def test_the_logger_has_the_calls_of_flagperfs_cases(capsys: pytest.CaptureFixture[str]) -> None:
    logger = Logger()
    logger.remove()
    assert logger.add("file.log", level="DEBUG", format="{message}") == 0
    logger.debug("Step: 1")
    logger.log("Vendor Inference Begin", "")
    logger.log("Finish Info", {"a": 1})
    logger.level("Mine", no=21)
    logger.log("Mine", "{} of {n}", 1, n=2)
    logger.opt(colors=True).warning("odd")
    logger.exception("broken")
    lines = [line.split(" | ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "DEBUG | Step: 1",
        "Vendor Inference Begin | ",
        "Finish Info | {'a': 1}",
        "Mine | 1 of 2",
        "WARNING | odd",
        "ERROR | broken",
    ]
    with pytest.raises(ValueError, match="unknown level"):
        logger.log("Nothing", "x")
    with pytest.raises(AttributeError):
        _ = logger.nothing
