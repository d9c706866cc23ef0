"""Which setting is tried next: all of them in a shuffled order, or what Optuna suggests, in a process that has it."""

from __future__ import annotations

import importlib
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from visualprof.remote.child.advice.process import Process

Json = dict[str, Any]

STARTUP = 5  # settings by chance before anything is learned of them
AGAIN = 20  # suggestions that were tried already before chance decides


class Sampler(Protocol):
    """Chooses settings by their numbers. method: its name with its version."""

    method: str

    def next(self, tried: Sequence[Json]) -> int:
        """The next one.

        Args: tried: {at, cost, excess} of all before it; cost None: it failed. excess: of each constraint, 0 or less
            where it is kept.
        """
        ...


class Shuffled:
    """Each setting once."""

    method = "exhaustive"

    def __init__(self, size: int, seed: int) -> None:
        self._order = list(range(size))
        random.Random(seed).shuffle(self._order)

    def next(self, tried: Sequence[Json]) -> int:
        """The first in its order that was not tried."""
        done = {one["at"] for one in tried}
        return next(at for at in self._order if at not in done)


class Suggested:
    """Optuna in a process of its own, that of an interpreter that has it."""

    def __init__(
        self, process: Process, axes: Sequence[int], ordinal: Sequence[bool], seed: int, limit_s: float
    ) -> None:
        """Asks for its version. Raises: TaskFailure: it does not answer."""
        self._process, self._limit_s = process, limit_s
        self._space = {"axes": list(axes), "ordinal": list(ordinal), "seed": seed}
        self.method = f"optuna {process.ask('version', limit_s)}"

    def next(self, tried: Sequence[Json]) -> int:
        """What it suggests."""
        return int(self._process.ask("suggest", self._limit_s, tried=list(tried), **self._space))


def suggest(axes: list[int], ordinal: list[bool], seed: int, tried: list[Json]) -> int:
    """The number of the setting to try next: what Optuna's TPE suggests, every other time one beside the best so far.

    Args: axes: how many values each has; ordinal: whether they are in an order.
    """
    if len(tried) > STARTUP and len(tried) % 2 and (near := _beside_best(axes, ordinal, tried)):
        return random.Random(seed + len(tried)).choice(near)
    optuna: Any = importlib.import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    sampler = optuna.samplers.TPESampler(
        seed=seed + len(tried),
        n_startup_trials=STARTUP,
        multivariate=True,
        constraints_func=_excess,
    )
    study = optuna.create_study(sampler=sampler)
    worst = max((one["cost"] for one in tried if one["cost"] is not None), default=1.0)
    known = {one["at"]: one for one in tried}
    for one in tried:
        study.enqueue_trial(_named(_places(one["at"], axes)))
        _tell(study, _ask(study, axes, ordinal)[0], one, worst)
    for _ in range(AGAIN):
        trial, at = _ask(study, axes, ordinal)
        if at not in known:
            return at
        _tell(study, trial, known[at], worst)
    size = 1
    for count in axes:
        size *= count
    left = [at for at in range(size) if at not in known]
    return random.Random(seed + len(tried)).choice(left)


def _beside_best(axes: Sequence[int], ordinal: Sequence[bool], tried: Sequence[Json]) -> list[int]:
    """Settings that were not tried and differ in one place from the best so far; in an order by one step."""
    feasible = [one for one in tried if one["cost"] is not None and max(one["excess"], default=0.0) <= 0]
    if not feasible:
        return []
    best, done = _places(min(feasible, key=lambda one: one["cost"])["at"], axes), {one["at"] for one in tried}
    near: list[int] = []
    for i, (count, ordered) in enumerate(zip(axes, ordinal, strict=True)):
        steps = [best[i] - 1, best[i] + 1] if ordered else list(range(count))
        near += [_number([*best[:i], place, *best[i + 1 :]], axes) for place in steps if 0 <= place < count]
    return [at for at in near if at not in done]


def _number(places: Sequence[int], axes: Sequence[int]) -> int:
    at = 0
    for place, count in zip(places, axes, strict=True):
        at = at * count + place
    return at


def _excess(trial: Any) -> list[float]:
    return trial.user_attrs["excess"]


def _ask(study: Any, axes: Sequence[int], ordinal: Sequence[bool]) -> tuple[Any, int]:
    trial, at = study.ask(), 0
    for i, (count, ordered) in enumerate(zip(axes, ordinal, strict=True)):
        name = f"axis{i}"
        place = (
            trial.suggest_int(name, 0, count - 1) if ordered else trial.suggest_categorical(name, list(range(count)))
        )
        at = at * count + int(place)
    return trial, at


def _tell(study: Any, trial: Any, one: Mapping[str, Any], worst: float) -> None:
    failed = one["cost"] is None
    trial.set_user_attr("excess", [1.0] * max(1, len(one["excess"])) if failed else list(one["excess"]))
    study.tell(trial, worst if failed else one["cost"])


def _places(at: int, axes: Sequence[int]) -> list[int]:
    places: list[int] = []
    for count in reversed(axes):
        at, place = divmod(at, count)
        places.insert(0, place)
    return places


def _named(places: Sequence[int]) -> dict[str, int]:
    return {f"axis{i}": place for i, place in enumerate(places)}


def version() -> str:
    """That of Optuna in this interpreter."""
    return str(importlib.import_module("optuna").__version__)


COMMANDS: dict[str, Callable[..., object]] = {"version": version, "suggest": suggest}
