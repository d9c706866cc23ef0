"""Interface of a framework for graph recording: its modules and tensors, and the value that each tensor holds."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(eq=False)
class Value:
    """Content of a tensor at one time. An in-place write creates another value."""

    name: str
    dtype: str
    shape: list[int]


@dataclass(frozen=True)
class Framework:
    """Functions that describe the modules and tensors of a framework.

    Attributes:
        describe: Return dtype and shape of a tensor.
        writes: Return a count that grows when the tensor is written in place, or a constant.
        documentation: Return the address of a module class's documentation, "" for the user's own classes.
        builtin: Whether a module class comes with the framework.
        kind: Return the displayed type of a module.
        forward: Return the function that names its arguments.
        packed: Return weights that are not parameters, by name.
        inside: Context that is entered while the module runs.
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
    """Mapping from tensors to their current values."""

    def get(self, tensor: Any) -> Value | None:
        """Return the value that the tensor holds, or None if nothing recorded created it."""

    def set(self, tensor: Any, value: Value, outside: bool) -> None:
        """Record that the tensor holds the value.

        Args:
            outside: The tensor existed before the pass and stays alive.
        """


class Identities:
    """Mapping by the identity of tensors, with weak references.

    Activations are freed as usual, and a reused address counts as another tensor.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Callable[[], Any], Value]] = {}

    def get(self, tensor: Any) -> Value | None:
        """Return the value of this very object."""
        entry = self._known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def set(self, tensor: Any, value: Value, outside: bool) -> None:
        """Record the value; a tensor without weak references is kept alive."""
        del outside
        try:
            reference: Callable[[], Any] = weakref.ref(tensor)
        except TypeError:
            reference = lambda: tensor  # noqa: E731
        self._known[id(tensor)] = (reference, value)
