"""Define a small Llama: RMS norm, rotary positions, grouped queries, gated feed-forward, cache as input and output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

VOCABULARY, WIDTH, LAYERS, HEADS, GROUPS, HEAD, HIDDEN = 64, 64, 2, 4, 2, 16, 128


class Norm(nn.Module):
    """A root mean square norm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotated(x: Tensor, places: Tensor) -> Tensor:
    """Rotate pairs of (batch, heads, tokens, HEAD) by angles that grow with the positions of the tokens."""
    rates = 10000.0 ** (-torch.arange(0, HEAD, 2, device=x.device) / HEAD)
    angles = places[:, None].to(x.dtype) * rates
    cosine, sine = torch.cos(angles), torch.sin(angles)
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return torch.cat((a * cosine - b * sine, a * sine + b * cosine), -1)


class Layer(nn.Module):
    """A layer of attention and feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = Norm(), Norm()
        self.query = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.key_value = nn.Linear(WIDTH, 2 * GROUPS * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.gate_up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor, past: Tensor, places: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the new cache. Both caches are keys and values, (batch, 2, GROUPS, tokens, HEAD)."""
        batch, tokens, _ = x.shape
        y = self.norm(x)
        query = rotated(self.query(y).view(batch, tokens, HEADS, HEAD).transpose(1, 2), places)
        key_value = self.key_value(y).view(batch, tokens, 2, GROUPS, HEAD).permute(0, 2, 3, 1, 4)
        new = torch.stack((rotated(key_value[:, 0], places), key_value[:, 1]), 1)
        cache = torch.cat((past, new), 3)
        key, value = (cache[:, i].repeat_interleave(HEADS // GROUPS, 1) for i in (0, 1))
        mixed = scaled_dot_product_attention(query, key, value, mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, HEADS * HEAD))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(silu(gate) * up), cache


class Llama(nn.Module):
    """A model from tokens and the cache of earlier tokens to the logits of the last token and the new cache."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def every(self, ids: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of every token, and the cache, (LAYERS, batch, 2, GROUPS, tokens, HEAD)."""
        before = past.shape[4]
        places = torch.arange(ids.shape[1], device=ids.device) + before
        mask = torch.arange(ids.shape[1] + before, device=ids.device)[None, :] <= places[:, None]
        x, caches = self.embedding(ids), []
        for layer, own in zip(self.layers, past, strict=True):
            x, cache = layer(x, own, places, mask)
            caches.append(cache)
        return self.head(self.norm(x)), torch.stack(caches)

    def forward(self, ids: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Map (batch, tokens) to (batch, VOCABULARY), and return the cache."""
        logits, cache = self.every(ids, past)
        return logits[:, -1], cache


def no_past(batch: int) -> Tensor:
    """Return the cache before the first token."""
    return torch.zeros(LAYERS, batch, 2, GROUPS, 0, HEAD)


def create_model(config: Any) -> nn.Module:
    """Return the model with the weights of the case, which are stored in half precision."""
    if config.threads:
        torch.set_num_threads(config.threads)
    model = Llama()
    weights = np.load(Path(config.data_dir) / "weights.npz")
    model.load_state_dict({name: torch.from_numpy(weights[name]).float() for name in weights})
    return model.eval().cuda()
