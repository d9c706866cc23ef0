"""Continue rows of numbers that repeat a motif with a small Llama: tokens per second and time to first token."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from .model import VOCABULARY, create_model, no_past

__all__ = ["build_dataloader", "create_model", "engine_forward", "evaluator", "export_model", "model_forward"]

Step = Callable[[list[Tensor]], tuple[list[Tensor], float]]


def build_dataloader(config: Any) -> DataLoader[Any]:
    """Return batches of prompts and their continuations. A motif has 4 to 8 numbers."""
    random = np.random.RandomState(config.seed)
    period, motif = random.choice(np.arange(4, 9), config.samples), random.randint(2, VOCABULARY, (config.samples, 8))
    places = np.arange(config.prompt + config.tokens)
    rows = torch.from_numpy(motif[np.arange(config.samples)[:, None], places % period[:, None]]).long()
    return DataLoader(TensorDataset(rows[:, : config.prompt], rows[:, config.prompt :]), config.batch_size)


def evaluator(tokens: Tensor, wanted: Tensor) -> Tensor:
    """Whether each token is correct."""
    return tokens == wanted


def generated(step: Step, prompt: Tensor, count: int) -> tuple[Tensor, list[float]]:
    """Return the most likely tokens after prompts, and the seconds of each step.

    The first step processes the whole prompt.
    """
    ids, past = prompt, no_past(len(prompt))
    tokens: list[Tensor] = []
    took: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        (logits, past), other = step([ids, past])
        took.append(time.perf_counter() - begin - other)
        ids = logits.float().cpu().reshape(len(prompt), VOCABULARY).argmax(1, keepdim=True)
        tokens.append(ids)
    return torch.cat(tokens, 1), took


def forward(step: Step, dataloader: Any, evaluator: Any, config: Any) -> tuple[float, float, float, dict[str, float]]:
    """Return prompts per second (whole and core), the share of correct tokens, and metrics of the generation.

    time_to_first_token_ms: Median of the first steps.
    time_per_token_ms: Mean of the other steps.
    tokens_per_s: New tokens of all prompts of a batch, divided by the time of all steps.
    """
    generated(step, next(iter(dataloader))[0], 4)  # warms up
    right: list[Tensor] = []
    steps: list[list[float]] = []
    begin = time.perf_counter()
    for _ in range(config.repeat):
        for prompt, wanted in dataloader:
            tokens, took = generated(step, prompt, config.tokens)
            steps.append(took)
            right.append(evaluator(tokens, wanted).reshape(-1))
    whole, core, prompts = time.perf_counter() - begin, sum(map(sum, steps)), config.samples * config.repeat
    metrics = {
        "time_to_first_token_ms": 1000 * statistics.median(took[0] for took in steps),
        "time_per_token_ms": 1000 * statistics.fmean(one for took in steps for one in took[1:]),
        "tokens_per_s": prompts * config.tokens / core,
    }
    return prompts / whole, prompts / core, float(torch.cat(right).float().mean()), metrics


def model_forward(model: Any, dataloader: Any, evaluator: Any, config: Any) -> tuple[Any, ...]:
    """Run the PyTorch model."""

    def step(inputs: list[Tensor]) -> tuple[list[Tensor], float]:
        with torch.no_grad():
            logits, past = model(*(one.cuda() for one in inputs))
            return [logits.cpu(), past], 0.0

    return forward(step, dataloader, evaluator, config)[:3]


def engine_forward(engine: Any, dataloader: Any, evaluator: Any, config: Any) -> tuple[Any, ...]:
    """Run the compiled model."""
    return forward(engine, dataloader, evaluator, config)


def export_model(model: Any, config: Any) -> str:
    """Export to ONNX with dynamic sizes of batch, tokens and cache."""
    path = str(Path(config.perf_dir) / "llm.onnx")
    example = (torch.full((config.batch_size, 3), 2).cuda(), no_past(config.batch_size).cuda())
    with torch.no_grad():
        past = model(*example)[1]
    axes = {
        "ids": {0: "batch", 1: "tokens"},
        "past": {1: "batch", 4: "before"},
        "logits": {0: "batch"},
        "present": {1: "batch", 4: "all"},
    }
    names = {"input_names": ["ids", "past"], "output_names": ["logits", "present"]}
    torch.onnx.export(model, (example[0], past), path, dynamo=False, dynamic_axes=axes, **names)
    return path
