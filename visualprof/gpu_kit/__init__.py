"""Proof that visualprof works with the accelerator of a machine: independent parts, each compared with an oracle.

A part measures something with visualprof, and again without visualprof: these values are the oracle. `read` computes
visualprof's values from the files alone, so that a recorded part can be checked again on a machine without a GPU.
A new part is one new file in `visualprof/gpu_kit/parts`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from visualprof.errors import VisualprofError

if TYPE_CHECKING:
    from visualprof.gpu_kit.accelerator import Accelerator

DEFAULT_TOLERANCE = 0.001  # relative


class Skip(VisualprofError):
    """The part cannot run here; the text says why."""


class Oracle(msgspec.Struct, kw_only=True):
    """Values that a part measured without visualprof.

    Attributes:
        values: The values by name; a name ends with the unit: `step time, ms`.
        figures: Values for the report that have no oracle, such as overheads and speeds.
        files: Recorded files, relative to the folder of the part.
    """

    values: dict[str, float]
    figures: dict[str, float] = {}
    files: list[str] = []


class Part(Protocol):
    """A part: a module in `visualprof/gpu_kit/parts`.

    Attributes:
        TITLE: Subject of the proof, as a short phrase.
        BUDGET_S: Time that is reserved for the part. All budgets together fit the time of a run.
        PRIORITY: Parts with a smaller number run first.
        NEEDS: Required Python packages.
        TOLERANCES: Relative tolerance by prefix of a value's name; `DEFAULT_TOLERANCE` for other names.
    """

    TITLE: str
    BUDGET_S: float
    PRIORITY: int
    NEEDS: tuple[str, ...]
    TOLERANCES: Mapping[str, float]

    def record(self, accelerator: Accelerator, folder: Path) -> Oracle:
        """Run on the accelerator: write files into the folder and return the oracle's values.

        Raises:
            Skip: The part cannot run here.
        """
        ...

    def read(self, folder: Path, oracle: Oracle) -> dict[str, float]:
        """Return visualprof's values from the files, with the same names as in the oracle."""
        ...


def part_names() -> list[str]:
    """Return the names of all parts in the order in which they run."""
    from visualprof.gpu_kit import parts

    names = (module.name for module in pkgutil.iter_modules(parts.__path__))
    return sorted(names, key=lambda name: (part(name).PRIORITY, name))


def part(name: str) -> Part:
    """Return a part by its name."""
    return cast("Part", importlib.import_module(f"visualprof.gpu_kit.parts.{name}"))
