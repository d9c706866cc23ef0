"""Select an operator call that can run alone from the view `calls` of a profile."""

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

MAX_MODELS, MAX_MODEL_BYTES = 16, 1 << 29  # number of models that are read, and bytes of one model
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
    """Return the call of an operator by its number. Calls are sorted by time, longest first.

    Args:
        answer: Answer of the view for that operator.
        operator: Name of the operator.
        number: Number of the call, from 0.
        nodes: Nodes of the ONNX model that ran; empty if the model is unknown.

    Raises:
        NotFound: There is no such call.
        MissingData: The call cannot run alone; the message says why.
    """
    columns = answer.columns
    if not 0 <= number < len(columns.name):
        count = len(columns.name)
        hint = (
            msg("server.differ_0", f"it has {count} that differ, from 0")
            if count
            else msg("server.view_calls_lists_operators", "the view calls lists the operators")
        )
        raise NotFound(msg("server.profile_no_call", f"the profile has no call {number} of {operator[:100]!r}"), hint)
    row = {name: str(getattr(columns, name)[number] or "") for name in ("name", "node", *TEXTS)}
    recorded: dict[str, object] = {name: _int_or_none(getattr(columns, name)[number]) for name in RECORDED_KEYS}
    recorded["device"] = answer.device or ""
    framework = "torch" if answer.framework == "pytorch" else answer.framework
    module = importlib.import_module(f"visualprof.server.recorded.{framework}")
    try:
        return module.recorded_call(row, recorded, nodes.get((row["node"], row["name"])))
    except ValueError as error:
        raise MissingData(str(error), HINT) from None


def match_nodes(answer: CallsAnswer, files: Iterable[Path]) -> Nodes:
    """Return the nodes of the ONNX model that contains most of the operators that ran; empty if no file contains any.

    Unreadable and too large files count as empty. The search stops at the first model with all operators. Cost: a model
    is read once per version.
    """
    if answer.framework != "onnxruntime":
        return {}
    ran = {*zip(answer.columns.node, answer.columns.name, strict=True)}
    best: Nodes = {}
    for file in islice(files, MAX_MODELS):
        with suppress(VisualprofError, OSError):
            state = file.stat()
            candidate = best if state.st_size > MAX_MODEL_BYTES else _read_nodes(file, state.st_mtime_ns, state.st_size)
            best = max(best, candidate, key=lambda nodes: len(ran & nodes.keys()))
        if ran <= best.keys():
            break
    return best


@lru_cache(MAX_MODELS)
def _read_nodes(file: Path, _changed_ns: int, _size: int) -> Nodes:
    return read_nodes(Source(file))


def check_backend(framework: str) -> None:
    """Check that a backend runs calls of a framework.

    Raises:
        MissingData: No backend runs them.
    """
    if framework not in (backend.name for backend in all_backends()):
        raise MissingData(
            msg("server.no_backend_measures_operators", f"no backend measures operators of {TITLES[framework]}"),
            msg("server.run_script_where_installed", "run the script where it is installed"),
        )


def _int_or_none(value: float | None) -> int | None:
    """Return a whole number of ns or calls; `None` if unknown."""
    return None if value is None or math.isnan(value) else round(value)
