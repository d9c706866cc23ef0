"""Create pictures of discs and squares in noise from a seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SIDE = 64
CELL = 8
OBJECTS = 3  # at most


def pictures(count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return pictures, (count, 1, 64, 64), and their objects, (count, OBJECTS, 5).

    An object is a class, center x and y, width and height in pixels. A class of -1 means no object. Each object has a
    separate third of the picture's width; classes are in any order.
    """
    random = np.random.RandomState(seed)
    images = random.normal(0, 0.15, (count, 1, SIDE, SIDE)).astype(np.float32)
    objects = np.full((count, OBJECTS, 5), -1, np.float32)
    ys, xs = np.mgrid[:SIDE, :SIDE] + 0.5
    for image, rows in zip(images, objects, strict=True):
        for i in range(random.randint(1, OBJECTS + 1)):
            kind, half = random.randint(2), random.uniform(4, 9)
            x, y = random.uniform(half, 21 - half) + 21 * i, random.uniform(half, SIDE - half)
            away = (abs(xs - x), abs(ys - y))
            inside = np.hypot(*away) < half if kind == 0 else np.maximum(*away) < half
            image[0][inside] += random.uniform(0.5, 1.0)
            rows[i] = kind, x, y, 2 * half, 2 * half
    return images, objects
