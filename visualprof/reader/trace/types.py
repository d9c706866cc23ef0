"""Names of column types."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Ids = NDArray[np.int32]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.integer[Any]]  # row numbers or ids of any width, as numpy's searches return them
Values = NDArray[Any]  # an argument: integers or floats, as in the file

__all__ = ["Bytes", "Floats", "Ids", "Ints", "Mask", "Rows", "Values"]
