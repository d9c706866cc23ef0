"""Fill in masked numbers with a small BERT.

Rows of 32 numbers repeat a motif of 4 or 5 numbers, and 4 of them are masked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForMaskedLM

__all__ = ["build_dataloader", "create_model", "evaluator", "export_model"]

NUMBERS, MASK, LENGTH, MASKED = 64, 1, 32, 4


class Filler(nn.Module):
    """A model that returns only the logits of BERT, for inputs without padding."""

    def __init__(self) -> None:
        super().__init__()
        shape = BertConfig(
            vocab_size=NUMBERS,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=LENGTH,
        )
        self.bert = BertForMaskedLM(shape)

    def forward(self, numbers: Tensor) -> Tensor:
        """Map (batch, 32) to (batch, 32, 64)."""
        return self.bert(input_ids=numbers, attention_mask=torch.ones_like(numbers)).logits


def rows(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return rows with masks, and the masked numbers; -100 elsewhere."""
    random = np.random.RandomState(seed)
    period, motif = random.choice([4, 5], count), random.randint(2, NUMBERS, (count, 5))
    numbers = motif[np.arange(count)[:, None], np.arange(LENGTH) % period[:, None]]
    masked = np.argsort(random.random_sample((count, LENGTH)), 1)[:, :MASKED]
    shown, hidden = numbers.copy(), np.full_like(numbers, -100)
    np.put_along_axis(shown, masked, MASK, 1)
    np.put_along_axis(hidden, masked, np.take_along_axis(numbers, masked, 1), 1)
    return torch.from_numpy(shown).long(), torch.from_numpy(hidden).long()


def build_dataloader(config: Any) -> DataLoader[Any]:
    """Return batches of rows that the training has not seen."""
    return DataLoader(TensorDataset(*rows(config.samples, config.seed)), config.batch_size)


def create_model(config: Any) -> nn.Module:
    """Return the model with the weights of the case, which are stored in half precision."""
    if config.threads:
        torch.set_num_threads(config.threads)
    model = Filler()
    weights = np.load(Path(config.data_dir) / "weights.npz")
    model.bert.load_state_dict({name: torch.from_numpy(weights[name]).float() for name in weights})
    return model.eval().cuda()


def evaluator(outputs: Tensor, hidden: Tensor) -> Tensor:
    """Whether each masked number is correct."""
    best = outputs.float().cpu().reshape(*hidden.shape, NUMBERS).argmax(-1)
    return (best == hidden)[hidden >= 0]


def export_model(model: Any, config: Any) -> str:
    """Export to ONNX with a dynamic batch size."""
    path = str(Path(config.perf_dir) / "bert.onnx")
    example = torch.full((config.batch_size, LENGTH), 2).cuda()
    names = {"input_names": ["numbers"], "output_names": ["logits"]}
    torch.onnx.export(model, (example,), path, dynamo=False, dynamic_axes={"numbers": {0: "batch"}}, **names)
    return path
