"""Small training programs that the parts record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from visualprof.gpu_kit.accelerator import Accelerator

Step = Callable[[], object]
IMAGE_SIZE, SEQUENCE, WIDTH = 32, 64, 128


def cnn(accelerator: Accelerator, batch: int = 32, **optimizer_options: Any) -> tuple[Any, Step]:
    """Return a small convolutional network and its training step."""
    nn = accelerator.torch.nn
    blocks: list[Any] = []
    for width in (3, 32, 32):
        blocks += [nn.Conv2d(width, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)).to(accelerator.kind)
    images = accelerator.torch.rand(batch, 3, IMAGE_SIZE, IMAGE_SIZE, device=accelerator.kind)
    return model, training_step(accelerator, model, images, **optimizer_options)


def wide_cnn(accelerator: Accelerator, *, channels_last: bool) -> Step:
    """Return a training step in bf16 of a network of wide convolutions, channels first or last."""
    torch = accelerator.torch
    layers = [layer for width in (3, 128, 128, 128) for layer in (torch.nn.Conv2d(width, 128, 3), torch.nn.ReLU())]
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = torch.nn.Sequential(*layers).to(accelerator.kind, memory_format=layout)
    images = torch.rand(64, 3, 64, 64, device=accelerator.kind).to(memory_format=layout)
    return training_step(accelerator, model, images, autocast=True)


def linear_layers(
    accelerator: Accelerator, width: int, depth: int, rows: int, *, autocast: bool = False, **optimizer_options: Any
) -> Step:
    """Return a training step of linear layers."""
    torch = accelerator.torch
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(depth))).to(accelerator.kind)
    inputs = torch.rand(rows, width, device=accelerator.kind)
    return training_step(accelerator, model, inputs, autocast=autocast, **optimizer_options)


def transformer(accelerator: Accelerator, batch: int = 16, autocast: bool = False) -> tuple[Any, Step]:
    """Return a transformer encoder and its training step."""
    nn = accelerator.torch.nn
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Linear(WIDTH, 10)).to(accelerator.kind)
    tokens = accelerator.torch.rand(batch, SEQUENCE, WIDTH, device=accelerator.kind)
    return model, training_step(accelerator, model, tokens, autocast=autocast)


class SlowRows:
    """Rows that each take some time to load."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, _: int) -> int:
        time.sleep(self._delay_s)
        return 0


def slow_batches(accelerator: Accelerator, delay_s: float, workers: int = 0) -> Iterator[Any]:
    """Return batches of a DataLoader, each of which takes `delay_s` seconds of a worker, or of the training loop."""
    return iter(accelerator.torch.utils.data.DataLoader(SlowRows(delay_s), 1, num_workers=workers))


def training_step(
    accelerator: Accelerator, model: Any, inputs: Any, *, autocast: bool = False, **optimizer_options: Any
) -> Step:
    """Return a function that trains one step on the same inputs."""
    torch = accelerator.torch
    optimizer = torch.optim.Adam(model.parameters(), **optimizer_options)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(accelerator.kind, torch.bfloat16, enabled=autocast):
            loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()

    return step
