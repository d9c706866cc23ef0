"""Models of the torch tests and fixtures: a CNN with shared blocks, and a transformer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.conv(x)) + x)


class Cnn(nn.Module):
    """The first block runs twice; the scale is a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.layers = nn.Sequential(Block(8), Block(8))
        self.fc = nn.Linear(8, 10)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[0](self.layers(self.stem(x)))
        return self.fc(torch.mean(x, (2, 3)) * self.scale)


@dataclass
class Answer:
    logits: Tensor
    hidden: tuple[Tensor, ...]


class Transformer(nn.Module):
    """Nested inputs, a dataclass as output, embedding and head with one weight, a buffer."""

    def __init__(self, words: int = 50, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 2, 32, batch_first=True), 2)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("place", torch.zeros(1, 6, width))

    def forward(self, batch: dict[str, Tensor], temperature: float = 1.0) -> Answer:
        hidden = self.embedding(batch["ids"]) + self.place
        out = self.encoder(hidden)
        return Answer(functional.softmax(self.head(out) / temperature, -1), (hidden, out))
