"""Create `data/weights.npz`: train the small Llama with rows that the case does not contain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pytorch.model import VOCABULARY, Llama, no_past
from torch import Tensor
from torch.nn.functional import cross_entropy

WEIGHTS = Path(__file__).parent / "data" / "weights.npz"
STEPS, ROWS, LENGTH, FIRST_SEED = 1000, 64, 96, 1000


def rows(seed: int) -> Tensor:
    """Return (ROWS, LENGTH) numbers that repeat a motif of 4 to 8 numbers."""
    random = np.random.RandomState(seed)
    period, motif = random.choice(np.arange(4, 9), ROWS), random.randint(2, VOCABULARY, (ROWS, 8))
    return torch.from_numpy(motif[np.arange(ROWS)[:, None], np.arange(LENGTH) % period[:, None]]).long()


def train() -> None:
    """Train with AdamW, a cosine schedule, and 64 new rows per step.

    Numbers before the first repetition do not count.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, STEPS)
    for step in range(STEPS):
        ids = rows(FIRST_SEED + step)
        logits, _ = model.every(ids[:, :-1], no_past(ROWS))
        loss = cross_entropy(logits[:, 8:].reshape(-1, VOCABULARY), ids[:, 9:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    np.savez_compressed(WEIGHTS, **{name: w.half().numpy() for name, w in model.state_dict().items()})


if __name__ == "__main__":
    train()
