"""Models of the MegEngine tests and fixtures: a LeNet with residual blocks, and modules used twice."""

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


class Scaled(module.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = module.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.fc(x)) * 2


class Twice(module.Module):
    """One block is called with a layer between the calls, the other twice at once."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = module.Conv2d(3, 8, 3)
        self.block = Residual(8)
        self.mid = module.Conv2d(8, 8, 1)
        self.sub = Scaled(8)
        self.fc = module.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(self.mid(self.block(self.stem(x))))
        return self.fc(self.sub(self.sub(functional.mean(x, (2, 3)))))
