"""Measure the speed of ResNet-50 with random weights from a seed.

The accuracy is the share of pictures that are classified as by PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

__all__ = ["build_dataloader", "create_model", "evaluator", "export_model"]

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride


def convolved(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution followed by normalization."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """A block of 1 x 1, 3 x 3 and 1 x 1 convolutions with a shortcut. The 3 x 3 convolution has the stride."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        parts = convolved(inputs, width, 1), convolved(width, width, 3, stride), convolved(width, 4 * width, 1)
        self.body = nn.Sequential(parts[0], nn.ReLU(), parts[1], nn.ReLU(), parts[2])
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else convolved(inputs, 4 * width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of body and shortcut, rectified."""
        return torch.relu(self.body(x) + self.shortcut(x))


def network() -> nn.Sequential:
    """Return a network from (batch, 3, 224, 224) to (batch, 1000) with 25,557,032 weights."""
    blocks: list[nn.Module] = []
    inputs = 64
    for width, count, stride in STAGES:
        blocks += [Bottleneck(4 * width if i else inputs, width, 1 if i else stride) for i in range(count)]
        inputs = 4 * width
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))
    return nn.Sequential(convolved(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks, *head)


def seeded(config: Any) -> nn.Module:
    """Return the network with weights from the seed, on the CPU."""
    torch.manual_seed(config.seed)
    return network().eval()


def create_model(config: Any) -> nn.Module:
    """Return the network on the device."""
    return seeded(config).cuda()


def build_dataloader(config: Any) -> DataLoader[Any]:
    """Return batches of pictures with large blots, and the classes that PyTorch predicts on the CPU."""
    random = torch.Generator().manual_seed(config.seed)
    images = nn.functional.interpolate(torch.randn(config.samples, 3, 4, 4, generator=random), (224, 224))
    if config.threads:
        torch.set_num_threads(config.threads)
    model = seeded(config)
    with torch.no_grad():
        classes = torch.cat([model(batch).argmax(1) for batch in images.split(config.batch_size)])
    return DataLoader(TensorDataset(images, classes), config.batch_size, num_workers=config.num_workers)


def evaluator(outputs: Tensor, classes: Tensor) -> Tensor:
    """Whether the class of each picture is the class that PyTorch predicts."""
    return outputs.float().cpu().reshape(len(classes), -1).argmax(1) == classes


def export_model(model: Any, config: Any) -> str:
    """Export to ONNX with a dynamic batch size."""
    path = str(Path(config.perf_dir) / f"{config.case}.onnx")
    example = torch.zeros(config.batch_size, 3, 224, 224).cuda()
    names = {"input_names": ["image"], "output_names": ["logits"]}
    torch.onnx.export(model, (example,), path, dynamo=False, dynamic_axes={"image": {0: "batch"}}, **names)
    return path
