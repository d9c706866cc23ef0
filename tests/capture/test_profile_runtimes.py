"""Recordings of ONNX Runtime and OpenVINO, made here and read back."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES, ROOT
from visualprof.capture import SYNC, CaptureError, CaptureWarning, profile
from visualprof.reader import Trace, read_trace
from visualprof.reader.trace import Category

pytestmark = pytest.mark.slow
FLOW = FIXTURES / "onnxruntime" / "flow.onnx"
NUMPY = {"tensor(float)": "float32", "tensor(bool)": "bool", "tensor(int64)": "int64"}


def recorded(folder: Path, run: Any, **options: Any) -> Path:
    """Three of eight runs."""
    with profile(folder, steps=3, warmup=2, monitor=False, **options) as p:
        for _ in range(8):
            run()
            p.step()
    (path,) = p.files()
    return path


def step_names(trace: Trace) -> list[str]:
    return [trace.strings[n] for n in trace.steps.name]


class TestOnnxRuntime:
    ort: Any = pytest.importorskip("onnxruntime")

    def session(self) -> tuple[Any, dict[str, Any]]:
        session = self.ort.InferenceSession(str(FLOW), providers=["CPUExecutionProvider"])
        shapes = {
            i.name: ([d if isinstance(d, int) else 2 for d in i.shape], NUMPY[i.type]) for i in session.get_inputs()
        }
        return session, {name: np.ones(*shape) for name, shape in shapes.items()}

    def test_a_session_is_recorded_and_left_unchanged(self, tmp_path: Path) -> None:
        session, feeds = self.session()
        attributes, before = dict(vars(session)), session.run(None, feeds)
        path = recorded(tmp_path, lambda: session.run(None, feeds), model=session)
        trace = read_trace(path)
        assert step_names(trace) == ["0", "1", "2"]
        assert vars(session) == attributes
        assert session._sess_options.enable_profiling is False
        assert all(np.array_equal(a, b) for a, b in zip(before, session.run(None, feeds), strict=True))

    def test_times_equal_those_of_the_runtime_with_dates(self, tmp_path: Path) -> None:
        session, feeds = self.session()
        path = recorded(tmp_path, lambda: session.run(None, feeds), model=session)
        trace = read_trace(path)
        document = json.loads(gzip.decompress(path.read_bytes()))
        kernel_ns = [e["dur"] * 1000 for e in document["traceEvents"] if e["name"].endswith("_kernel_time")]
        ops = trace.events.category == Category.OP
        assert (ops.sum(), trace.events.dur[ops].sum()) == (len(kernel_ns), sum(kernel_ns))
        assert abs(trace.meta.clock_origin_ns - time.time_ns()) < 60e9
        assert document["visualprof"]["topics"] == ["OPERATOR", "MEMORY"]

    def test_a_binding_continues_and_is_reported(self, tmp_path: Path) -> None:
        session, feeds = self.session()
        bound = session.io_binding()
        for name, values in feeds.items():
            bound.bind_cpu_input(name, values)
        for output in session.get_outputs():
            bound.bind_output(output.name)
        with pytest.warns(CaptureWarning, match="cannot record runs with an IOBinding"):
            recorded(tmp_path, lambda: session.run_with_iobinding(bound), model=session)
        session.run_with_iobinding(bound)

    def test_nodes_can_be_called_by_their_types(self, tmp_path: Path) -> None:
        session, feeds = self.session()
        path = recorded(tmp_path, lambda: session.run(None, feeds), model=session, show_operator_name=False)
        document = json.loads(gzip.decompress(path.read_bytes()))
        types = {e["args"]["op_name"] for e in document["traceEvents"] if e["name"].endswith("_kernel_time")}
        trace = read_trace(path)
        ops = trace.events.name[trace.events.category == Category.OP]
        assert {trace.strings[n] for n in ops} == types

    def test_with_several_sessions_one_must_be_named(self, tmp_path: Path) -> None:
        sessions = [self.session()[0] for _ in range(2)]
        with pytest.raises(CaptureError, match=r"records one session of ONNX Runtime, and there are [2-9]"):
            profile(tmp_path, framework="onnxruntime").__enter__()
        assert len(sessions) == 2

    def test_unsupported_topics_give_a_warning(self, tmp_path: Path) -> None:
        session, feeds = self.session()
        with pytest.warns(CaptureWarning, match="onnxruntime cannot record SYNC, Python stacks"):
            recorded(tmp_path, lambda: session.run(None, feeds), model=session, topics=SYNC, stacks=True)


class TestOpenVino:
    ov: Any = pytest.importorskip("openvino")

    def model(self) -> Any:
        ops: Any = pytest.importorskip("openvino.opset13")
        x = ops.parameter([1, 3, 16, 16], np.float32, name="x")
        ones = ops.constant(np.ones((4, 3, 3, 3), "float32"))
        return self.ov.Model([ops.convolution(x, ones, [1, 1], [0, 0], [0, 0], [1, 1])], [x], "m")

    def test_a_model_that_is_compiled_inside_is_recorded(self, tmp_path: Path) -> None:
        core, feeds = self.ov.Core(), [np.ones((1, 3, 16, 16), "float32")]
        methods = self.ov.Core.compile_model, self.ov.InferRequest.infer, self.ov.InferRequest.wait
        last: Any = None
        with profile(tmp_path, framework="openvino", steps=3, warmup=2, monitor=False) as p:
            compiled = core.compile_model(self.model(), "CPU")
            request = compiled.create_infer_request()
            for i in range(8):
                request.infer(feeds)
                last = sum(r.real_time.total_seconds() for r in request.profiling_info) if i == 4 else last
                p.step()
        (path,) = p.files()
        trace = read_trace(path)
        assert step_names(trace) == ["0", "1", "2"]
        ops = trace.events.category == Category.OP
        third = trace.events.ts >= trace.steps.ts[2]
        assert trace.events.dur[ops & third].sum() == round(last * 1e9)
        assert methods == (self.ov.Core.compile_model, self.ov.InferRequest.infer, self.ov.InferRequest.wait)

    def test_runs_that_are_waited_for_are_recorded(self, tmp_path: Path) -> None:
        compiled = self.ov.Core().compile_model(self.model(), "CPU", {"PERF_COUNT": True})
        request = compiled.create_infer_request()

        def run() -> None:
            request.start_async([np.ones((1, 3, 16, 16), "float32")])
            request.wait()

        assert step_names(read_trace(recorded(tmp_path, run, model=compiled))) == ["0", "1", "2"]

    def test_operators_can_be_called_by_their_types(self, tmp_path: Path) -> None:
        compiled = self.ov.Core().compile_model(self.model(), "CPU", {"PERF_COUNT": True})
        run = lambda: compiled([np.ones((1, 3, 16, 16), "float32")])  # noqa: E731
        trace = read_trace(recorded(tmp_path, run, model=compiled, show_operator_name=False))
        assert "Convolution" in {trace.strings[n] for n in trace.events.name}

    def test_a_model_without_counters_is_an_error(self, tmp_path: Path) -> None:
        compiled = self.ov.Core().compile_model(self.model(), "CPU")
        with pytest.raises(CaptureError, match="compiled without performance counters"):
            profile(tmp_path, model=compiled).__enter__()

    def test_a_recording_without_such_a_run_is_a_warning(self, tmp_path: Path) -> None:
        compiled = self.ov.Core().compile_model(self.model(), "CPU")
        with profile(tmp_path, framework="openvino", warmup=0, monitor=False) as p:
            compiled([np.ones((1, 3, 16, 16), "float32")])
        with pytest.warns(CaptureWarning, match="no model ran that was compiled with PERF_COUNT"):
            assert p.files() == []

    def test_counters_cost_nothing_unless_they_are_recorded(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")
        program = """
import sys, numpy, openvino, openvino.opset13 as ops
from visualprof import capture
x = ops.parameter([1, 3], numpy.float32, name="x")
model = openvino.Model([ops.relu(x)], [x], "m")
counts = lambda: print(openvino.Core().compile_model(model, "CPU").get_property("PERF_COUNT"))
capture.listen(sys.argv[1])
counts()
import torch
counts()
capture.listen(sys.argv[1], framework="openvino")
counts()
"""
        command = [sys.executable, "-c", program, str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
        assert [word.upper() in ("YES", "TRUE") for word in done.stdout.split()] == [True, False, True]
