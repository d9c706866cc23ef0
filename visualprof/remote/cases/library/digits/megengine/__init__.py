"""Run the same CNN with the same weights in MegEngine, exported as a dumped graph (.mge)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import megengine as mge
from megengine import functional, jit, module

__all__ = ["build_dataloader", "create_model", "evaluator", "export_model"]

Array = NDArray[Any]


class Network(module.Module):
    """A network from (batch, 1, 8, 8) to (batch, 10), which also accepts arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = module.Conv2d(1, 16, 3, padding=1), module.Conv2d(16, 32, 3, padding=1)
        self.pool, self.last = module.MaxPool2d(2), module.Linear(512, 10)

    def forward(self, image: Any) -> Any:
        """Return logits as a tensor, or as an array if the input is an array."""
        x = mge.Tensor(image) if isinstance(image, np.ndarray) else image
        x = self.pool(functional.relu(self.second(functional.relu(self.first(x)))))
        logits = self.last(functional.flatten(x, 1))
        return logits.numpy() if isinstance(image, np.ndarray) else logits


def build_dataloader(config: Any) -> list[tuple[Array, Array]]:
    """Return batches of pictures, (batch, 1, 8, 8), with values from 0 to 1, and their digits."""
    rows = np.load(Path(config.data_dir) / "digits.npz")
    images = rows["images"].astype(np.float32).reshape(-1, 1, 8, 8) / 16
    starts = range(0, len(images), config.batch_size)
    return [(images[i : i + config.batch_size], rows["digits"][i : i + config.batch_size]) for i in starts]


def create_model(config: Any) -> module.Module:
    """Return the model with the weights of the case, which PyTorch trained."""
    model = Network()
    weights = np.load(Path(config.data_dir) / "weights.npz")
    for layer, place in ((model.first, "0"), (model.second, "2"), (model.last, "6")):
        layer.weight[:] = weights[f"{place}.weight"]
        layer.bias[:] = weights[f"{place}.bias"].reshape(layer.bias.shape)
    model.eval()
    return model


def evaluator(outputs: Array, digits: Array) -> Array:
    """Whether the digit of each picture is correct."""
    return outputs.argmax(1) == digits


def export_model(model: Any, config: Any) -> str:
    """Dump a graph for the batch size."""
    traced = jit.trace(model.forward, symbolic=True, capture_as_const=True)
    traced(mge.Tensor(np.zeros((config.batch_size, 1, 8, 8), np.float32)))
    path = str(Path(config.perf_dir) / "digits.mge")
    traced.dump(path, arg_names=["image"])
    return path
