"""Import packages of the extra `notebook`, with an error that says what to install."""

from __future__ import annotations

import importlib
from typing import Any

from visualprof.errors import MissingData

NOTEBOOK_EXTRA = "pip install 'visualprof[notebook]'"


def require(name: str, install: str = NOTEBOOK_EXTRA) -> Any:
    """Return a package.

    Raises:
        MissingData: The package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingData(f"this needs {name}, which is not installed", install) from error
