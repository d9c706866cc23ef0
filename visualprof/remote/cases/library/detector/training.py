"""Create `data/weights.npz`: train the detector with pictures that the case does not contain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pytorch.model import CLASSES, network
from pytorch.pictures import CELL, SIDE, pictures
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

WEIGHTS = Path(__file__).parent / "data" / "weights.npz"
PICTURES, SEED, EPOCHS, BATCH = 4000, 1000, 30, 64


def cells_of(objects: Tensor) -> Tensor:
    """Convert objects, (n, OBJECTS, 5), to cells, (n, 8, 8, 6).

    The cell of an object's center contains 1, class, center and size in cells.
    """
    side = SIDE // CELL
    cells = torch.zeros(len(objects), side, side, 6)
    picture, place = torch.nonzero(objects[..., 0] >= 0, as_tuple=True)
    kind, x, y, width, height = objects[picture, place].unbind(1)
    column, row = (x / CELL).long(), (y / CELL).long()
    values = (torch.ones_like(x), kind, x / CELL - column, y / CELL - row, width / CELL, height / CELL)
    cells[picture, row, column] = torch.stack(values, 1)
    return cells


def train() -> None:
    """Train with Adam for 30 epochs."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, wanted = map(torch.from_numpy, pictures(PICTURES, SEED))
    wanted = cells_of(wanted)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, EPOCHS * -(-PICTURES // BATCH))
    for _ in range(EPOCHS):
        for rows in torch.randperm(PICTURES).split(BATCH):
            told, right = model(images[rows]).permute(0, 2, 3, 1), wanted[rows]
            there = right[..., 0] > 0
            loss = binary_cross_entropy_with_logits(told[..., 0], right[..., 0], pos_weight=torch.tensor(4.0))
            loss = loss + cross_entropy(told[there][:, 1 : 1 + CLASSES], right[there][:, 1].long())
            loss = loss + 2 * mse_loss(told[there][:, 1 + CLASSES :], right[there][:, 2:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    np.savez_compressed(WEIGHTS, **{name: w.half().numpy() for name, w in model.state_dict().items()})


if __name__ == "__main__":
    train()
