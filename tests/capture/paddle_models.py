"""The model of the Paddle tests and fixtures: a CNN with residual blocks and functions between layers."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional


class Residual(nn.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2D(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2D(width)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return functional.relu(self.norm(self.conv(x)) + x)


class Cnn(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2D(3, 4, 3)
        self.blocks = nn.LayerList([Residual(4), Residual(4)])
        self.fc = nn.Linear(4, 5)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = paddle.reshape(functional.adaptive_avg_pool2d(x, 1), [-1, 4])
        return functional.softmax(self.fc(x))[:, :3]
