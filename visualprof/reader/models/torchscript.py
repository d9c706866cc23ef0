"""TorchScript archives: the structure, from the source text of the program, which is parsed and never run.

Layout: `<name>/code/__torch__/**.py` has one class per module. `<name>/data.pkl` has the objects of these classes with
their weights, a pickle that is interpreted as data (`reader.pickles`). Other tensors have no shapes in the file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from visualprof.messages import msg
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value, tensor_bytes
from visualprof.reader.models import ModelFormat
from visualprof.reader.models.torch_archive import Archive, entry_names, open_archive, rejection_reason
from visualprof.reader.pickles import PickleError, Record, Tensor, load
from visualprof.reader.source import Source

MAX_CODE_BYTES = 64 << 20
MAX_PICKLE_BYTES = 64 << 20
MAX_PATH_CHARS = 2000
MAX_CALLS = 200_000  # of modules and operators; nested calls could grow without limit
CODE_FILE = re.compile(r"(^|/)code/(__torch__.*)\.py$")
ARCHIVE_FILE = re.compile(r"(^|/)code/__torch__|^[^/]+/data/\d+$|(^|/)constants\.pkl$")
EXPORT_HINT = msg(
    "models.export_model_torch_export_save", "export the model with torch.export.save or torch.onnx.export"
)
# Operators that inspect tensors or convert types, without producing a tensor.
IGNORED_OPERATORS = frozenset(
    """
    size dim len shape dtype device append format warn NumToTensor Int ScalarImplicit IntImplicit
    FloatImplicit __is__ __isnot__ __not__ __contains__ __range_length __derive_index
    """.split()
)


@dataclass
class _Class:
    """A module's class: types of its attributes, names of its parameters, its methods."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    parameters: list[str] = field(default_factory=list[str])
    methods: dict[str, ast.FunctionDef] = field(default_factory=dict[str, ast.FunctionDef])


@dataclass(frozen=True, eq=False)
class _Module:
    """A module of the model, with its path and class."""

    path: str
    kind: _Class


@dataclass(frozen=True)
class _Data:
    """The origin of an expression: rows of values, and the parts of a tuple."""

    rows: tuple[int, ...] = ()
    parts: tuple[_Thing, ...] | None = None


_Thing = _Module | _Data
_Names = dict[str, _Thing]
NO_DATA = _Data()


def sniff(head: bytes) -> bool:
    """Return whether this is a zip whose first files are code or tensors.

    An archive of weights starts with its pickle.
    """
    names = entry_names(head)
    weights_first = bool(names) and names[0].endswith("/data.pkl") and not any("/code/" in n for n in names)
    return not weights_first and any(ARCHIVE_FILE.search(n) for n in names)


def read(source: Source) -> ModelGraph:
    """Read modules and the calls between them; layers of torch.nn become single nodes."""
    with open_archive(source) as archive:
        files = [n for n in archive.names if CODE_FILE.search(n)]
        if not files:
            raise source.error(msg("models.torch_archive_without_code", "a torch archive without code"), EXPORT_HINT)
        remaining_bytes = MAX_CODE_BYTES
        texts: dict[str, bytes] = {}
        for name in files:
            texts[name] = archive.read(name, remaining_bytes)
            remaining_bytes -= len(texts[name])
        root = _load_root(source, archive)
        weights = sum(archive.size(n) for n in archive.names if re.search(r"^[^/]+/data/\d+$", n))
    try:
        classes = {c.name: c for name, text in texts.items() for c in _parse_classes(name, text)}
        if root.kind not in classes or "forward" not in classes[root.kind].methods:
            raise source.error(
                msg("models.structure_torchscript_model_needs", "the structure of this TorchScript model needs torch"),
                EXPORT_HINT,
            )
        builder = ModelBuilder(source.name, "torchscript")
        builder.producer = "TorchScript"
        builder.properties = {"weight_bytes": str(weights)}
        builder.warn(msg("models.torchscript_keeps_shapes_weights", "TorchScript keeps the shapes of weights only"))
        _ProgramWalker(builder, classes, root).model(classes[root.kind])
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        problem = msg(
            "models.code_torchscript_model_cannot",
            f"the code of this TorchScript model cannot be read ({type(error).__name__})",
        )
        raise source.error(problem, EXPORT_HINT) from error
    return builder.build()


def _load_root(source: Source, archive: Archive) -> Record:
    """Return the model object with its modules and weights."""
    name = next((n for n in archive.names if re.search(r"^[^/]+/data\.pkl$", n)), None)
    try:
        root = load(archive.read(name, MAX_PICKLE_BYTES)) if name else None
    except PickleError as error:
        raise source.error(
            msg("models.pickle_torchscript_model_not", f"the pickle of a TorchScript model is not one ({error})"),
            EXPORT_HINT,
        ) from error
    return root if isinstance(root, Record) else Record("")


