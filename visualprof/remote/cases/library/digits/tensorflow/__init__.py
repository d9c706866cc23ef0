"""Run the same CNN with the same weights in TensorFlow, exported for LiteRT (.tflite)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tensorflow as tf

__all__ = ["build_dataloader", "create_model", "evaluator", "export_model"]

Array = NDArray[Any]


class Network(tf.Module):
    """A network from (batch, 8, 8, 1) to (batch, 10)."""

    def __init__(self, weights: Any) -> None:
        super().__init__()
        # PyTorch has outputs, inputs, height, width; and channels first where rows are flattened.
        kernels = [weights[f"{place}.weight"].transpose(2, 3, 1, 0) for place in "02"]
        last = weights["6.weight"].reshape(10, 32, 4, 4).transpose(2, 3, 1, 0).reshape(512, 10)
        self.weights = [tf.Variable(one) for one in (*kernels, last)]
        self.biases = [tf.Variable(weights[f"{place}.bias"]) for place in "026"]
        self.infer = tf.function(self.forward, input_signature=[tf.TensorSpec((None, 8, 8, 1), tf.float32, "image")])

    def forward(self, image: Any) -> Any:
        """Return logits."""
        x = image
        for kernel, bias in zip(self.weights[:2], self.biases[:2], strict=True):
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME") + bias)
        x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), (-1, 512))
        return tf.matmul(x, self.weights[2]) + self.biases[2]

    def __call__(self, image: Array) -> Array:
        """Return the logits of arrays."""
        return self.infer(tf.constant(image)).numpy()


def build_dataloader(config: Any) -> list[tuple[Array, Array]]:
    """Return batches of pictures, (batch, 8, 8, 1), with values from 0 to 1, and their digits."""
    rows = np.load(Path(config.data_dir) / "digits.npz")
    images = rows["images"].astype(np.float32).reshape(-1, 8, 8, 1) / 16
    starts = range(0, len(images), config.batch_size)
    return [(images[i : i + config.batch_size], rows["digits"][i : i + config.batch_size]) for i in starts]


def create_model(config: Any) -> Network:
    """Return the model with the weights of the case, which PyTorch trained."""
    if config.threads:
        tf.config.threading.set_intra_op_parallelism_threads(config.threads)
    return Network(np.load(Path(config.data_dir) / "weights.npz"))


def evaluator(outputs: Array, digits: Array) -> Array:
    """Whether the digit of each picture is correct."""
    return outputs.argmax(1) == digits


def export_model(model: Any, config: Any) -> str:
    """Export a LiteRT model with a dynamic batch size."""
    converter = tf.lite.TFLiteConverter.from_concrete_functions([model.infer.get_concrete_function()], model)
    path = Path(config.perf_dir) / "digits.tflite"
    path.write_bytes(converter.convert())
    return str(path)
