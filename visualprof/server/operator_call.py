"""A call of an operator that can be run alone, of what the view `calls` shows of a profile."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path

from visualprof.errors import MissingData, NotFound, VisualprofError
from visualprof.messages import msg
from visualprof.reader.models.onnx_nodes import NodeKey, OnnxNode, read_nodes
from visualprof.reader.source import Source
from visualprof.remote.backends import all_backends
from visualprof.remote.operators import RECORDED_KEYS, TITLES, Call
from visualprof.views.calls import TEXTS, CallsAnswer

MAX_MODELS, MAX_MODEL_BYTES = 16, 1 << 29  # that are looked at, and bytes of one
HINT = msg("server.docs_replay_md_says", "docs/replay.md says what can be run alone")
WITHOUT = {
    "pytorch": msg("server.torch_profiler_writes_them", "torch.profiler writes them with record_shapes=True"),
    "paddle": msg(
        "server.paddle_2_6_3", "Paddle 2.6 and 3.3 write no shapes of operators, also with record_shapes=True"
    ),
}
OTHERS = msg(
    "server.pytorch_writes_them_record",
    "PyTorch writes them with record_shapes=True, ONNX Runtime and MegEngine always",
)

Nodes = Mapping[NodeKey, OnnxNode]


def select_call(answer: CallsAnswer, operator: str, number: int, nodes: Nodes) -> Call:
    """The call of that operator that is its `number`th, the longest first.

    Args: answer: of the view, for that operator. nodes: of the ONNX model that ran; none where it is not known.
    Raises: NotFound: there is none. MissingData: it cannot be run alone; the message says why.
    """
    columns = answer.columns
    if not 0 <= number < len(columns.name):
        count = len(columns.name)
        there = (
            msg("server.differ_0", f"it has {count} that differ, from 0")
            if count
            else msg("server.view_calls_lists_operators", "the view calls lists the operators")
        )
        raise NotFound(msg("server.profile_no_call", f"the profile has no call {number} of {operator[:100]!r}"), there)
    row = {name: str(getattr(columns, name)[number] or "") for name in ("name", "node", *TEXTS)}
    recorded: dict[str, object] = {name: _int_or_none(getattr(columns, name)[number]) for name in RECORDED_KEYS}
    recorded["device"] = answer.device or ""
    framework = "torch" if answer.framework == "pytorch" else answer.framework
    made = importlib.import_module(f"visualprof.server.recorded.{framework}")
    try:
        return made.recorded_call(row, recorded, nodes.get((row["node"], row["name"])))
    except ValueError as error:
        raise MissingData(str(error), HINT) from None


def match_nodes(answer: CallsAnswer, files: Iterable[Path]) -> Nodes:
    """Nodes of that ONNX model which has most of the operators that ran; none where no file has any.

    Files that cannot be read, or are too large to be read here, have none; behind one that has all operators no other
    is read. Cost: a model is read once a version.
    """
    if answer.framework != "onnxruntime":
        return {}
    ran = {*zip(answer.columns.node, answer.columns.name, strict=True)}
    best: Nodes = {}
    for file in islice(files, MAX_MODELS):
        with suppress(VisualprofError, OSError):
            state = file.stat()
            known = best if state.st_size > MAX_MODEL_BYTES else _read_nodes(file, state.st_mtime_ns, state.st_size)
            best = max(best, known, key=lambda nodes: len(ran & nodes.keys()))
        if ran <= best.keys():
            break
    return best


@lru_cache(MAX_MODELS)
def _read_nodes(file: Path, _changed_ns: int, _size: int) -> Nodes:
    return read_nodes(Source(file))


def check_backend(framework: str) -> None:
    """Raises: MissingData: no backend runs calls of that framework."""
    if framework not in (one.name for one in all_backends()):
        raise MissingData(
            msg("server.no_backend_measures_operators", f"no backend measures operators of {TITLES[framework]}"),
            msg("server.run_script_where_installed", "run the script where it is installed"),
        )


def _int_or_none(value: float | None) -> int | None:
    """A whole number of ns or calls; None where it is unknown."""
    return None if value is None or math.isnan(value) else round(value)