def _parse_classes(file: str, text: bytes) -> Iterable[_Class]:
    match = CODE_FILE.search(file)
    module = match[2].replace("/", ".") if match else ""
    for statement in ast.parse(text.decode("utf-8", "replace")).body:
        if isinstance(statement, ast.ClassDef):
            yield _parse_class(f"{module}.{statement.name}", statement)


def _parse_class(name: str, tree: ast.ClassDef) -> _Class:
    parsed = _Class(name)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            parsed.methods[statement.name] = statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            parsed.attributes[statement.target.id] = ast.unparse(statement.annotation)
        elif isinstance(statement, ast.Assign):
            _declare(parsed, statement.targets[0], statement.value)
    return parsed


def _declare(target_class: _Class, target: ast.expr, value: ast.expr) -> None:
    """Parse `__annotations__["0"] = type` and `__parameters__ = [names]`."""
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        target_class.attributes[str(target.slice.value)] = ast.unparse(value)
    elif ast.unparse(target) == "__parameters__" and isinstance(value, ast.List):
        target_class.parameters = [str(e.value) for e in value.elts if isinstance(e, ast.Constant)]


class _ProgramWalker:
    """Follows `forward` of the model and of the modules that it calls."""

    def __init__(self, builder: ModelBuilder, classes: dict[str, _Class], root: Record) -> None:
        self._builder = builder
        self._classes = classes
        self._root = root
        self._weights: dict[Tensor, int] = {}
        self._names: dict[str, int] = {}
        self._calls = 0
        self._scope: list[str] = []

    def model(self, kind: _Class) -> None:
        """Add the whole model with its inputs and outputs."""
        inputs: list[_Thing] = []
        for argument in kind.methods["forward"].args.args[1:]:
            row = self._builder.value(Value(argument.arg))
            self._builder.node(Node(argument.arg, "Input", kind="input", outputs=(row,)))
            inputs.append(_Data((row,)))
        result = self._run_method(_Module("", kind), "forward", inputs)
        self._add_unused_weights()
        for row in _rows([result]):
            self._builder.node(Node(self._builder.value_at(row).name, "Output", kind="output", inputs=(row,)))

    def _run_method(self, module: _Module, method: str, arguments: Sequence[_Thing]) -> _Thing:
        code = module.kind.methods[method]
        names: _Names = dict(zip((a.arg for a in code.args.args), (module, *arguments), strict=False))
        results: list[_Thing] = []
        self._body(code.body, names, results)
        return results[0] if len(results) == 1 else _Data(_rows(results))

    def _body(self, body: Sequence[ast.stmt], names: _Names, results: list[_Thing]) -> None:
        for statement in body:
            if isinstance(statement, ast.Assign):
                self._assign(statement.targets[0], self._value(statement.value, names), names)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self._assign(statement.target, self._value(statement.value, names), names)
            elif isinstance(statement, ast.Return):
                results.append(self._value(statement.value, names) if statement.value else NO_DATA)
            elif isinstance(statement, ast.Expr):
                self._value(statement.value, names)
            elif isinstance(statement, ast.If):
                self._value(statement.test, names)
                self._branches(statement, names, results)
            elif isinstance(statement, ast.For):
                self._assign(statement.target, self._value(statement.iter, names), names)
                self._body(statement.body, names, results)
            elif isinstance(statement, (ast.While, ast.With)):
                self._body(statement.body, names, results)

    def _branches(self, tree: ast.If, names: _Names, results: list[_Thing]) -> None:
        """Follow both branches; a name that both set has the values of both."""
        then_names, else_names = dict(names), dict(names)
        self._body(tree.body, then_names, results)
        self._body(tree.orelse, else_names, results)
        for name in then_names.keys() | else_names.keys():
            a, b = then_names.get(name), else_names.get(name)
            thing = a if a is b or b is None else b if a is None else _Data(_rows([a, b]))
            if thing is not None:
                names[name] = thing

    def _assign(self, target: ast.expr, thing: _Thing, names: _Names) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = thing
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = thing.parts if isinstance(thing, _Data) else None
            same = parts is not None and len(parts) == len(target.elts)
            for i, element in enumerate(target.elts):
                self._assign(element, parts[i] if parts is not None and same else thing, names)

    def _value(self, tree: ast.expr, names: _Names) -> _Thing:
        if isinstance(tree, ast.Name):
            return names.get(tree.id, NO_DATA)
        if isinstance(tree, ast.Attribute):
            return self._attribute(self._value(tree.value, names), tree.attr)
        if isinstance(tree, ast.Call):
            return self._call(tree, names)
        if isinstance(tree, ast.Tuple):
            parts = tuple(self._value(e, names) for e in tree.elts)
            return _Data(_rows(parts), parts)
        if (
            isinstance(tree, ast.Subscript)
            and isinstance(tree.slice, ast.Constant)
            and isinstance(tree.slice.value, int)
        ):
            thing, index = self._value(tree.value, names), tree.slice.value
            parts = thing.parts if isinstance(thing, _Data) else None
            return parts[index] if parts is not None and index < len(parts) else thing
        return _Data(_rows([self._value(e, names) for e in ast.iter_child_nodes(tree) if isinstance(e, ast.expr)]))

    def _attribute(self, thing: _Thing, name: str) -> _Thing:
        """Return a submodule, a weight, or the data that the attribute belongs to."""
        if isinstance(thing, _Data):
            return thing
        path = f"{thing.path}.{name}" if thing.path else name
        kind = self._classes.get(thing.kind.attributes.get(name, ""))
        if kind is not None:
            return _Module(path, kind)
        return _Data(self._weight(path)) if name in thing.kind.parameters else NO_DATA

    def _weight(self, path: str) -> tuple[int, ...]:
        """Return the row of a weight, which modules may share; () if the model has `None` there."""
        item: Any = self._root
        for segment in path.split("."):
            item = item.state.get(segment) if isinstance(item, Record) else None
        if not isinstance(item, Tensor):
            return ()
        if item not in self._weights:
            value = Value(path, item.dtype, item.shape, tensor_bytes(item.dtype, item.shape))
            self._weights[item] = self._builder.value(value)
            scope = tuple(Scope(p) for p in path.split(".")[:-1])
            self._builder.node(Node(path, "Parameter", scope, "constant", (), (self._weights[item],)))
        return (self._weights[item],)

    def _add_unused_weights(self) -> None:
        """Add weights that no call reads; each module once, wherever it occurs."""
        pending, seen = [("", self._root)], {self._root}
        for path, module in pending:  # grows during the loop
            if len(path) > MAX_PATH_CHARS:
                raise ValueError(msg("models.modules_nest_too_deep", "modules nest too deep"))
            kind = self._classes.get(module.kind)
            for name in kind.parameters if kind else ():
                self._weight(f"{path}{name}")
            for name, child in module.state.items():
                if isinstance(child, Record) and child not in seen:
                    seen.add(child)
                    pending.append((f"{path}{name}.", child))

    def _call(self, tree: ast.Call, names: _Names) -> _Thing:
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise ValueError(msg("models.over_calls", f"over {MAX_CALLS:,} calls"))
        arguments = [self._value(a, names) for a in (*tree.args, *(k.value for k in tree.keywords))]
        if isinstance(tree.func, ast.Name):
            if tree.func.id == "getattr" and len(tree.args) == 2 and isinstance(tree.args[1], ast.Constant):
                return self._attribute(arguments[0], str(tree.args[1].value))
            return _Data(_rows(arguments))
        if not isinstance(tree.func, ast.Attribute):
            return _Data(_rows(arguments))
        owner = self._value(tree.func.value, names)
        if isinstance(owner, _Module):
            return self._module(owner, tree.func.attr, arguments)
        return self._operator(tree.func.attr, _rows([owner, *arguments]))

    def _module(self, module: _Module, method: str, arguments: Sequence[_Thing]) -> _Thing:
        """Add a layer as a node; a module with submodules becomes a scope with its contents."""
        inner = any(t in self._classes for t in module.kind.attributes.values())
        if method in module.kind.methods and (inner or not module.path):
            outer, self._scope = self._scope, module.path.split(".") if module.path else []
            try:
                return self._run_method(module, method, arguments)
            finally:
                self._scope = outer
        weights = tuple(row for p in module.kind.parameters for row in self._weight(f"{module.path}.{p}"))
        *scope, label = module.path.split(".")
        rows = (*_rows(arguments), *weights)
        plain = re.sub(r"\.?___torch_mangle_\d+", "", module.kind.name.removeprefix("__torch__."))
        return self._node(scope, label, plain.rpartition(".")[2], rows, {"class": plain})

    def _operator(self, name: str, rows: tuple[int, ...]) -> _Thing:
        return NO_DATA if name in IGNORED_OPERATORS else self._node(self._scope, name, name, rows, {})

    def _node(
        self, scope: Sequence[str], label: str, kind: str, rows: tuple[int, ...], attributes: dict[str, str]
    ) -> _Data:
        name = ".".join((*scope, label))
        count = self._names[name] = self._names.get(name, 0) + 1
        name = name if count == 1 else f"{name}#{count}"
        row = self._builder.value(Value(name))
        self._builder.node(
            Node(
                name,
                kind,
                tuple(Scope(s) for s in scope),
                kind="operator",
                inputs=rows,
                outputs=(row,),
                attributes=attributes,
            )
        )
        return _Data((row,))


def _rows(things: Iterable[_Thing]) -> tuple[int, ...]:
    """Return the rows of all things, without duplicates."""
    return tuple(dict.fromkeys(r for t in things if isinstance(t, _Data) for r in t.rows))


MODEL = ModelFormat(
    "torchscript", "TorchScript", 21, sniff, read, shared_suffixes=(".pt", ".pth"), refuse=rejection_reason
)
