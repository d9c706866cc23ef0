"""What a framework says about its modules and tensors, and which value each tensor holds."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(eq=False)
class Value:
    """A tensor at one time: written in place, it becomes another value."""

    name: str
    dtype: str
    shape: list[int]


@dataclass(frozen=True)
class Framework:
    """What a framework says about its modules and tensors.

    describe: dtype and shape. writes: a count that grows when the tensor is written in place, or a constant.
    documentation: address for a class of modules, "" for the user's own. builtin: comes with the framework.
    kind: type of a module as it is shown. forward: what names its arguments. packed: weights that it holds otherwise
    than as parameters, by name. inside: entered while the module runs.
    """

    name: str
    version: str
    is_tensor: Callable[[Any], bool]
    describe: Callable[[Any], tuple[str, list[int]]]
    writes: Callable[[Any], int]
    documentation: Callable[[type], str]
    builtin: Callable[[type], bool]
    profile_prefix: str = ""
    memory: Memory | None = None
    kind: Callable[[Any], str] = lambda module: type(module).__name__
    forward: Callable[[Any], Any] = lambda model: model.forward
    packed: Callable[[Any], dict[str, Any]] = lambda _: {}
    inside: Callable[[Any], AbstractContextManager[Any]] = lambda _: nullcontext()


class Memory(Protocol):
    """What each tensor is now."""

    def get(self, tensor: Any) -> Value | None:
        """The value that the tensor holds; None when nothing recorded made it."""

    def set(self, tensor: Any, value: Value, outside: bool) -> None:
        """Note that the tensor holds the value; outside: it was there before the pass and stays."""


class Identities:
    """By the identity of tensors, held weakly: activations are freed as always, an address used again is told apart."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Callable[[], Any], Value]] = {}

    def get(self, tensor: Any) -> Value | None:
        """The value of this very object."""
        entry = self._known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def set(self, tensor: Any, value: Value, outside: bool) -> None:
        """Note it; a tensor that takes no weak reference is kept."""
        del outside
        try:
            reference: Callable[[], Any] = weakref.ref(tensor)
        except TypeError:
            reference = lambda: tensor  # noqa: E731
        self._known[id(tensor)] = (reference, value)
