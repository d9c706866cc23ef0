"""LiteRT (formerly TensorFlow Lite): `.tflite` on the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.backends import (
    Backend,
    Feeds,
    FileFormat,
    Session,
    check_inputs,
    count_operators,
    resolve_options,
)
from visualprof.remote.protocol import Spec, TaskFailure

OPTIONS = {"delegate": ("xnnpack", "none")}
DELEGATE = "DELEGATE"
RESOLVERS = {"xnnpack": "AUTO", "none": "BUILTIN_WITHOUT_DEFAULT_DELEGATES"}


class LiteRtSession(Session):
    """An interpreter for one thread."""

    def __init__(self, path: Path, spec: Spec) -> None:
        self._path, self._spec = path, spec
        self._options = resolve_options(spec, OPTIONS)
        module: Any = importlib.import_module("ai_edge_litert.interpreter")
        self._interpreter = module.Interpreter(
            model_path=str(path),
            num_threads=spec.threads or None,
            experimental_op_resolver_type=getattr(module.OpResolverType, RESOLVERS[self._options["delegate"]]),
        )
        self.inputs, self._outputs = self._ends()

    def _ends(self) -> tuple[dict[str, dict[str, Any]], list[int]]:
        """Return inputs by name and numbers of outputs, from the only signature or else from the graph."""
        if len(self._interpreter.get_signature_list()) == 1:
            signature = self._interpreter.get_signature_runner()
            outputs = signature.get_output_details()
            return signature.get_input_details(), [outputs[name]["index"] for name in sorted(outputs)]
        inputs: list[dict[str, Any]] = self._interpreter.get_input_details()
        return {one["name"]: one for one in inputs}, [one["index"] for one in self._interpreter.get_output_details()]

    def prepare(self, feeds: Feeds) -> Any:
        """Plan memory for these sizes and copy the inputs."""
        for name, values in feeds.items():
            if values.dtype != self.inputs[name]["dtype"]:
                wanted = self.inputs[name]["dtype"].__name__
                raise TaskFailure(
                    "input_error",
                    msg(
                        "backends.input_model_wants_not",
                        f"input '{name}': the model wants {wanted}, not {values.dtype}",
                    ),
                )
            self._interpreter.resize_tensor_input(self.inputs[name]["index"], values.shape)
        self._interpreter.allocate_tensors()
        for name, values in feeds.items():
            self._interpreter.set_tensor(self.inputs[name]["index"], values)
        return None

    def infer(self, prepared: Any) -> Any:
        """Run once."""
        self._interpreter.invoke()

    def fetch(self, outputs: Any) -> list[Any]:
        """Return copies of the outputs, sorted by name."""
        return [self._interpreter.get_tensor(number) for number in self._outputs]

    def effective(self) -> dict[str, str]:
        """Return precision, threads and options. A delegate runs the operators that it supports."""
        return {
            "precision": msg("backends.model", "as the model"),
            "threads": str(self._spec.threads or 1),
            **self._options,
        }

    def operator_placement(self) -> dict[str, dict[str, int]]:
        """Return the operators of the first graph by the delegate or LiteRT's own kernels."""
        nodes: list[dict[str, Any]] = self._interpreter._get_ops_details()  # noqa: SLF001 - no public function reports it
        own = {int(tensor): node for node in nodes if node["op_name"] != DELEGATE for tensor in node["outputs"]}
        taken: set[int] = set()
        for node in nodes:
            ends = [int(tensor) for tensor in node["outputs"]] if node["op_name"] == DELEGATE else []
            while ends:  # it replaced the operators between its outputs and inputs
                made = own.get(ends.pop())
                if made is not None and made["index"] not in taken:
                    taken.add(made["index"])
                    ends += {int(tensor) for tensor in made["inputs"]} - {int(tensor) for tensor in node["inputs"]}
        return count_operators(
            ("XNNPACK" if node["index"] in taken else "LiteRT", node["op_name"])
            for node in nodes
            if node["op_name"] != DELEGATE
        )

    def concurrent_sessions(self, count: int) -> Sequence[Session]:
        """Return one interpreter per session."""
        return [LiteRtSession(self._path, self._spec) for _ in range(count)]


def devices() -> list[str]:
    """Return the CPU, the only device."""
    return ["cpu"]


def load(path: Path, spec: Spec, feeds: Feeds) -> Session:
    """Read the model. Memory is planned when sizes are known."""
    session = LiteRtSession(path, spec)
    check_inputs(feeds, session.inputs)
    return session


BACKEND = Backend(
    name="litert",
    package="ai-edge-litert",
    module="ai_edge_litert",
    files=(
        FileFormat(
            "tflite",
            msg("backends.litert_tflite", "LiteRT .tflite"),
            (".tflite",),
            leading_batch=True,
            sweep_hint=msg(
                "backends.convert_model_open_first", "convert it from a model with an open first dimension to sweep it"
            ),
        ),
    ),
    devices=devices,
    load=load,
    precisions=("f32",),
    options=OPTIONS,
)
