"""Detect discs and squares. The accuracy is the share of objects with correct class and box."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from .model import CLASSES, create_model
from .pictures import CELL, pictures

__all__ = ["build_dataloader", "create_model", "evaluator", "export_model"]


def build_dataloader(config: Any) -> DataLoader[Any]:
    """Return batches of pictures and their objects."""
    images, objects = pictures(config.samples, config.seed)
    return DataLoader(TensorDataset(torch.from_numpy(images), torch.from_numpy(objects)), config.batch_size)


def boxes(cells: Tensor) -> Tensor:
    """Convert outputs to (batch, 8, 8, 6): score, class, center x and y, width and height in pixels."""
    cells = cells.permute(0, 2, 3, 1)
    ys, xs = torch.meshgrid(torch.arange(cells.shape[1]), torch.arange(cells.shape[2]), indexing="ij")
    kind = cells[..., 1 : 1 + CLASSES].argmax(-1)
    x, y, width, height = cells[..., 1 + CLASSES :].unbind(-1)
    return torch.stack(
        (cells[..., 0].sigmoid(), kind, (xs + x) * CELL, (ys + y) * CELL, width * CELL, height * CELL), -1
    )


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """Return the intersection over union of boxes; their last dimension has center and size."""
    low = torch.maximum(a[..., :2] - a[..., 2:] / 2, b[..., :2] - b[..., 2:] / 2)
    high = torch.minimum(a[..., :2] + a[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2)
    shared = (high - low).clamp(min=0).prod(-1)
    return shared / (a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - shared)


def evaluator(outputs: Tensor, objects: Tensor) -> Tensor:
    """Whether each object is found: by a box of its class with a score of 0.5 and an overlap of 0.5 (recall)."""
    all_boxes = boxes(outputs.float().cpu().reshape(len(objects), -1, CELL, CELL)).flatten(1, 2)
    near = overlap(all_boxes[:, None, :, 2:], objects[:, :, None, 1:]) >= 0.5
    right = near & (all_boxes[:, None, :, 1] == objects[:, :, None, 0]) & (all_boxes[:, None, :, 0] >= 0.5)
    real = objects[..., 0] >= 0
    return right.any(-1)[real]


def export_model(model: Any, config: Any) -> str:
    """Export to ONNX with a dynamic batch size."""
    path = str(Path(config.perf_dir) / "detector.onnx")
    example = torch.zeros(config.batch_size, 1, 64, 64).cuda()
    names = {"input_names": ["images"], "output_names": ["cells"]}
    torch.onnx.export(model, (example,), path, dynamo=False, dynamic_axes={"images": {0: "batch"}}, **names)
    return path
