"""Names of the column types."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Ids = NDArray[np.int32]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

__all__ = ["Bytes", "Floats", "Ids", "Ints"]
