"""Find the node of a model that a runtime means by the name and type of an operator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from visualprof.reader.graph import ModelGraph, enclosing_nodes

NO_NODE, AMBIGUOUS, CONSTANT = -1, -2, -3  # in place of a node's row; constants are not drawn
UNKNOWN_HOLDER = -2  # the trace does not record in the body of which node an operator ran
# Suffixes that optimizers add to the name of a node, or of the value that a merged node produces.
ADDED_SUFFIX = re.compile(r"(_nchwc|_token_\d+|_kernel_time|/\w+Fusion|/)$")
FUSED_NAME = re.compile(r"^(?:fused |FUSE_\w+\()([^,)]+)")
INLINED_NAME = re.compile(r"(?:_token_(\d+))?_(.+)")
MAX_MERGED_OPERATORS = 8  # longest chain of operators that an optimizer merges
TYPE_WORDS = re.compile(r"MatMul|FullyConnected|[A-Z]+[a-z0-9]*")
TYPE_SYNONYMS = {"Gemm": "MatMul", "FullyConnected": "MatMul", "Convolution": "Conv"}


class NodeNames:
    """Nodes of a model by the names that runtimes give them.

    Bodies repeat names. The node in whose body an operator ran decides which node is meant, then
    the operator's type, then which bodies other operators ran in. If several nodes remain, the name
    is ambiguous.

    Args:
        model: The model.
        executed_names: All names of operators that ran.
    """

    def __init__(self, model: ModelGraph, executed_names: Iterable[str]) -> None:
        self._nodes = model.nodes
        self._operators: dict[str, list[int]] = {}
        self._values: dict[str, list[int]] = {}
        self._inputs: dict[str, list[int]] = {}  # inputs and constants, which MegEngine runs as operators
        self._producer: dict[int, int] = {}
        self._calls: dict[str, list[int]] = {}
        self._executed_bodies: set[tuple[object, ...]] = set()
        self._holders = enclosing_nodes(model.nodes)
        self._running_holders: list[int] = []  # holder that runs as an operator; function calls are inlined
        for row, (node, holder) in enumerate(zip(model.nodes, self._holders, strict=True)):
            self._running_holders.append(self._running_holders[holder] if self._is_call(holder) else holder)
            if node.kind == "operator":
                self._operators.setdefault(node.name, []).append(row)
                self._producer.update(
                    (value, row) for value in node.outputs
                )  # for a call, the node inside that produces it
                if self._is_call(row):
                    self._calls.setdefault(node.type, []).append(row)
            elif node.kind != "output":
                self._inputs.setdefault(node.name, []).append(row)
        for value, row in self._producer.items():
            self._values.setdefault(model.values[value].name, []).append(row)
        self._call_numbers = self._number_calls(executed_names)

    def running_holder(self, row: int) -> int:
        """Return the node in whose body operators run while a node runs: the node itself or the one around it.

        -1 for none.
        """
        return row if self._nodes[row].body and not self._is_call(row) else self._running_holders[row]

    def find(self, holder: int, name: str, type: str) -> int:
        """Return the row of the node with a name that ran in the body of `holder` (-1 for none).

        NO_NODE, AMBIGUOUS or CONSTANT.
        """
        rows = self._candidates(holder, name, type)
        if rows and all(self._nodes[row].kind == "constant" for row in rows):
            return CONSTANT
        if len(rows) == 1:
            self._executed_bodies.add(self._body_of(rows[0]))
        return rows[0] if len(rows) == 1 else AMBIGUOUS if rows else NO_NODE

    def find_executed(self, holder: int, name: str, type: str) -> int:
        """Return the node like `find`, after all names were looked up.

        Among several nodes, the only one in a body in which something ran is chosen.
        """
        rows = [row for row in self._candidates(holder, name, type) if self._body_of(row) in self._executed_bodies]
        return rows[0] if len(rows) == 1 else AMBIGUOUS

    def _candidates(self, holder: int, name: str, type: str) -> list[int]:
        """Return the nodes of a name, narrowed by holder and type where several match."""
        rows = self._find_rows(name)
        if len(rows) > 1:
            rows = [row for row in rows if holder in (UNKNOWN_HOLDER, self._running_holders[row])] or rows
        if len(rows) > 1:
            rows = [row for row in rows if is_related_type(self._nodes[row].type, type)] or rows
        return rows

    def pick_by_type(self, rows: Sequence[int], type: str) -> int:
        """Return the first of some merged nodes that matches a type, or the first one.

        Without any node, NO_NODE or another code.
        """
        nodes = [row for row in rows if row >= 0] or [min(rows, default=NO_NODE)]
        return next((row for row in nodes if row >= 0 and is_related_type(self._nodes[row].type, type)), nodes[0])

    def merged_operator(self, row: int, type: str, named_nodes: set[int]) -> int:
        """Return the operator of a type among those that an optimizer merged into one named after its last.

        Otherwise the row itself.

        Args:
            row: Node that the operator is named after.
            type: Type of the operator that ran.
            named_nodes: Nodes that other operators are named after; these were not merged into it.
        """
        frontier, visited = [row], {row}
        if not TYPE_WORDS.search(type) or is_related_type(self._nodes[row].type, type):
            return row
        for _ in range(MAX_MERGED_OPERATORS):
            producers = [
                self._producer[value]
                for node in frontier
                for value in self._nodes[node].inputs
                if value in self._producer
            ]
            frontier = [
                maker
                for maker in dict.fromkeys(producers)
                if maker not in visited | named_nodes and not self._nodes[maker].body
            ]
            visited.update(frontier)
            match = next((maker for maker in frontier if is_related_type(self._nodes[maker].type, type)), None)
            if match is not None:
                return match
        return row

    def _is_call(self, row: int) -> bool:
        """Return whether a node calls a function."""
        body = self._nodes[row].body if row >= 0 else None
        return body is not None and body.kind == "function"

    def _body_of(self, row: int) -> tuple[object, ...]:
        """Return the body that contains a node."""
        scope = self._nodes[row].scope
        depth = next((i for i in range(len(scope), 0, -1) if scope[i - 1].kind in ("control", "subgraph")), 0)
        return scope[:depth]

    def _find_rows(self, name: str) -> list[int]:
        """Return the nodes that a name may mean."""
        for form in _name_forms(name):
            rows = self._operators.get(form) or self._values.get(form) or self._find_inlined(form)
            if rows:
                return rows
        match = FUSED_NAME.match(name)
        return self._operators.get(match[1], []) if match else self._inputs.get(name, [])

    def _find_inlined(self, name: str) -> list[int]:
        """Return the nodes of inlined function calls.

        ONNX Runtime names the nodes of the first call `_inlfunc_F_name`, and those of later calls
        `_inlfunc_F_token_7_name`.
        """
        for function, token, inner in self._split_inlined(name):
            rows = [row for row in self._operators.get(inner, ()) if self._nodes[self._holders[row]].type == function]
            call_numbers = self._call_numbers.get(function, {})
            calls = self._calls[function]
            if len(call_numbers) == len(calls) == len(rows) and all(self._holders[call] < 0 for call in calls):
                return [rows[call_numbers[token]]] if token in call_numbers else rows
            if rows:
                return rows
        return []

    def _split_inlined(self, name: str) -> Iterator[tuple[str, int, str]]:
        """Yield the function, token (-1 for none) and inner name that the name of an inlined node can be split into."""
        for function in self._calls if name.startswith("_inlfunc_") else ():
            match = INLINED_NAME.fullmatch(name.removeprefix(f"_inlfunc_{function}"))
            if match:
                yield function, int(match[1] or -1), match[2]

    def _number_calls(self, executed_names: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return the number of the call by token, per function; tokens increase from call to call."""
        tokens: dict[str, set[int]] = {}
        for name in executed_names:
            for function, token, _ in self._split_inlined(name):
                tokens.setdefault(function, set()).add(token)
        return {
            function: {token: i for i, token in enumerate(sorted(function_tokens))}
            for function, function_tokens in tokens.items()
        }


def _name_forms(name: str) -> Iterator[str]:
    """Yield a name unchanged, then without its added suffixes, one by one."""
    form = name
    while True:
        yield form
        shorter = ADDED_SUFFIX.sub("", form)
        if shorter == form:
            break
        form = shorter
    yield name.strip("/")


@lru_cache(maxsize=4096)
def is_related_type(node_type: str, operator_type: str) -> bool:
    """Return whether an operator type does what a node type describes.

    For example, FusedConv and QLinearConv do what Conv does.
    """
    node_words, operator_words = (
        {TYPE_SYNONYMS.get(word, word) for word in TYPE_WORDS.findall(type)} for type in (node_type, operator_type)
    )
    return node_type == operator_type or (bool(node_words) and node_words - {"Integer"} <= operator_words)
