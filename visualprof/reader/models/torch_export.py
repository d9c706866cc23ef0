"""torch.export archives (`.pt2`): the graph is JSON next to the weights, so neither torch nor a pickle is needed.

Layout: `<name>/models/<model>.json` (torch 2.7 and later) or `serialized_exported_program.json` (torch 2.1 to 2.6).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from visualprof.messages import msg
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value, ValueScope, tensor_bytes
from visualprof.reader.models import ModelFormat
from visualprof.reader.models.torch_archive import entry_names, open_archive
from visualprof.reader.source import Source

MAX_BYTES = 512 << 20
MAX_GRAPH_DEPTH = 32
MAX_TEXT_CHARS = 200
LOOP_TYPES = ("while_loop", "scan", "map_impl", "associative_scan")
GRAPH_FILE = re.compile(r"(^|/)(models/[^/]+\.json|serialized_exported_program\.json)$")
EXPORT_FILE = re.compile(
    r"(^|/)(models/[^/]+\.json|serialized_exported_program\.json|data/weights/[^/]+|data/constants/[^/]+|archive_format|data/aotinductor/.+)$"
)
# ScalarType of torch/_export/serde/schema.py.
DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu",
    34: "uint32",
    35: "uint64",
}
STACK_FRAME = re.compile(r'File "([^"]*)", line (\d+), in (\S+)')


def sniff(head: bytes) -> bool:
    """Return whether this is a zip whose first files are those of an export."""
    return any(EXPORT_FILE.search(n) for n in entry_names(head))


def read(source: Source) -> ModelGraph:
    """Read the graph. Weights are counted by their description; their bytes are not read."""
    with open_archive(source) as archive:
        graphs = sorted(filter(GRAPH_FILE.search, archive.names), key=lambda n: (not n.endswith("/model.json"), n))
        if not graphs:
            raise source.error(
                msg("models.torch_archive_without_graph", "a torch archive without the graph"),
                msg("models.compiled_model_none_save", "a compiled model has none; save it with torch.export.save"),
            )
        data = archive.read(graphs[0], MAX_BYTES)
    builder = ModelBuilder(source.name, "torch_export")
    if len(graphs) > 1:
        builder.warn(
            msg("models.archive_holds_models_shown", f"the archive holds {len(graphs)} models; {graphs[0]} is shown")
        )
    try:
        _add_program(builder, msgspec.json.decode(data))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:  # DecodeError is a ValueError
        problem = msg(
            "models.no_exported_program", f"{graphs[0]} is not an exported program ({type(error).__name__}: {error})"
        )
        raise source.error(
            problem, msg("models.save_again_torch_export", "save it again with torch.export.save")
        ) from error
    return builder.build()


def _add_program(builder: ModelBuilder, program: dict[str, Any]) -> None:
    module = program["graph_module"]
    graph, signature = module["graph"], module["signature"]
    builder.producer = f"torch {program['torch_version']}" if program.get("torch_version") else "torch.export"
    schema: dict[str, int] = program["schema_version"]
    builder.properties = {"schema_version": f"{schema['major']}.{schema['minor']}"}
    values = ValueScope()
    for spec in signature["input_specs"]:
        _add_input(builder, values, graph, spec)
    _add_graph(builder, values, graph, (), 0)
    for spec in signature["output_specs"]:
        for name in _value_names(spec.get("user_output", {})):
            row = values.get(name)
            if row is not None:
                builder.node(Node(name, "Output", kind="output", inputs=(row,)))


def _add_input(builder: ModelBuilder, values: ValueScope, graph: dict[str, Any], spec: dict[str, Any]) -> None:
    """Add an input. Parameters become constants; buffers become values without a producer, as in module graphs."""
    ((kind, body),) = spec.items()
    label = body.get(f"{kind}_name") or body.get("tensor_constant_name")
    for name in _value_names(body.get("arg", {})):
        row = builder.value(_value(graph, name, label))
        values.set(name, row)
        if kind == "parameter":
            builder.node(
                Node(label or name, "Parameter", _scopes((label or name).rpartition(".")[0]), "constant", (), (row,))
            )
        elif kind == "user_input":
            builder.node(Node(name, "Input", kind="input", outputs=(row,)))


def _add_graph(
    builder: ModelBuilder, values: ValueScope, graph: dict[str, Any], outer: tuple[Scope, ...], depth: int
) -> None:
    """Add the nodes of a graph, and of the graphs inside its nodes."""
    if depth > MAX_GRAPH_DEPTH:
        raise ValueError(msg("models.graphs_nest_too_deep", "graphs nest too deep"))
    paths = [_module_path(n) for n in graph["nodes"]]
    nodes_of_path = Counter(paths)
    for path in set(paths):  # a module with submodules is no leaf, however few operators it has itself
        while path := path.rpartition(".")[0]:
            nodes_of_path[path] += 2
    for node, path in zip(graph["nodes"], paths, strict=True):
        inputs = tuple(
            row for a in node["inputs"] for n in _value_names(a["arg"]) if (row := values.get(n)) is not None
        )
        output_names = [n for out in node["outputs"] for n in _value_names(out)]
        name = node.get("name") or (output_names[0] if output_names else node["target"].rpartition(".")[2])
        module_path, label = (
            (path.rpartition(".")[0], path)
            if nodes_of_path[path] == 1 and path
            else (path, f"{path}.{name}" if path else name)
        )
        scope = (*outer, *_scopes(module_path))
        bodies = [a["arg"]["as_graph"] for a in node["inputs"] if "as_graph" in a["arg"]]
        body = builder.body(scope, label.rpartition(".")[2], "control") if bodies else None
        rows = [builder.value(_value(graph, output)) for output in output_names]
        kind = _operator_type(node["target"])
        graph_node = Node(
            label,
            kind,
            scope,
            kind="operator",
            inputs=inputs,
            outputs=tuple(rows),
            attributes=_attributes(node),
            body=body,
        )
        builder.node(graph_node)
        for body_graph in bodies:
            body_scope = (
                (*graph_node.full_scope, Scope(str(body_graph["name"]), "subgraph"))
                if len(bodies) > 1
                else graph_node.full_scope
            )
            is_condition = kind == "while_loop" and body_graph is bodies[0]
            _add_subgraph(
                builder,
                values,
                body_graph["graph"],
                node=graph_node,
                scope=body_scope,
                results=() if is_condition else tuple(rows),
                depth=depth,
            )
        for output, row in zip(output_names, rows, strict=True):
            values.set(output, row)


def _add_subgraph(
    builder: ModelBuilder,
    outer: ValueScope,
    graph: dict[str, Any],
    node: Node,
    scope: tuple[Scope, ...],
    results: tuple[int, ...],
    depth: int,
) -> None:
    """Add a branch or body, which receives the last operands of its node.

    Variables of a loop are new values in the body.

    Args:
        builder: The graph.
        outer: Values of the outer graph.
        graph: The subgraph.
        node: The node that contains it.
        scope: Scope of the subgraph.
        results: Rows of the values that it produces, empty for a loop condition.
        depth: Nesting depth.
    """
    inner = ValueScope(outer)
    names = list(_value_names(graph["inputs"]))
    operands = [None] * len(names) + list(node.inputs)
    changing = len(node.outputs) if node.type == "while_loop" else len(names) if node.type in LOOP_TYPES else 0
    for i, (name, row) in enumerate(zip(names, operands[len(operands) - len(names) :], strict=True)):
        row_inside = row if row is not None and i >= changing else builder.value(_value(graph, name))
        inner.set(name, row_inside)
        if row_inside != row:
            builder.node(Node(name, "Input", scope, "input", () if row is None else (row,), (row_inside,)))
    _add_graph(builder, inner, graph, scope, depth + 1)
    result_rows = [inner.get(name) for name in _value_names(graph["outputs"])]
    for i, row in enumerate(result_rows):
        if row is not None:
            result = results[i : i + 1] if len(result_rows) == len(results) else ()
            builder.node(Node(builder.value_at(row).name, "Output", scope, "output", (row,), result))


def _value_names(argument: Any) -> Iterator[str]:
    """Yield the value names in an argument, an output or a list of them."""
    pending: list[Any] = [argument]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += reversed(item)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(item, dict):
            fields: dict[str, Any] = item  # pyright: ignore[reportUnknownVariableType]
            for key, inner in reversed(fields.items()):
                if key in ("name", "as_name") and isinstance(inner, str):
                    yield inner
                elif key not in ("as_graph", "as_string", "as_strings"):
                    pending.append(inner)


def _value(graph: dict[str, Any], name: str, label: str | None = None) -> Value:
    """Return a value by its description; numbers of the shape arithmetic have no shape."""
    meta = graph["tensor_values"].get(name)
    if meta is None:
        return Value(label or name)
    dtype = DTYPES.get(meta["dtype"], "")
    shape = tuple(_format_size(s) for s in meta["sizes"])
    return Value(label or name, dtype, shape, tensor_bytes(dtype, shape))


def _format_size(size: dict[str, Any]) -> int | str:
    """Return 8, `s77` or `8*s77`."""
    if "as_int" in size:
        return int(size["as_int"])
    text = str(size["as_expr"]["expr_str"])[:MAX_TEXT_CHARS]
    text = re.sub(r"Symbol\('(\w+)'[^()]*\)", r"\1", re.sub(r"Integer\((-?\d+)\)", r"\1", text))
    flat = re.fullmatch(r"(Mul|Add)\(([^()]*)\)", text)
    return ("*" if flat[1] == "Mul" else "+").join(p.strip() for p in flat[2].split(",")) if flat else text


def _module_path(node: dict[str, Any]) -> str:
    """Return the dotted path of the module that ran a node; later calls of a shared module get `#2`, `#3`, ..."""
    stack = str(node.get("metadata", {}).get("nn_module_stack", ""))
    entries = [e.split(",") for e in stack.split(";") if e]
    if not entries or len(entries[-1]) < 2:
        return ""
    path = re.sub(r"^L(__self__|\['self'\])\.?", "", entries[-1][1])
    return re.sub(r"@(\d+)", lambda m: f"#{int(m[1]) + 1}", path)


def _scopes(path: str) -> tuple[Scope, ...]:
    return tuple(Scope(p) for p in path.split(".") if p)


def _operator_type(target: str) -> str:
    """Return the operator type of a target.

    Examples: conv2d for `torch.ops.aten.conv2d.default`, mine.op for `torch.ops.mine.op.default`, mul for
    `_operator.mul`.
    """
    segments = target.split(".")
    if segments[:2] != ["torch", "ops"] or len(segments) < 4:
        return segments[-1]
    return segments[3] if segments[2] in ("aten", "higher_order") else ".".join(segments[2:4])


def _attributes(node: dict[str, Any]) -> dict[str, str]:
    """Return non-tensor arguments, the full target, and the line of user code."""
    texts = {"target": str(node["target"])}
    for i, argument in enumerate(node["inputs"]):
        value: dict[str, Any] = argument["arg"]
        kind = next(iter(value), "as_none")
        if kind.startswith(("as_tensor", "as_optional_tensor", "as_graph", "as_none", "as_nested")) or "sym" in kind:
            continue
        text = DTYPES.get(value[kind], "") if kind == "as_scalar_type" else str(value[kind])
        texts[argument["name"] or f"argument {i}"] = text[:MAX_TEXT_CHARS]
    trace = str(node.get("metadata", {}).get("stack_trace", "")).replace("\\", "/")
    user_frames = [f for f in STACK_FRAME.findall(trace) if "/torch/" not in f[0]]
    if user_frames:
        texts["source"] = f"{user_frames[-1][0].rpartition('/')[2]}:{user_frames[-1][1]} {user_frames[-1][2]}"
    return texts


MODEL = ModelFormat("torch_export", "torch.export .pt2", 20, sniff, read, suffixes=(".pt2",))
