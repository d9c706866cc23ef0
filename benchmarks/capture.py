"""What `capture.profile` costs: CPU time of recorded steps against plain ones, in turns, for each option.

    PYTHONPATH=. python -m benchmarks.capture torch|megengine|paddle|onnxruntime|openvino [--rounds 15] [--steps 20]

It needs the framework and nothing else, so it also runs in MegEngine's and Paddle's interpreters.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from visualprof import capture
from visualprof.capture import OPERATOR, SCOPE, CaptureWarning, Listener, Options, begin, listen, profile, watch
from visualprof.capture.topics import Topics

SIZES = (256, 512, 512, 256, 10)  # of the layers
TRAINING: dict[str, dict[str, Any]] = {
    "operators": {"memory": False, "shapes": False, "topics": OPERATOR},
    "shapes": {"memory": False},
    "memory": {"shapes": False},
    "shapes, memory (default)": {},
    "default, stacks": {"stacks": True},
}
SETS: dict[str, dict[str, dict[str, Any]]] = {
    "torch": TRAINING,
    "megengine": {
        "operators": {"memory": False, "topics": OPERATOR},
        "scopes": {"memory": False, "topics": OPERATOR | SCOPE},
        "memory": {"topics": Topics.ALL & ~SCOPE},
        "scopes, memory (default)": {},
        "default, stacks": {"stacks": True},
    },
    "paddle": TRAINING,
    "onnxruntime": {"default": {}},
    "openvino": {"default": {}},
}


def main() -> None:
    """Prints a table for docs/capture.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=sorted(SETS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    step, about, model = globals()[f"{args.framework}_step"]()
    for _ in range(20):
        step()
    print(f"{args.framework} {about}, Python {platform.python_version()}, {args.rounds} rounds of {args.steps} steps\n")
    print(f"inactive step(): {inactive_ns()} ns; plain step: {_plain(step, args.steps) * 1e3 / args.steps:.2f} ms")
    print("step() while it listens, watches: {} ns, {} ns\n".format(*map(listening_ns, (listen, watch))))
    print("| options | CPU time / plain [quartiles] | kB/step | begin, end ms | file after ms |")
    print("| --- | --- | --- | --- | --- |")
    for name, options in SETS[args.framework].items():
        print(_row(name, step, args, {"model": model, "monitor": False, **options}), flush=True)


def inactive_ns() -> int:
    """Return the cost of a step while nothing is recorded."""
    return _step_ns(profile("unused", wait=1 << 40).step)


def listening_ns(begin: Callable[..., Listener]) -> int:
    """Return the CPU time of a step while the process listens, and that of the listening thread."""
    folder = tempfile.mkdtemp()
    listener = begin(folder, monitor=False)
    try:
        return _step_ns(capture.step)
    finally:
        listener.stop()
        shutil.rmtree(folder)


def _step_ns(step: Callable[[], object], count: int = 200_000) -> int:
    """CPU time of a step, best of five."""
    took: list[int] = []
    for _ in range(5):
        start = time.process_time_ns()
        for _ in range(count):
            step()
        took.append((time.process_time_ns() - start) // count)
    return min(took)


def _plain(step: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        step()
    return time.process_time() - start


def _row(name: str, step: Callable[[], object], args: argparse.Namespace, options: dict[str, Any]) -> str:
    """A row of the table; plain and recorded steps take turns."""
    ratios: list[float] = []
    edges: list[tuple[float, float, float]] = []
    sizes: list[float] = []
    for _ in range(args.rounds):
        folder = Path(tempfile.mkdtemp())
        plain = _plain(step, args.steps)
        clock = [time.perf_counter()]
        recording = begin(Options(folder, steps=0 if args.framework != "megengine" else args.steps, **options))
        clock.append(time.perf_counter())
        start = time.process_time()
        for _ in range(args.steps - 1):
            step()
            recording.step()
        step()
        ratios.append((time.process_time() - start) / plain)
        clock.append(time.perf_counter())
        recording.stop()
        clock.append(time.perf_counter())
        path = recording.wait()
        assert path
        sizes.append(path.stat().st_size / 1e3 / args.steps)
        edges.append((clock[1] - clock[0], clock[3] - clock[2], time.perf_counter() - clock[3]))
        shutil.rmtree(folder)
    low, _, high = quantiles(ratios, n=4)
    begun, ended, written = (median(column) * 1e3 for column in zip(*edges, strict=True))
    return (
        f"| {name} | {median(ratios):.2f} [{low:.2f}, {high:.2f}] | {median(sizes):.0f} | {begun:.0f}, {ended:.0f} "
        f"| {written:.0f} |"
    )


def torch_step() -> tuple[Callable[[], object], str, Any]:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    layers = [m for a, b in pairwise(SIZES) for m in (torch.nn.Linear(a, b), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, 256)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step, torch.__version__, None


def megengine_step() -> tuple[Callable[[], object], str, Any]:
    mge: Any = importlib.import_module("megengine")
    numpy: Any = importlib.import_module("numpy")
    nn: Any = importlib.import_module("megengine.module")
    layers = [m for a, b in pairwise(SIZES) for m in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers)
    manager = importlib.import_module("megengine.autodiff").GradManager().attach(model.parameters())
    optimizer = importlib.import_module("megengine.optimizer").SGD(model.parameters(), lr=1e-3)
    x = mge.Tensor(numpy.ones((64, 256), "float32"))

    def step() -> None:
        with manager:
            loss = (model(x) ** 2).mean()
            manager.backward(loss)
        optimizer.step().clear_grad()
        loss.numpy()

    return step, mge.__version__, None


def paddle_step() -> tuple[Callable[[], object], str, Any]:
    paddle: Any = importlib.import_module("paddle")
    layers = [m for a, b in pairwise(SIZES) for m in (paddle.nn.Linear(a, b), paddle.nn.ReLU())]
    model = paddle.nn.Sequential(*layers)
    optimizer = paddle.optimizer.SGD(1e-3, parameters=model.parameters())
    x = paddle.ones([64, 256])

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.clear_grad()

    return step, paddle.__version__, None


def _onnx() -> bytes:
    """Twenty products with their activations."""
    onnx: Any = importlib.import_module("onnx")
    numpy: Any = importlib.import_module("numpy")
    make, value = onnx.helper, onnx.TensorProto.FLOAT
    names = [f"v{i}" for i in range(41)]
    nodes = [
        make.make_node(*(("MatMul", [names[i], "w"]) if i % 2 == 0 else ("Relu", [names[i]])), [names[i + 1]], f"n{i}")
        for i in range(40)
    ]
    weights = onnx.numpy_helper.from_array(numpy.full((128, 128), 0.01, "float32"), "w")
    ends = [make.make_tensor_value_info(name, value, [64, 128]) for name in (names[0], names[-1])]
    graph = make.make_graph(nodes, "chain", ends[:1], ends[1:], [weights])
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9).SerializeToString()


def onnxruntime_step() -> tuple[Callable[[], object], str, Any]:
    ort: Any = importlib.import_module("onnxruntime")
    numpy: Any = importlib.import_module("numpy")
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    session = ort.InferenceSession(_onnx(), settings, providers=["CPUExecutionProvider"])
    feeds = {"v0": numpy.ones((64, 128), "float32")}
    return lambda: session.run(None, feeds), ort.__version__, session


def openvino_step() -> tuple[Callable[[], object], str, Any]:
    openvino: Any = importlib.import_module("openvino")
    numpy: Any = importlib.import_module("numpy")
    core = openvino.Core()
    settings = {"PERF_COUNT": True, "INFERENCE_NUM_THREADS": 1}
    compiled = core.compile_model(core.read_model(_onnx()), "CPU", settings)
    feeds = [numpy.ones((64, 128), "float32")]
    return lambda: compiled(feeds), openvino.__version__, compiled


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore", CaptureWarning)
    main()
