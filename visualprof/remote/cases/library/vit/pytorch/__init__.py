"""Measure the speed of ViT-B/16 with random weights from a seed.

The accuracy is the share of pictures that are classified as by PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

__all__ = ["build_dataloader", "create_model", "evaluator", "export_model"]

SIDE, PATCH, WIDTH, LAYERS, HEADS = 224, 16, 768, 12, 12
TOKENS = (SIDE // PATCH) ** 2


class Layer(nn.Module):
    """A layer of attention and two fully connected layers, each with a norm before and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH, 1e-6), nn.LayerNorm(WIDTH, 1e-6)
        self.inputs, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, WIDTH) to the same shape."""
        parts = self.inputs(self.norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts.unbind(0))
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.body(self.norm2(x))


class Network(nn.Module):
    """A network from (batch, 3, 224, 224) to (batch, 1000) with 86,567,656 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.02)
        self.places = nn.Parameter(torch.randn(1, TOKENS + 1, WIDTH) * 0.02)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)), nn.LayerNorm(WIDTH, 1e-6))
        self.head = nn.Linear(WIDTH, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """Return the logits of the first token."""
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.places
        return self.head(self.layers(x)[:, 0])


def seeded(config: Any) -> nn.Module:
    """Return the network with weights from the seed, on the CPU."""
    torch.manual_seed(config.seed)
    return Network().eval()


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
