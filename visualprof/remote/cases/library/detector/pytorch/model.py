"""Define a one-stage detector of 64 x 64 pictures: a convolutional trunk with one prediction in each of 8 x 8 cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

CLASSES = 2  # a disc, a square
OUTPUTS = 1 + CLASSES + 4  # whether an object's middle lies in the cell, its class, its middle and size in cells


def block(inputs: int, outputs: int) -> nn.Sequential:
    """Return a block that halves height and width."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, 2, 1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 1, 1), nn.ReLU()
    )


def network() -> nn.Sequential:
    """Return a network from (batch, 1, 64, 64) to (batch, OUTPUTS, 8, 8)."""
    return nn.Sequential(block(1, 12), block(12, 24), block(24, 32), nn.Conv2d(32, OUTPUTS, 1))


def create_model(config: Any) -> nn.Module:
    """Return the model with the weights of the case, which are stored in half precision."""
    if config.threads:
        torch.set_num_threads(config.threads)
    model = network()
    weights = np.load(Path(config.data_dir) / "weights.npz")
    model.load_state_dict({name: torch.from_numpy(weights[name]).float() for name in weights})
    return model.eval().cuda()
