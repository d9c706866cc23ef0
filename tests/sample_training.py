"""Records what the demo ships of a training with torch, on a CPU: `python -m tests.sample_training`.

A small GPT that learns to continue a sum of waves, with its graph; three steps after a warm-up.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, TensorDataset

from tests.conftest import SAMPLES
from visualprof.capture import add_graph

WORDS, LENGTH, WIDTH, HEADS, LAYERS, BATCH, STEPS = 256, 96, 192, 6, 4, 16, 3


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def loader() -> DataLoader[tuple[Tensor, ...]]:
    """Waves of random phases, as words."""
    time = torch.arange(LENGTH + 1)
    waves = torch.sin(time / 5 + 6 * torch.rand(256, 1)) + torch.sin(time / 13 + 6 * torch.rand(256, 1))
    return DataLoader(TensorDataset(((waves + 2) * (WORDS - 1) / 4).long()), batch_size=BATCH, shuffle=True)


def main(folder: Path) -> None:
    """Writes `<folder>/gpt.pt.trace.json.gz` and `gpt.graph.json`."""
    torch.manual_seed(0)
    torch.set_num_threads(2)
    model = Gpt()
    add_graph(model, torch.zeros(BATCH, LENGTH, dtype=torch.long), folder, "gpt")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    kept = {"record_shapes": True, "profile_memory": True, "with_stack": True, "with_modules": True}
    turns = schedule(wait=2, warmup=1, active=STEPS)
    with profile(activities=[ProfilerActivity.CPU], schedule=turns, **kept) as profiler:  # type: ignore[arg-type]
        for (ids,), _ in zip(loader(), range(3 + STEPS), strict=False):
            with record_function("forward"):
                loss = functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            with record_function("backward"):
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / "trace.json"
        profiler.export_chrome_trace(str(plain))
        text = re.sub(r'"traceName": "[^"]*"', '"traceName": "gpt.pt.trace.json"', plain.read_text())
    json.loads(text)
    (folder / "gpt.pt.trace.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES / "pytorch-cpu")
