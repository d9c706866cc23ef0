"""Record one forward pass as nodes: which module or operator created which tensor, by the identity of tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from visualprof.capture.arguments import children, is_plain, named, settings, text
from visualprof.capture.framework import Framework, Identities, Value

VERSION = 1
MAX_DEPTH = 8  # maximum nesting of inputs and outputs
UNTOLD = ("training", "name")  # attributes of a module that say nothing about the layer


@dataclass(eq=False)
class Step:
    """Node of the future graph.

    Attributes:
        placed: Whether its scope is known.
        optional: Whether it is dropped if nothing reads its outputs.
    """

    name: str
    type: str
    scope: tuple[str, ...]
    inputs: list[Value]
    outputs: list[Value]
    kind: str = "operator"
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    documentation: str = ""
    placed: bool = True
    optional: bool = False


@dataclass(eq=False)
class _Call:
    """Running module.

    Attributes:
        parts: Its path in the model, repeated calls numbered.
    """

    module: Any
    path: str | None
    parts: tuple[str, ...]
    inputs: list[Value]
    profile_name: str
    steps: list[Step] = field(default_factory=list[Step])
    scopes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    calls_modules: bool = False


class Recorder:
    """Recorder of one model's forward pass, fed by the files of the frameworks.

    Args:
        framework: Functions of the framework.
        modules: (dotted name, object), each object once.
        parameters: Like `modules`.
        buffers: Like `modules`.
    """

    def __init__(
        self,
        framework: Framework,
        modules: Iterable[tuple[str, Any]],
        parameters: Iterable[tuple[str, Any]],
        buffers: Iterable[tuple[str, Any]],
    ) -> None:
        self._framework = framework
        self._modules = list(modules)
        self._paths = {id(m): name for name, m in reversed(self._modules)}
        self._memory = framework.memory or Identities()
        self._thread = threading.get_ident()
        self._calls: list[_Call] = []
        self._places: dict[tuple[str, ...], int] = {}
        self._numbers: dict[type, dict[int, int]] = {}
        self._root: _Call | None = None
        self._ends: tuple[list[Step], list[Step]] = ([], [])
        self._inside_operator = False
        self._weights = {name: self._make(tensor, name, outside=True) for name, tensor in parameters}
        for path, module in self._modules:
            for name, tensor in framework.packed(module).items():
                dotted = f"{path}.{name}" if path else name
                self._weights[dotted] = Value(dotted, *framework.describe(tensor))
        self._buffers = {name: self._make(tensor, name, outside=True) for name, tensor in buffers}
        # By value: the module that holds it, or the values it was computed from.
        self._owners = {v: name.rpartition(".")[0] for name, v in (*self._weights.items(), *self._buffers.items())}

    def run(self, model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Run the model in evaluation mode. The framework's file opens `calls_of` and reports operators around it."""
        flags = [(m, m.training) for _, m in self._modules if hasattr(m, "training")]
        names = named(self._framework.forward(model), arguments, keywords)
        for name, tensor in self._tensors(names):
            if not self._value(tensor):
                self._ends[0].append(Step(name, "Input", (), [], [self._make(tensor, name, outside=True)], "input"))
        try:
            for module, _ in flags:
                module.training = False  # not eval(), which may be overridden and change weights
            result = model(*arguments, **keywords)
        finally:
            for module, flag in flags:
                module.training = flag
        for name, tensor in self._tensors({"output": result}):
            value = self._value(tensor) or self._make(tensor, name)
            self._ends[1].append(Step(name, "Output", (), [value], [], "output"))

    @contextmanager
    def calls_of(self, base: Any) -> Generator[None]:
        """Record calls of modules while the context is open.

        Args:
            base: Class whose `__call__` all modules share.
        """
        original = base.__call__

        def call(module: Any, *arguments: Any, **keywords: Any) -> Any:
            if threading.get_ident() != self._thread:
                return original(module, *arguments, **keywords)
            return self._called(original, module, arguments, keywords)

        base.__call__ = call
        try:
            yield
        finally:
            base.__call__ = original

    def operator(
        self,
        run: Callable[[], Any],
        label: str,
        arguments: Any,
        keywords: Mapping[str, Any],
        documentation: str = "",
        hidden: bool = False,
        written: Sequence[Any] = (),
    ) -> Any:
        """Run an operator, record it if it created or wrote a tensor, and return its result.

        Nested operators are not recorded.

        Args:
            hidden: The calling modules are not visible; the operator is placed with its weights.
            written: Tensors that it writes in place although their write count does not grow.
        """
        if not self._calls or self._inside_operator or threading.get_ident() != self._thread:
            return run()
        tensors = [t for _, t in self._tensors((arguments, keywords))]
        values = [self._value(t) for t in tensors]
        writes = [self._framework.writes(t) for t in tensors]
        self._inside_operator = True
        try:
            result = run()
        finally:
            self._inside_operator = False
        outputs = [t for _, t in self._tensors(result)]
        written = [*written, *(t for t, n in zip(tensors, writes, strict=True) if self._framework.writes(t) != n)]
        fresh = [
            t for t in outputs if all(t is not g for g in tensors) and not (self._value(t) and self._value(t) in values)
        ]
        outputs = _distinct([*fresh, *written])
        if outputs:
            inputs = _distinct([v or self._current(t) for v, t in zip(values, tensors, strict=True)])
            owners = [self._owners[v] for v in inputs if v in self._owners] if hidden else []
            parts = self._place((*self._below(owners), label))
            step = Step(".".join(parts), label, parts[:-1], inputs, [])
            step.attributes = settings(arguments, keywords, self._framework)
            step.documentation = documentation
            step.placed = bool(owners) or not hidden
            step.optional = hidden and not written
            step.outputs = [self._make(t, _numbered(step.name, i, len(outputs))) for i, t in enumerate(outputs)]
            if owners and len(owners) == len(inputs):
                self._owners |= dict.fromkeys(step.outputs, owners[0])
            self._calls[-1].steps.append(step)
        return result

    def _below(self, owners: list[str]) -> tuple[str, ...]:
        """Return the path of the running module, or of the first owner in it."""
        call = self._calls[-1]
        inside = f"{call.path}." if call.path else ""
        inner = next((o[len(inside) :] for o in owners if call.path is not None and o.startswith(inside)), "")
        return (*call.parts, *inner.split(".")) if inner else call.parts

    def same(self, tensor: Any, other: Any) -> None:
        """Record that `other` is another object for the value of `tensor`."""
        if value := self._value(tensor):
            self._memory.set(other, value, False)

    def document(self, title: str) -> dict[str, Any]:
        """Return the graph in the format of docs/graph-format.md."""
        root = self._root
        steps = _read(root.steps if root else [], {v for end in self._ends[1] for v in end.inputs})
        rows: dict[Value, int] = {}
        weights = [
            Step(n, "Parameter", tuple(n.split(".")[:-1]), [], [v], "constant") for n, v in self._weights.items()
        ]
        nodes = [_node(s, rows) for s in (*self._ends[0], *weights, *steps, *self._ends[1])]
        return {
            "visualprof_graph": VERSION,
            "name": title,
            "framework": self._framework.name,
            "producer": f"{self._framework.name} {self._framework.version}",
            "values": [{"name": v.name, "dtype": v.dtype, "shape": v.shape} for v in rows],
            "nodes": nodes,
            "scopes": root.scopes if root else [],
        }

    def _called(
        self, original: Callable[..., Any], module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """Run a module and return its result; it becomes a node, or a scope around the nodes inside."""
        if any(c.module is module for c in self._calls[-1:]):  # the class calls `super().__call__`
            return original(module, *arguments, **keywords)
        inputs = _distinct([self._current(t) for _, t in self._tensors((arguments, keywords))])
        outer = self._calls[-1] if self._calls else None
        path = self._paths.get(id(module))
        call = _Call(module, path, self._parts(module, path, outer), inputs, self._profile_name(module))
        self._calls.append(call)
        try:
            with self._framework.inside(module):
                result = original(module, *arguments, **keywords)
        finally:
            self._calls.pop()
        if self._is_leaf(call, outer):
            self._leaf(call, result)
        else:
            call.scopes.insert(0, self._scope(call))
        if outer is None:
            self._root = call
        else:
            outer.calls_modules = True
            outer.steps += call.steps
            outer.scopes += call.scopes
        return result

    def _parts(self, module: Any, path: str | None, outer: _Call | None) -> tuple[str, ...]:
        """Return the path of a call: below its caller if it is registered there, else where it is registered."""
        if outer is None:
            return ()
        if path is None:
            return self._place((*outer.parts, self._framework.kind(module)))
        inside = f"{outer.path}." if outer.path else ""
        if outer.path is not None and path.startswith(inside):
            return self._place((*outer.parts, *path[len(inside) :].split(".")))
        return self._place(tuple(path.split(".")))

    def _place(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path, with `#2`, `#3`, ... if it is taken."""
        count = self._places[parts] = self._places.get(parts, 0) + 1
        return parts if count == 1 else (*parts[:-1], f"{parts[-1]}#{count}")

    def _profile_name(self, module: Any) -> str:
        """Return the name of the call in the framework's profile, numbered per class in the order of first calls."""
        if not self._framework.profile_prefix:
            return ""
        numbers = self._numbers.setdefault(_kind(module), {})
        return (
            f"{self._framework.profile_prefix}{_kind(module).__name__}_{numbers.setdefault(id(module), len(numbers))}"
        )

    def _is_leaf(self, call: _Call, outer: _Call | None) -> bool:
        """Whether the module is shown as one node: it called no module, and has none or comes with the framework."""
        if call.calls_modules:
            return False
        inner = f"{call.path}." if call.path else ""
        childless = call.path is None or not any(n.startswith(inner) and n != call.path for n, _ in self._modules)
        return not call.steps or self._framework.builtin(_kind(call.module)) or (childless and outer is not None)

    def _leaf(self, call: _Call, result: Any) -> None:
        """Add one node for the whole call, with all parameters of the module."""
        inner = f"{call.path}." if call.path else ""
        weights = [] if call.path is None else [v for n, v in self._weights.items() if n.startswith(inner)]
        shared = [v for v in self._named_parameters(call.module) if v not in weights]
        kind = self._framework.kind(call.module)
        name = ".".join(call.parts) or kind
        step = Step(name, kind, call.parts[:-1], _distinct([*call.inputs, *weights, *shared]), [])
        step.attributes = self._attributes(call, without_nested=False)
        step.documentation = self._framework.documentation(_kind(call.module))
        outputs = _distinct([t for _, t in self._tensors(result)])
        step.outputs = [self._make(t, _numbered(name, i, len(outputs))) for i, t in enumerate(outputs)]
        call.steps, call.scopes = [step], []

    def _named_parameters(self, module: Any) -> list[Value]:
        """Return the parameters of the module, including those that it shares with an earlier one."""
        weights = set(self._weights.values())
        held: dict[str, Any] = dict(module.__dict__)
        held |= held.get("_parameters") or {}
        values = [self._value(t) for t in held.values() if self._framework.is_tensor(t)]
        return [v for v in values if v is not None and v in weights]

    def _attributes(self, call: _Call, without_nested: bool) -> dict[str, str]:
        """Return the attributes of the module.

        Args:
            own: Leave out the buffers of modules inside.
        """
        kind = _kind(call.module)
        out = {"class": f"{kind.__module__}.{kind.__qualname__}"}
        if call.profile_name:
            out["profile_name"] = call.profile_name
        inner = f"{call.path}." if call.path else ""
        buffers = [b[len(inner) :] for b in self._buffers if call.path is not None and b.startswith(inner)]
        if names := [b for b in buffers if not (without_nested and "." in b)]:
            out["buffers"] = text(", ".join(names))
        plain: dict[str, Any] = {k: v for k, v in _members(call.module) if not k.startswith("_") and k not in UNTOLD}
        return out | {k: text(v) for k, v in plain.items() if is_plain(v) and v is not None and v != ()}

    def _scope(self, call: _Call) -> dict[str, Any]:
        kind = _kind(call.module)
        return {
            "scope": list(call.parts),
            "type": self._framework.kind(call.module),
            "attributes": self._attributes(call, without_nested=True),
            "documentation": self._framework.documentation(kind),
        }

    def _value(self, tensor: Any) -> Value | None:
        return self._memory.get(tensor)

    def _make(self, tensor: Any, name: str, outside: bool = False) -> Value:
        """Record the tensor as a new value."""
        value = Value(name, *self._framework.describe(tensor))
        self._memory.set(tensor, value, outside)
        return value

    def _current(self, tensor: Any) -> Value:
        """Return the current value of the tensor; an unrecorded tensor becomes a value without a producer."""
        return self._value(tensor) or self._make(tensor, "", outside=True)

    def _tensors(self, nest: Any) -> Iterator[tuple[str, Any]]:
        """Yield the tensors anywhere in tuples, lists, mappings and dataclasses with their path; each object once."""
        seen: set[int] = set()

        def walk(item: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
            if self._framework.is_tensor(item):
                if id(item) not in seen:
                    seen.add(id(item))
                    yield path, item
            elif depth < MAX_DEPTH:
                for key, inner in children(item):
                    yield from walk(inner, f"{path}.{key}" if path else key, depth + 1)

        return walk(nest, "", 0)


def _kind(item: object) -> type[object]:
    return type(item)


def _members(item: Any) -> Iterable[tuple[str, Any]]:
    held: dict[str, Any] = item.__dict__
    return held.items()


def _read(steps: list[Step], read: set[Value]) -> list[Step]:
    """Return the steps without optional ones whose outputs are not read."""
    needed: list[Step] = []
    for step in reversed(steps):
        if not step.optional or read & set(step.outputs):
            read |= set(step.inputs)
            needed.append(step)
    return needed[::-1]


def _node(step: Step, rows: dict[Value, int]) -> dict[str, Any]:
    return {
        "name": step.name,
        "type": step.type,
        "kind": step.kind,
        "scope": list(step.scope),
        "inputs": [rows.setdefault(v, len(rows)) for v in step.inputs],
        "outputs": [rows.setdefault(v, len(rows)) for v in step.outputs],
        "attributes": step.attributes,
        "documentation": step.documentation,
    } | ({} if step.placed else {"placed": False})


def _numbered(name: str, i: int, count: int) -> str:
    return name if count == 1 else f"{name}:{i}"


def _distinct(items: list[Any]) -> list[Any]:
    """Return each object once, in order."""
    return list({id(i): i for i in items}.values())
