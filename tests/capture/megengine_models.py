"""The model of the MegEngine tests and fixtures: LeNet with a residual block and functions between layers."""

from __future__ import annotations

import megengine.functional as functional
import megengine.module as module
from megengine import Tensor


class Residual(module.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = module.Conv2d(width, width, 3, padding=1)
        self.norm = module.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.norm(self.conv(x)) + x)


class LeNet(module.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = module.Conv2d(1, 6, 5)
        self.pool = module.MaxPool2d(2, 2)
        self.blocks = [Residual(6), Residual(6)]
        self.fc = module.Linear(6 * 14 * 14, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(functional.relu(self.conv1(x)))
        for block in self.blocks:
            x = block(x)
        return {"probability": functional.softmax(self.fc(functional.flatten(x, 1)))}
