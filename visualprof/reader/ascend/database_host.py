"""The host in a database: calls of CANN, operators, queues and Python calls of torch, and ranges of the program."""

from __future__ import annotations

import numpy as np

from visualprof.reader.ascend import names
from visualprof.reader.ascend.database import Database
from visualprof.reader.sqlite_file import map_distinct
from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Rows

_OPERATOR, _QUEUE, _PYTHON, _MARK = 50001, 50002, 50003, 50004  # types in PYTORCH_API
_LEVELS = {5000: "Runtime", 5500: "Hccl", 10000: "Node", 15000: "Model", 20000: "AscendCL"}  # types in CANN_API


class HostTables:
    """Reads what threads did.

    Attributes:
        has_framework: Whether the database has operators of torch.
        operators: Names, starts, ends and rows of the operators.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        none = np.zeros(0, np.int64)
        self.has_framework = False
        self.operators: tuple[Rows, Ints, Ints, Ints] = (none, none, none, none)

    def read_calls(self) -> int:
        """Read calls of CANN. Return the number of a process, 0 if unknown."""
        calls = self._db.tables.integers("CANN_API", *("startNs", "endNs", "type", "globalTid", "connectionId", "name"))
        types = self._db.tables.texts("ENUM_API_TYPE", "id", "name")
        prefix = {number: _level(types.get(number, ""), number) for number in {*types, *_LEVELS}}
        keys = (calls["type"] << 40) + calls["name"]

        def name(key: int) -> str:
            level = prefix.get(key >> 40, "")
            text = self._db.text(key & (1 << 40) - 1)
            return f"{level}@{text}" if level else text

        name_ids = self._db.writer.texts(keys, name)
        category = map_distinct(keys, lambda key: names.call_category(self._db.text(key & (1 << 40) - 1)))
        corr = np.maximum(calls["connectionId"], 0)
        self._db.add(calls, name_ids, category, self._db.threads(calls["globalTid"]), corr)
        return int(calls["globalTid"][0] >> 32) if len(calls["globalTid"]) else 0

    def read_operators(self) -> None:
        """Read operators, queues and Python calls of torch."""
        api = self._db.tables.integers(
            "PYTORCH_API",
            *("startNs", "endNs", "globalTid", "connectionId", "name", "sequenceNumber", "inputDtypes"),
            *("inputShapes", "callchainId", "type"),
        )
        if not len(api["startNs"]):
            return
        self.has_framework = True
        keys = (api["type"] << 40) + api["name"]
        category = map_distinct(keys, lambda key: _host_category(key >> 40, self._db.text(key & (1 << 40) - 1)))
        name_ids = self._db.writer.texts(api["name"], self._db.text)
        rows = self._db.add(api, name_ids, category, self._db.threads(api["globalTid"]))
        sequence = api["sequenceNumber"]
        self._db.builder.arg("sequence", rows[sequence >= 0], sequence[sequence >= 0])
        self._add_inputs(rows, api)
        self._add_stacks(rows, api["callchainId"])
        self._add_host_links(rows, api)
        self._add_steps(api, category)
        is_operator = api["type"] == _OPERATOR
        begin, end = api["startNs"][is_operator], api["endNs"][is_operator]
        self.operators = name_ids[is_operator], begin, end, rows[is_operator]

    def _add_inputs(self, rows: Ints, api: dict[str, Ints]) -> None:
        """Add shapes and types of inputs. Older versions of torch_npu swapped the columns; shapes have no letters."""
        shapes, types = api["inputShapes"], api["inputDtypes"]
        sample = np.unique(shapes[shapes >= 0])[:1000].tolist()
        if any(any(character.isalpha() for character in self._db.text(number)) for number in sample):
            shapes, types = types, shapes
        for name, values, convert in (
            ("input_shapes", shapes, names.torch_shapes),
            ("input_types", types, names.torch_types),
        ):
            ids = self._db.writer.texts(values, lambda number, convert=convert: convert(self._db.text(number)))
            self._db.builder.arg(name, rows[ids > 0], ids[ids > 0], text=True)

    def _add_stacks(self, rows: Ints, chains: Ints) -> None:
        """Add call stacks, the innermost call first."""
        columns = self._db.tables.integers("PYTORCH_CALLCHAINS", "id", "stack", "stackDepth")
        order = np.lexsort((columns["stackDepth"], columns["id"]))
        chain, frame = columns["id"][order], columns["stack"][order]
        wanted, index = np.unique(chains, return_inverse=True)
        first, last = np.searchsorted(chain, wanted), np.searchsorted(chain, wanted, side="right")
        frames: list[int] = frame.tolist()
        bounds: list[tuple[int, int]] = list(zip(first.tolist(), last.tolist(), strict=True))
        stacks = self._db.builder.strings(";".join(map(self._db.text, frames[a:b])) for a, b in bounds)
        ids = np.where(wanted >= 0, stacks, 0)[index]
        self._db.builder.arg("call_stack", rows[ids > 0], ids[ids > 0], text=True)

    def _add_host_links(self, rows: Ints, api: dict[str, Ints]) -> None:
        """Link queued work to its execution, and forward to backward operators.

        Both ends of such a pair share a number in CONNECTION_IDS.
        """
        pairs = self._db.tables.integers("CONNECTION_IDS", "id", "connectionId")
        connection = api["connectionId"]
        order = np.argsort(connection, kind="stable")
        at = np.minimum(np.searchsorted(connection[order], pairs["id"]), len(connection) - 1)
        event = order[at]
        is_paired = (connection[event] == pairs["id"]) & (pairs["id"] >= 0)
        number, event = pairs["connectionId"][is_paired], event[is_paired]
        order = np.lexsort((api["startNs"][event], number))
        number, event = number[order], event[order]
        first = np.flatnonzero(number[1:] == number[:-1])
        src, dst = event[first], event[first + 1]
        for kind, link in ((_QUEUE, LinkKind.ASYNC), (_OPERATOR, LinkKind.FWDBWD)):
            is_kind = (api["type"][src] == kind) & (api["type"][dst] == kind)
            self._db.builder.link(rows[src[is_kind]], rows[dst[is_kind]], link)

    def _add_steps(self, api: dict[str, Ints], category: Ids) -> None:
        """Add the steps that the profiler's schedule marks."""
        steps = np.flatnonzero(category == Category.STEP)
        for i in steps[np.argsort(api["startNs"][steps], kind="stable")].tolist():
            label = self._db.text(int(api["name"][i])).partition("#")[2]
            begin, end = int(api["startNs"][i]), int(api["endNs"][i])
            self._db.builder.step(label, begin, end - begin, self._db.thread(int(api["globalTid"][i])))

    def read_ranges(self) -> None:
        """Read ranges and marks of the program (mstx)."""
        events = self._db.tables.integers("MSTX_EVENTS", "startNs", "endNs", "message", "globalTid")
        self._db.add(
            events,
            self._db.writer.texts(events["message"], self._db.text),
            np.full(len(events["startNs"]), Category.ANNOTATION),
            self._db.threads(events["globalTid"]),
        )


def _level(text: str, number: int) -> str:
    """Return the prefix of calls of a level, as the text form writes it."""
    by_name = {"runtime": "Runtime", "hccl": "Hccl", "communication": "Communication", "node": "Node"}
    return (by_name | {"model": "Model", "acl": "AscendCL"}).get(text, _LEVELS.get(number, ""))


def _host_category(kind: int, name: str) -> Category:
    if kind == _OPERATOR:
        return names.host_category(name)
    if kind == _PYTHON:
        return names.python_category(name)
    return {_QUEUE: Category.OP_PART, _MARK: Category.ANNOTATION}.get(kind, Category.OTHER)
