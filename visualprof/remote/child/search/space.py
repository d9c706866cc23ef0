"""The settings of a search as a grid, each with a number: pure functions of what was asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from visualprof.remote.protocol import Search, Spec

MAX_EXHAUSTIVE = 32  # settings that are all tried
TRIAL_SHARE = 5  # one in so many, of more
NO_CONVERSION = "none"  # no conversion
BATCH = "batch"

Setting = Mapping[str, str]


@dataclass(frozen=True)
class Space:
    """axes: values by the setting's name, in the order of both."""

    axes: Mapping[str, Sequence[str]]

    @property
    def size(self) -> int:
        """How many settings there are."""
        return math.prod(len(values) for values in self.axes.values())

    def setting(self, at: int) -> dict[str, str]:
        """The setting of a number from 0; the last axis counts fastest."""
        chosen = dict[str, str]()
        for name, values in reversed(list(self.axes.items())):
            at, place = divmod(at, len(values))
            chosen[name] = values[place]
        return dict(reversed(chosen.items()))

    def ordinal(self) -> list[bool]:
        """Whether the values of each axis are numbers, so that neighbours resemble each other."""
        return [all(value.isdecimal() for value in values) for values in self.axes.values()]


def search_space(search: Search, sizes: Sequence[int]) -> Space:
    """What is searched. sizes: of the sweep; several of them are an axis, too."""
    batch = {BATCH: [str(size) for size in sizes]} if len(sizes) > 1 else {}
    return Space({**batch, **search.over})


def trial_count(search: Search, size: int) -> int:
    """How many settings of so many are tried."""
    return min(size, search.trials or max(MAX_EXHAUSTIVE, -(-size // TRIAL_SHARE)))


def apply_setting(spec: Spec, setting: Setting, options: Sequence[str], settings: Mapping[str, str]) -> Spec:
    """A spec with a setting.

    Args: options: names of the backend's; settings: those that a converted model is to be run with.
    """
    own = {name: value for name, value in setting.items() if name in options}
    precision = setting.get("precision", spec.precision)
    threads = int(setting.get("threads", spec.threads))
    return replace(spec, precision=precision, threads=threads, options={**spec.options, **settings, **own})  # type: ignore[arg-type]
