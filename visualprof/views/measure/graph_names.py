"""Which node of a model a runtime means by the name and the type of an operator that it ran."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from visualprof.reader.graph import ModelGraph, enclosing_nodes

NO_NODE, AMBIGUOUS, CONSTANT = -1, -2, -3  # instead of the row of a node; constants are not drawn
UNKNOWN = -2  # a holder: the trace does not say in the body of which node an operator ran
# What optimizers add to the name of a node, or to that of the value that a merged one makes.
ADDED = re.compile(r"(_nchwc|_token_\d+|_kernel_time|/\w+Fusion|/)$")
FUSED = re.compile(r"^(?:fused |FUSE_\w+\()([^,)]+)")
INLINED = re.compile(r"(?:_token_(\d+))?_(.+)")
MAX_MERGED_OPERATORS = 8  # operators in a row that an optimizer makes one of
WORDS = re.compile(r"MatMul|FullyConnected|[A-Z]+[a-z0-9]*")
SAME = {"Gemm": "MatMul", "FullyConnected": "MatMul", "Convolution": "Conv"}


class NodeNames:
    """Nodes by what runtimes call them.

    Bodies repeat names: the node in whose body an operator ran tells which is meant, then its type, then what else ran
    in which body. What is several nonetheless is ambiguous.

    Args: ran: all names of operators that ran.
    """

    def __init__(self, model: ModelGraph, ran: Iterable[str]) -> None:
        self._nodes = model.nodes
        self._own: dict[str, list[int]] = {}
        self._values: dict[str, list[int]] = {}
        self._given: dict[str, list[int]] = {}  # inputs and constants, which MegEngine runs as operators
        self._maker: dict[int, int] = {}
        self._calls: dict[str, list[int]] = {}
        self._ran: set[tuple[object, ...]] = set()
        self._around = enclosing_nodes(model.nodes)
        self._running: list[int] = []  # the holder that runs as an operator; calls of functions are inlined
        for row, (node, holder) in enumerate(zip(model.nodes, self._around, strict=True)):
            self._running.append(self._running[holder] if self._is_call(holder) else holder)
            if node.kind == "operator":
                self._own.setdefault(node.name, []).append(row)
                self._maker.update((value, row) for value in node.outputs)  # in a call, what makes it inside
                if self._is_call(row):
                    self._calls.setdefault(node.type, []).append(row)
            elif node.kind != "output":
                self._given.setdefault(node.name, []).append(row)
        for value, row in self._maker.items():
            self._values.setdefault(model.values[value].name, []).append(row)
        self._order = self._numbers(ran)

    def running_holder(self, row: int) -> int:
        """The node in whose body runs what runs during a node: itself, else the one around it; -1 for none."""
        return row if self._nodes[row].body and not self._is_call(row) else self._running[row]

    def find(self, holder: int, name: str, type: str) -> int:
        """Row of the node of a name that ran in the body of a node (-1 in none); NO_NODE, AMBIGUOUS, CONSTANT."""
        rows = self._narrowed(holder, name, type)
        if rows and all(self._nodes[row].kind == "constant" for row in rows):
            return CONSTANT
        if len(rows) == 1:
            self._ran.add(self._body(rows[0]))
        return rows[0] if len(rows) == 1 else AMBIGUOUS if rows else NO_NODE

    def find_executed(self, holder: int, name: str, type: str) -> int:
        """The same once all were asked for: of several, the one in a body of which something ran, if it is alone."""
        rows = [row for row in self._narrowed(holder, name, type) if self._body(row) in self._ran]
        return rows[0] if len(rows) == 1 else AMBIGUOUS

    def _narrowed(self, holder: int, name: str, type: str) -> list[int]:
        rows = self._rows_of(name)
        if len(rows) > 1:
            rows = [row for row in rows if holder in (UNKNOWN, self._running[row])] or rows
        if len(rows) > 1:
            rows = [row for row in rows if is_related_type(self._nodes[row].type, type)] or rows
        return rows

    def pick_by_type(self, rows: Sequence[int], type: str) -> int:
        """Of nodes that were merged the first that does what a type says, else the first, or none."""
        nodes = [row for row in rows if row >= 0] or [min(rows, default=NO_NODE)]
        return next((row for row in nodes if row >= 0 and is_related_type(self._nodes[row].type, type)), nodes[0])

    def merged_operator(self, row: int, type: str, named: set[int]) -> int:
        """The operator of that type among those that an optimizer merged into one called after its last; else that one.

        Args: named: rows of nodes that other operators are called after; they are no part of it.
        """
        ahead, seen = [row], {row}
        if not WORDS.search(type) or is_related_type(self._nodes[row].type, type):
            return row
        for _ in range(MAX_MERGED_OPERATORS):
            makers = [self._maker[v] for at in ahead for v in self._nodes[at].inputs if v in self._maker]
            ahead = [m for m in dict.fromkeys(makers) if m not in seen | named and not self._nodes[m].body]
            seen.update(ahead)
            match = next((m for m in ahead if is_related_type(self._nodes[m].type, type)), None)
            if match is not None:
                return match
        return row

    def _is_call(self, row: int) -> bool:
        body = self._nodes[row].body if row >= 0 else None
        return body is not None and body.kind == "function"

    def _body(self, row: int) -> tuple[object, ...]:
        """The body in which a node stands."""
        scope = self._nodes[row].scope
        size = next((i for i in range(len(scope), 0, -1) if scope[i - 1].kind in ("control", "subgraph")), 0)
        return scope[:size]

    def _rows_of(self, name: str) -> list[int]:
        for form in _forms(name):
            rows = self._own.get(form) or self._values.get(form) or self._inlined(form)
            if rows:
                return rows
        fused = FUSED.match(name)
        return self._own.get(fused[1], []) if fused else self._given.get(name, [])

    def _inlined(self, name: str) -> list[int]:
        """ONNX Runtime calls the nodes of the first call `_inlfunc_F_name`, of later ones `_inlfunc_F_token_7_name`."""
        for function, token, inner in self._parts(name):
            rows = [row for row in self._own.get(inner, ()) if self._nodes[self._around[row]].type == function]
            order = self._order.get(function, {})
            calls = self._calls[function]
            if len(order) == len(calls) == len(rows) and all(self._around[call] < 0 for call in calls):
                return [rows[order[token]]] if token in order else rows
            if rows:
                return rows
        return []

    def _parts(self, name: str) -> Iterator[tuple[str, int, str]]:
        for function in self._calls if name.startswith("_inlfunc_") else ():
            match = INLINED.fullmatch(name.removeprefix(f"_inlfunc_{function}"))
            if match:
                yield function, int(match[1] or -1), match[2]

    def _numbers(self, ran: Iterable[str]) -> dict[str, dict[int, int]]:
        """Number of the call by token, by function: tokens rise from call to call."""
        tokens: dict[str, set[int]] = {}
        for name in ran:
            for function, token, _ in self._parts(name):
                tokens.setdefault(function, set()).add(token)
        return {function: {token: i for i, token in enumerate(sorted(all))} for function, all in tokens.items()}


def _forms(name: str) -> Iterator[str]:
    """A name as it is, then without what was added to it, piece by piece."""
    form = name
    while True:
        yield form
        shorter = ADDED.sub("", form)
        if shorter == form:
            break
        form = shorter
    yield name.strip("/")


@lru_cache(maxsize=4096)
def is_related_type(node: str, ran: str) -> bool:
    """Whether an operator of type `ran` does what a node of type `node` says: FusedConv, QLinearConv a Conv's."""
    asked, given = ({SAME.get(word, word) for word in WORDS.findall(type)} for type in (node, ran))
    return node == ran or (bool(asked) and asked - {"Integer"} <= given)
