"""Create `data/`: the pictures of scikit-learn's digits for the test, and weights trained with the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pytorch import network
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

HERE = Path(__file__).parent / "data"


def train() -> None:
    """Train with Adam for 15 epochs on 1 thread, which takes 2 s."""
    images, digits = load_digits(return_X_y=True)
    test = np.arange(len(digits)) % 4 == 0
    rows = {"images": images[test].astype(np.uint8), "digits": digits[test].astype(np.uint8)}
    np.savez_compressed(HERE / "digits.npz", **rows)
    x = torch.from_numpy((images[~test] / 16).astype(np.float32).reshape(-1, 1, 8, 8))
    y = torch.from_numpy(digits[~test])
    torch.set_num_threads(1)
    torch.manual_seed(24)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(15):
        for rows_of_batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            cross_entropy(model(x[rows_of_batch]), y[rows_of_batch]).backward()
            optimizer.step()
    np.savez_compressed(HERE / "weights.npz", **{name: w.numpy() for name, w in model.state_dict().items()})


if __name__ == "__main__":
    train()
