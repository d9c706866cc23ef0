"""Create `data/weights.npz`: train the small BERT with rows that the case does not contain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pytorch import NUMBERS, Filler, rows
from torch.nn.functional import cross_entropy

WEIGHTS = Path(__file__).parent / "data" / "weights.npz"
STEPS, ROWS, FIRST_SEED = 2500, 128, 1000


def train() -> None:
    """Train with AdamW, a cosine schedule, and 128 new rows per step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Filler().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, STEPS)
    for step in range(STEPS):
        shown, hidden = rows(ROWS, FIRST_SEED + step)
        optimizer.zero_grad()
        loss = cross_entropy(model(shown).reshape(-1, NUMBERS), hidden.reshape(-1))
        loss.backward()
        optimizer.step()
        schedule.step()
    np.savez_compressed(WEIGHTS, **{name: w.half().numpy() for name, w in model.bert.state_dict().items()})


if __name__ == "__main__":
    train()
