"""The settings of a search as a numbered grid. Pure functions of the request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from visualprof.remote.protocol import Search, Spec

MAX_EXHAUSTIVE = 32  # a grid of this many settings is tried completely
TRIAL_SHARE = 5  # of a larger grid, one in this many settings is tried
NO_CONVERSION = "none"  # the value of the setting `conversion` that stands for the original model
BATCH = "batch"

Setting = Mapping[str, str]


@dataclass(frozen=True)
class Space:
    """The grid of settings.

    Attributes:
        axes: The values per setting's name. The order of names and values determines the numbers.
    """

    axes: Mapping[str, Sequence[str]]

    @property
    def size(self) -> int:
        """Return the number of settings."""
        return math.prod(len(values) for values in self.axes.values())

    def setting(self, number: int) -> dict[str, str]:
        """Return the setting of a number from 0. The last axis varies fastest."""
        setting = dict[str, str]()
        for name, values in reversed(list(self.axes.items())):
            number, position = divmod(number, len(values))
            setting[name] = values[position]
        return dict(reversed(setting.items()))

    def ordinal(self) -> list[bool]:
        """Return for each axis whether its values are numbers, so that neighbors are similar."""
        return [all(value.isdecimal() for value in values) for values in self.axes.values()]


def search_space(search: Search, sizes: Sequence[int]) -> Space:
    """Return the grid of a search.

    Args:
        search: The search of the request.
        sizes: Sizes of the sweep; several sizes form an axis.
    """
    batch = {BATCH: [str(size) for size in sizes]} if len(sizes) > 1 else {}
    return Space({**batch, **search.over})


def trial_count(search: Search, size: int) -> int:
    """Return how many settings of a grid are tried."""
    return min(size, search.trials or max(MAX_EXHAUSTIVE, -(-size // TRIAL_SHARE)))


def apply_setting(spec: Spec, setting: Setting, options: Sequence[str], settings: Mapping[str, str]) -> Spec:
    """Return a run configuration with a setting.

    Args:
        spec: The run configuration of the request.
        setting: The setting.
        options: Names of the backend's options.
        settings: Options that a converted model must run with.
    """
    backend_options = {name: value for name, value in setting.items() if name in options}
    precision = setting.get("precision", spec.precision)
    threads = int(setting.get("threads", spec.threads))
    return replace(spec, precision=precision, threads=threads, options={**spec.options, **settings, **backend_options})  # type: ignore[arg-type]
