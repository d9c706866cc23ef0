"""Records the pair that the demo compares: `python -m tests.sample_loader FOLDER`, on a quiet machine.

A small CNN on pictures that its dataset prepares slowly, read by no worker of its DataLoader and by two.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from visualprof.capture import profile

BATCH, STEPS, WARMUP = 8, 12, 30
WORKERS = {"no-workers": 0, "two-workers": 2}


class Pictures(Dataset[Any]):
    def __len__(self) -> int:
        return BATCH * (WARMUP + STEPS)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        picture = np.random.default_rng(index).random((3, 96, 96), dtype=np.float32)
        for _ in range(18):
            picture = (picture + np.roll(picture, 1, 1) + np.roll(picture, 1, 2)) / 3
        return picture[:, 16:80, 16:80].copy(), index % 10


def block(channels: int, wider: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU()]


def record(folder: Path, workers: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    net = nn.Sequential(*block(3, 16), nn.MaxPool2d(2), *block(16, 32), *head)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with profile(folder, steps=STEPS, warmup=WARMUP, monitor=False) as recording:
        for pictures, labels in DataLoader(Pictures(), BATCH, num_workers=workers):
            optimizer.zero_grad()
            cross_entropy(net(pictures), labels).backward()
            optimizer.step()
            recording.step()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        record(Path(sys.argv[1]) / sys.argv[2], WORKERS[sys.argv[2]])
    else:  # each in a process of its own
        for name in WORKERS:
            subprocess.run([sys.executable, "-m", "tests.sample_loader", sys.argv[1], name], check=True)
