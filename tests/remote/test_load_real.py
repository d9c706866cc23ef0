"""Loads on real runtimes, short ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.remote.child_runs import QUICK, TINY_INPUTS, Job, tiny_onnx
from tests.remote.test_backend_torch import IMAGE, SCRIPT
from visualprof.remote.backends import Session
from visualprof.remote.child.load import StreamLoop, ThreadScheduler
from visualprof.remote.protocol import Load, Mlperf, Spec, Sweep

pytestmark = pytest.mark.slow
BACKENDS = ("onnxruntime", "openvino")


def job(folder: Path, backend: str, load: Load, seconds: float = 0.2) -> Job:
    load_job = Job(folder, tiny_onnx(folder / "model.onnx"), TINY_INPUTS, backend, sweep=Sweep("batch", [2]))
    load_job.measure = replace(QUICK, min_s=seconds, max_s=5.0, min_n=20, load=load)
    return load_job


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
def test_lanes_run_at_once(tmp_path: Path, backend: str) -> None:
    ran = job(tmp_path, backend, Load([1, 2])).run()
    assert ran.status == 0, ran.stderr
    (point,) = ran.points
    steps, step = point["load"]["steps"], point["load"]["step"]
    assert [row["concurrency"] for row in steps] == [1, 2]
    assert all(row["n"] >= 20 and row["p50_ns"] > 0 for row in steps)
    assert step == max(steps, key=lambda step: step["achieved_per_s"])
    assert (point["qps"], point["n"]) == (pytest.approx(step["achieved_per_s"]), step["n"])
    assert len(ran.samples(point)) == point["n"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_arrive_at_a_rate(tmp_path: Path, backend: str) -> None:
    """200 a second for 2 s: 400, give or take 3 * 20; far from what the model can do, so none waits for long."""
    ran = job(tmp_path, backend, Load([2], [200.0], 99.0, 2000.0), 2.0).run()
    assert ran.status == 0, ran.stderr
    (point,) = ran.points
    load, step = point["load"], point["load"]["step"]
    assert (load["scenario"], step["offered_per_s"], load["limit_ns"]) == ("poisson", 200.0, 2_000_000_000)
    assert abs(point["n"] + step["unserved"] - 400) < 60
    assert point["qps"] == pytest.approx(200.0, rel=0.2)
    assert load["verdict"] in ("PASS", "INCONCLUSIVE"), "399 are too few to be sure of p99, whatever they took"


def test_a_rate_is_found_that_keeps_a_limit(tmp_path: Path) -> None:
    ran = job(tmp_path, "onnxruntime", Load([1], [], 90.0, 1000.0), 0.1).run()
    assert ran.status == 0, ran.stderr
    load = ran.points[0]["load"]
    assert (load["scenario"], load["verdict"]) == ("search", "PASS")
    assert load["step"]["tail_bound_ns"] <= 1_000_000_000
    assert load["step"]["offered_per_s"] < load["steps"][0]["achieved_per_s"], "no more than the closed loop does"


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["SingleStream", "MultiStream", "Offline"])
def test_scenarios_of_mlperf(tmp_path: Path, scenario: Mlperf) -> None:
    ran = job(tmp_path, "openvino", Load(mlperf=scenario)).run()
    assert ran.status == 0, ran.stderr
    (point,) = ran.points
    queries = 4 if scenario == "MultiStream" else 1
    assert point["load"]["scenario"] == scenario
    assert point["samples_per_s"] == pytest.approx(2 * queries * point["qps"])


@pytest.mark.long
def test_openvino_takes_a_hint_and_streams(tmp_path: Path) -> None:
    wide = job(tmp_path, "openvino", Load([4]))
    wide.spec = {"options": {"hint": "throughput", "streams": "2"}}
    ran = wide.run()
    assert ran.status == 0, ran.stderr
    effective = ran.told("effective")[0]["effective"]
    assert (effective["hint"], effective["streams"]) == ("THROUGHPUT", "2")
    wide.spec = {"options": {"hint": "throughput", "streams": "many"}}
    assert wide.run().failed["error"] == "spec 's': option streams is 'many'"


@pytest.mark.long
def test_onnxruntime_runs_branches_at_once(tmp_path: Path) -> None:
    parallel = job(tmp_path, "onnxruntime", Load([2]))
    parallel.spec = {"options": {"execution": "parallel", "inter_op_threads": "2"}}
    effective = parallel.run().told("effective")[0]["effective"]
    assert (effective["execution"], effective["inter_op_threads"]) == ("parallel", "2")
    parallel.spec = {"options": {"inter_op_threads": "2"}}
    assert "of parallel execution" in parallel.run().failed["error"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_keeps_its_modes_in_each_lane() -> None:
    pytest.importorskip("torch")
    from visualprof.remote.backends.torch import load

    session = load(SCRIPT, Spec("s", "torch", precision="bf16"), {})
    (image,) = IMAGE
    feeds = {image.name: np.zeros([size if isinstance(size, int) else 1 for size in image.dims], np.float32)}
    seen: list[tuple[bool, str]] = []

    def lane(one: Session) -> StreamLoop:
        def run(meet: Callable[[], Any]) -> None:
            prepared = one.prepare(feeds)
            meet()
            outputs = one.infer(prepared)
            seen.append((outputs.is_inference(), str(outputs.dtype)))
            one.close()

        return run

    ThreadScheduler().run_concurrently(list(map(lane, session.concurrent_sessions(3))), lambda: None)
    session.close()
    assert seen == [(True, "torch.bfloat16")] * 3


def test_a_lane_on_cuda_waits_for_its_own_stream_alone() -> None:
    """CUDA is played: which stream is current, and what was waited for."""
    from visualprof.remote.backends.torch import ConcurrentTorchSession

    current, waited = ["default"], list[str]()

    class Cuda:
        made = 0

        def Stream(self, device: str) -> Any:
            Cuda.made += 1
            name = f"{device} stream {Cuda.made}"
            return SimpleNamespace(name=name, synchronize=lambda: waited.append(name))

        @contextmanager
        def stream(self, stream: Any) -> Iterator[None]:
            current.append(stream.name)
            yield
            current.pop()

    played = SimpleNamespace(
        device="cuda:0", modes=ExitStack, prepare=lambda feeds: feeds, call=lambda prepared: current[-1]
    )
    lane = ConcurrentTorchSession(played, Cuda())  # type: ignore[arg-type]
    assert lane.infer(lane.prepare({})) == "cuda:0 stream 1"
    assert waited == ["cuda:0 stream 1"]
    lane.close()
    assert current == ["default"]
