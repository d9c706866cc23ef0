"""`visualprof submit` against a real server, whose agent really measures."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.conftest import FIXTURES, ROOT, ui_texts, until
from tests.remote.draft_sites import Known
from tests.server_settings import server_settings
from visualprof.cli import _fail_on, _request, _sending, _watch, main, submit
from visualprof.cli._server import Server as Client
from visualprof.cli._server import Unreachable
from visualprof.errors import BadParameter
from visualprof.remote.protocol import Capabilities, Runtime
from visualprof.remote.queue.draft.compose import compose
from visualprof.remote.queue.draft.forms import CheckedDraft, Draft
from visualprof.remote.queue.store.records import Agent
from visualprof.server.serve import Server

pytestmark = pytest.mark.slow

pytest.importorskip("onnxruntime")
START_S = 60
BLOB = "b" * 64


def answer(url: str, path: str) -> dict[str, Any]:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}api/v1/{path}", timeout=20) as got:
        return json.loads(got.read())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server with an agent of its own: its address and log directory."""
    runs = tmp_path_factory.mktemp("runs")
    asked = [sys.executable, "-m", "visualprof", "--logdir", str(runs), "--port", "0", "--with-agent"]
    server = subprocess.Popen(asked, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert server.stdout
        url = (
            server.stdout.readline().partition(" at ")[2].split()[0].partition("#")[0]
        )  # submit finds the token by itself
        until(lambda: any(a["online"] for a in answer(url, "agents")["agents"]), START_S)
        yield url, runs
    finally:
        server.terminate()  # it ends its agent, which is in a group of its own
        try:
            server.wait(30)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[str]:
    """A server without any agent."""
    (tmp_path / "runs").mkdir()
    with Server([tmp_path / "runs"], 0, server_settings()) as server:
        server.start()
        yield server.url


def model(path: Path, target: list[int] | None = None, width: int | str = 4) -> Path:
    """A Relu; with a target, its output is reshaped to that, which fails for other sizes."""
    tensor_value_info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])
    tensor = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes, weights = [helper.make_node("Relu", ["x"], ["r" if target else "y"])], []
    if target:
        nodes.append(helper.make_node("Reshape", ["r", "s"], ["y"]))
        weights.append(helper.make_tensor("s", TensorProto.INT64, [len(target)], target))
    graph = helper.make_graph(nodes, "net", [tensor_value_info], [tensor], weights)
    made_of = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(made_of.SerializeToString())
    return path


def command(url: str, *given: object) -> list[str]:
    return [sys.executable, "-m", "visualprof", "submit", "--server", url, *map(str, given)]


def run(url: str, *given: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command(url, *given), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


QUICK = ("--min-s", "0.1", "--max-s", "0.5", "--profile-runs", "0", "--backend", "onnxruntime")


def test_a_job_is_waited_for_and_shows_its_points(served: tuple[str, Path], tmp_path: Path) -> None:
    url, runs = served
    out = run(url, model(tmp_path / "net.onnx"), *QUICK, "--batch", "1:4", "--threads", "1", "--wait").stdout
    assert "1 spec, 3 points" in out
    assert "ort-1t: batch 4: " in out
    assert "ort-1t: succeeded" in out
    rows = [line.split() for line in out.splitlines() if line.startswith("ort-1t  ")]
    assert [row[1] for row in rows] == ["1", "2", "4", "local"], "the points, and where they were measured"
    (place,) = [line for line in out.splitlines() if "#/overview?run=" in line]
    assert (runs / place.partition("run=")[2].replace("%2F", "/") / "points.jsonl").is_file()


def test_jobs_that_run_are_canceled_by_id(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    long = ("--min-s", "60", "--max-s", "90", "--profile-runs", "0", "--backend", "onnxruntime")
    out = run(url, model(tmp_path / "long.onnx"), *long, "--threads", "1").stdout
    (job,) = {word.partition("job=")[2] for word in out.split() if "job=" in word}
    cancel = [sys.executable, "-m", "visualprof", "jobs", "--server", url, "cancel"]
    subprocess.run([*cancel, job], cwd=ROOT, check=True, timeout=60)
    until(lambda: answer(url, f"jobs/{job}")["job"]["state"] == "cancelled", 60)
    done = subprocess.run([*cancel, "nojob"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "nojob" in done.stderr) == (2, True)


def test_the_output_has_environment_configuration_and_warnings(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    arguments = ("--batch", "1,2", "--threads", "1", "--precision", "f32", "--wait")
    done = run(url, model(tmp_path / "net.onnx"), *QUICK, *arguments, "--json", "--fail-on", "qps<1e9|p99>1ns", code=4)
    job = json.loads(done.stdout)
    (result,) = job["results"]
    assert (result["spec"], result["device"], result["precision"]) == ("ort-f32-1t", "cpu", "as the model")
    assert result["agent"] == answer(url, "agents")["agents"][0]["name"]
    assert result["environment"]["cpu"]
    report = answer(url, f"evaluation/overlay?reports={result['report']}")
    assert result["verdicts"] == report["verdicts"]
    table = {name: report["table"][name] for name in ("batch", "qps", "p50_ns", "p99_ns", "stable", "host_busy")}
    assert table == {name: [point[name] for point in job["points"]] for name in table}
    assert job["fail_on"] == [f"ort-f32-1t, batch {batch}: {why}" for why in ("qps<1e9", "p99>1ns") for batch in (1, 2)]
    headings = " ".join(line for line in done.stderr.splitlines() if line.split()[:1] == ["spec"])
    for column in ("p50", "p99", "stable", "host busy", "agent", "device", "precision"):
        assert column in headings
    assert f"compare: {url}#/evaluation?reports={result['report']}\n" in done.stderr


def test_fail_on_accepts_results_within_the_limits(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    run(url, model(tmp_path / "net.onnx"), *QUICK, "--wait", "--fail-on", "p50 > 10s | qps < 0.001 | fallback_provider")


def measured(**more: Any) -> dict[str, Any]:
    """A finished job of one point: p99 of 6 ms, stable on a busy host."""
    point = {
        "spec": "s",
        "batch": 1,
        "stable": True,
        "host_busy": True,
        "throttled": None,
        "qps": 9.0,
        "p99_ns": 6_000_000,
    }
    return {
        "points": [{**point, **more}],
        "results": [{"spec": "s", "report": "m/s", "verdicts": [{"id": "n_too_small"}]}],
        "verdicts": [{"id": "precision_differs", "report": "m/s"}],
    }


@pytest.mark.parametrize(
    ("text", "more", "told"),
    [
        ("unstable|busy|throttled", {}, ["s, batch 1: busy"]),
        ("unstable", {"stable": False}, ["s, batch 1: unstable"]),
        ("p99>5ms", {}, ["s, batch 1: p99>5ms"]),
        ("p99 > 6ms", {}, []),
        ("p99>0.0059s|qps<10", {}, ["s, batch 1: p99>0.0059s", "s, batch 1: qps<10"]),
        ("p99>5ms", {"p99_ns": None}, ["s, batch 1: p99>5ms, of which nothing is known: too few runs"]),
        ("n_too_small|precision_changed|precision_differs", {}, ["s: n_too_small", "s: precision_differs"]),
        ("", {}, []),
    ],
)
def test_conditions_hold_or_not(text: str, more: dict[str, Any], told: list[str]) -> None:
    assert _fail_on.met(_fail_on.parse(text), measured(**more)) == told


@pytest.mark.parametrize(
    "text", ["slow", "p99>5", "p99>5h", "p99=5ms", "unstable>1", "qps<5ms", "busy||busy", "p99>-1ms"]
)
def test_an_invalid_condition_is_explained(text: str) -> None:
    with pytest.raises(BadParameter, match="is no condition") as refused:
        _fail_on.parse(text)
    assert "unstable" in refused.value.hint


def test_every_verdict_can_be_a_condition() -> None:
    assert set(ui_texts("en")["verdict"]) == {*_fail_on.VERDICTS, "unstable", "host_busy", "throttled", "sample"}


def test_fail_on_without_waiting_is_refused(lonely: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", str(tmp_path / "net.onnx"), "--server", lonely, "--fail-on", "busy"]) == 2
    assert "--fail-on needs --wait" in capsys.readouterr().err


def test_json_has_the_finished_job_and_nothing_else_on_stdout(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    done = run(url, model(tmp_path / "net.onnx"), *QUICK, "--batch", "2", "--name", "nightly", "--wait", "--json")
    job = json.loads(done.stdout)
    assert (job["job"]["state"], job["job"]["name"]) == ("succeeded", "nightly")
    assert [p["batch"] for p in job["points"]] == [2]
    assert "succeeded" in done.stderr


def exported(path: Path) -> Path:
    """As torch.onnx.export leaves it: weights of a Gemm in a file beside the model, 8 bytes into it."""
    weights = np.arange(16, dtype=np.float32)
    (path.parent / f"{path.name}.data").write_bytes(b"\0" * 8 + weights.tobytes())
    outside = helper.make_tensor("w", TensorProto.FLOAT, [4, 4], [0.0] * 16)
    outside.ClearField("float_data")
    outside.data_location = TensorProto.EXTERNAL
    for key, value in {"location": f"{path.name}.data", "offset": "8", "length": "64"}.items():
        outside.external_data.add(key=key, value=value)
    tensor, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "net", [tensor], [made], [outside])
    made_of = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(made_of.SerializeToString())
    return path


@pytest.mark.parametrize("how", ["model", "folder", "zip"])
def test_a_model_with_external_weights_is_measured(served: tuple[str, Path], tmp_path: Path, how: str) -> None:
    url, runs = served
    (tmp_path / "m").mkdir()
    path = exported(tmp_path / "m" / "net.onnx")
    data = path.with_name("net.onnx.data")
    if how == "zip":
        with zipfile.ZipFile(tmp_path / "net.zip", "w") as packed:
            for file in (data, path):
                packed.write(file, f"export/{file.name}")
            packed.writestr("export/README.md", "mine")
    given = {"model": path, "folder": path.parent, "zip": tmp_path / "net.zip"}[how]
    job = json.loads(run(url, given, *QUICK, "--batch", "1,2", "--wait", "--json").stdout)
    assert [p["batch"] for p in job["points"]] == [1, 2]
    assert [part["path"] for part in job["request"]["model"]["parts"]] == ["net.onnx.data"]
    folder = runs / job["job"]["tasks"][0]["run"]
    assert (folder / "net.onnx.data").read_bytes() == data.read_bytes()
    onnxruntime: Any = importlib.import_module("onnxruntime")
    session = onnxruntime.InferenceSession(folder / "net.onnx", providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.eye(4, dtype=np.float32)})[0].sum() == np.arange(16).sum()


@pytest.mark.parametrize("how", ["model", "folder", "zip"])
def test_a_saved_model_goes_with_its_variables(served: tuple[str, Path], tmp_path: Path, how: str) -> None:
    url, _ = served
    folder = tmp_path / "saved"
    (folder / "variables").mkdir(parents=True)
    model = folder / "saved_model.pb"
    model.write_bytes((FIXTURES / "models" / "tensorflow_saved_model.pb").read_bytes())
    parts = ["variables/variables.index", "variables/variables.data-00000-of-00001"]
    for part in parts:
        (folder / part).write_text(part)
    (folder / "fingerprint.pb").touch()
    with zipfile.ZipFile(tmp_path / "saved.zip", "w") as packed:
        for file in sorted(item for item in folder.rglob("*") if item.is_file()):
            packed.write(file, f"saved/{file.relative_to(folder)}")
    given = {"model": model, "folder": folder, "zip": tmp_path / "saved.zip"}[how]
    job = json.loads(run(url, given, "--backend", "tensorflow", "--json").stdout)  # which waits for a machine
    assert [part["path"] for part in job["request"]["model"]["parts"]] == parts
    assert [i["dims"] for i in job["request"]["inputs"]] == [["batch", 16, 16, 3]]
    (folder / parts[0]).unlink()
    assert f"{parts[0]} is missing" in run(url, folder, "--backend", "tensorflow", code=2).stderr


def test_weights_that_are_missing_or_short_are_named(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    path = exported(tmp_path / "net.onnx")
    data = path.with_name("net.onnx.data")
    data.write_bytes(data.read_bytes()[:50])
    stderr = run(url, path, *QUICK, code=2).stderr
    assert "net.onnx.data has 50 bytes, and the model looks for 72" in stderr
    data.unlink()
    assert f"{data} is missing: weights of net.onnx lie in it" in run(url, path, *QUICK, code=2).stderr
    assert "2 models" in run(url, model(tmp_path / "b.onnx").parent, *QUICK, code=2).stderr


def test_only_files_named_by_the_model_are_uploaded(tmp_path: Path) -> None:
    path = exported(tmp_path / "m.onnx")
    (tmp_path / "id_rsa").touch()
    for place in ("id_rsa", "../m.onnx.data", "/etc/passwd"):
        with pytest.raises(BadParameter, match="does not name"):
            _sending._part(Client("http://127.0.0.1:1"), path, place)


def test_values_come_from_an_npz(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    np.savez(tmp_path / "x.npz", x=np.ones((2, 4), np.float32))
    np.savez(tmp_path / "all.npz", labels=np.ones(3), x=np.ones((2, 4), np.float32))
    stderr = run(url, model(tmp_path / "net.onnx"), *QUICK, "--input", tmp_path / "all.npz", code=2).stderr
    assert "the model has no input 'labels'" in stderr
    for data_argument in (tmp_path / "x.npz", f"x={tmp_path / 'all.npz'}"):
        job = json.loads(
            run(url, model(tmp_path / "net.onnx"), *QUICK, "--input", data_argument, "--json", code=0).stdout
        )
        assert job["job"]["data"] == ["x.npy"]


def test_without_waiting_the_url_of_the_job_is_printed(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    out = run(url, model(tmp_path / "net.onnx"), *QUICK).stdout
    assert f"{url}#/run?job=" in out
    assert len(out.splitlines()) == 1


@pytest.mark.long
def test_values_come_from_an_array(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    arguments = ("--input", f"x={tmp_path / 'x.npy'}", "--batch", "1,3", "--wait", "--json")
    job = json.loads(run(url, model(tmp_path / "net.onnx"), *QUICK, *arguments).stdout)
    assert job["job"]["data"] == ["x.npy"]
    assert [p["batch"] for p in job["points"]] == [1, 3]


def test_a_job_that_fails_says_why_and_exits_with_1(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    out = run(url, model(tmp_path / "net.onnx", [3, 5]), *QUICK, "--batch", "1", "--wait", code=1).stdout
    assert "ort: failed (model_error): " in out
    assert "#/overview?run=" not in out, "the run has only CPU counters"
    assert "#/run?job=" in out.splitlines()[-1]
    assert "hint: " in out


def test_sizes_that_fail_do_not_lose_the_others(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    sweep = ("--batch", "1,2,3", "--wait", "--json", "--fail-on", "sizes_failed")
    job = json.loads(run(url, model(tmp_path / "net.onnx", [2, 4]), *QUICK, *sweep, code=4).stdout)
    assert [point["batch"] for point in job["points"]] == [2]
    (task,) = job["job"]["tasks"]
    assert (task["state"], [text.split(": ")[1] for text in task["warnings"]]) == (
        "succeeded",
        ["at batch=1", "at batch=3"],
    )
    assert job["fail_on"] == ["ort: sizes_failed"]


@pytest.mark.long
def test_a_guess_that_fails_says_how_to_give_another_size(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    path = model(tmp_path / "net.onnx", [1, 7], width="seq")
    done = run(url, path, *QUICK, "--batch", "1", "--wait", code=1)
    assert "hint: does the model take seq=64? --dim seq=SIZE (Sizes on the Jobs page) gives another" in done.stdout
    run(url, path, *QUICK, "--batch", "1", "--dim", "seq=7", "--wait")


def test_ctrl_c_cancels_the_job_and_exits_with_3(served: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = served
    arguments = ("--min-s", "60", "--max-s", "120", "--backend", "onnxruntime", "--wait")
    asked = command(url, model(tmp_path / "net.onnx"), *arguments)
    child = subprocess.Popen(asked, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert child.stdout
        for line in child.stdout:
            if "measuring" in line:
                break
        os.kill(child.pid, signal.SIGINT)
        rest = child.stdout.read()
        assert child.wait(30) == 3
    finally:
        child.kill()
        child.communicate()
    assert "cancelling" in rest
    assert "ort: cancelled" in rest


def test_every_wrong_field_is_named_and_nothing_is_queued(lonely: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 5)))
    arguments = ("--input", f"x={tmp_path / 'x.npy'}", "--backend", "onnxrt", "--timeout", "100", "--json")
    done = run(lonely, model(tmp_path / "net.onnx"), *arguments, code=2)
    assert "specs[0].backend: there is no backend 'onnxrt' (did you mean 'onnxruntime'?)" in done.stderr
    assert "inputs[0].blob: x.npy holds float64, the model wants float32" in done.stderr
    assert "inputs[0].blob: dimension 1 is 5 in x.npy, the model wants 4" in done.stderr
    assert len(json.loads(done.stdout)["errors"]) == 3
    assert answer(lonely, "jobs")["jobs"] == []


def test_a_number_out_of_range_is_named(lonely: str, tmp_path: Path) -> None:
    done = run(lonely, model(tmp_path / "net.onnx"), "--backend", "onnxruntime", "--timeout", "1e9", code=2)
    assert "timeout_s: is 1e+09 (allowed: 1 to 86,400)" in done.stderr


def test_an_unknown_input_names_the_nearest(lonely: str, tmp_path: Path) -> None:
    arguments = ("--shape", "xs=float32[batch,4]", "--backend", "onnxruntime")
    done = run(lonely, model(tmp_path / "net.onnx"), *arguments, code=2)
    assert "the model has no input 'xs' (did you mean 'x'?)" in done.stderr


def test_without_an_agent_the_command_to_start_one_is_printed(lonely: str, tmp_path: Path) -> None:
    done = run(lonely, model(tmp_path / "net.onnx"), code=2)
    assert "no agent that is online can run this onnx model" in done.stderr
    assert "visualprof agent" in done.stderr


def test_a_named_backend_queues_for_an_agent_to_come(lonely: str, tmp_path: Path) -> None:
    done = run(lonely, model(tmp_path / "net.onnx"), "--backend", "onnxruntime")
    assert "no registered agent has onnxruntime" in done.stderr
    (job,) = answer(lonely, "jobs")["jobs"]
    assert job["state"] == "waiting"


def test_a_guessed_size_is_reported_unless_it_was_given(lonely: str, tmp_path: Path) -> None:
    net, wanted = model(tmp_path / "net.onnx", width="seq"), ("--backend", "onnxruntime")
    assert "the file has no size for seq: 64 is a guess" in run(lonely, net, *wanted).stderr
    assert "guess" not in run(lonely, net, *wanted, "--dim", "seq=16").stderr


def test_a_pickle_is_refused_before_anything_is_queued(lonely: str, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(pickle.dumps({"weights": [1, 2]}))
    done = run(lonely, tmp_path / "model.pt", code=2)
    assert "model.pt: a Python pickle" in done.stderr
    assert "Hint: visualprof runs ONNX" in done.stderr


def test_torchscript_requests_missing_shapes(lonely: str) -> None:
    script = FIXTURES / "graphs" / "torch_cnn_script.pt"
    done = run(lonely, script, "--backend", "torch", code=2)
    assert "does not say the shape of its input 'x'" in done.stderr
    assert "--shape 'x=float32[batch,3,224,224]'" in done.stderr
    run(lonely, script, "--backend", "torch", "--shape", "x=float32[batch,3,16,16]", "--batch", "1:8")
    (job,) = answer(lonely, "jobs")["jobs"]
    asked = answer(lonely, f"jobs/{job['id']}")["request"]
    assert asked["inputs"][0]["dims"] == ["batch", 3, 16, 16]
    assert asked["sweep"] == {"dim": "batch", "values": [1, 2, 4, 8]}


def test_an_unknown_agent_is_rejected_with_the_known_ones(served: tuple[str, Path], tmp_path: Path) -> None:
    done = run(served[0], model(tmp_path / "net.onnx"), "--agent", "nobody", code=2)
    assert "there is no agent 'nobody'" in done.stderr
    assert "there is local (" in done.stderr


def test_an_unreachable_server_gives_the_command_that_starts_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["submit", str(model(tmp_path / "net.onnx")), "--server", "127.0.0.1:1"]) == 2
    output = capsys.readouterr().err
    assert "No server answers at http://127.0.0.1:1/" in output
    assert "visualprof --logdir runs --with-agent" in output


def test_a_missing_file_is_named(lonely: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "nowhere.onnx", "--server", lonely]) == 2
    assert "nowhere.onnx: No such file or directory" in capsys.readouterr().err


class Forgetful(BaseHTTPRequestHandler):
    """Takes a submission and hangs up without an answer, once."""

    keys: list[str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.keys.append(body["key"])
        if len(self.keys) == 1:
            self.connection.close()
            return
        self.send_response(201)
        self.end_headers()
        self.wfile.write(b'{"job": {"id": "j"}}')

    def log_message(self, format: str, *args: object) -> None:
        """Not into the tests' output."""


def test_a_lost_answer_is_asked_for_again_with_the_same_key() -> None:
    handler = type("Handler", (Forgetful,), {"keys": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            client = Client(f"http://127.0.0.1:{server.server_port}")
            assert submit.submitted(client, {"key": "one"})["job"]["id"] == "j"
            assert handler.keys == ["one", "one"]
        finally:
            server.shutdown()
            thread.join()


def test_another_kind_of_server_is_reported(tmp_path: Path) -> None:
    handler = type(
        "Handler", (Forgetful,), {"keys": ["x"], "do_GET": lambda self: self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nhi")}
    )
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(Unreachable, match="is no visualprof server"):
                Client(f"http://127.0.0.1:{server.server_port}").get("jobs")
        finally:
            server.shutdown()
            thread.join()


# what is typed


def typed(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    submit.add_arguments(parser)
    return parser.parse_args(["m.onnx", *given])


def drafted(*given: str, agents: list[Agent] | None = None, dims: list[Any] | None = None) -> CheckedDraft:
    """Return the draft that the server makes of the arguments."""
    inputs = [{"name": "x", "dtype": "float32", "dims": ["batch", "seq"] if dims is None else dims}]
    sizes = {d: 1 for d in inputs[0]["dims"] if isinstance(d, str)} | ({"seq": 64} if dims is None else {})
    model = {"kind": "model", "format": "onnx", "inputs": inputs, "outputs": [], "dims": sizes, "warnings": []}
    files = _request.Files({"blob": BLOB, "name": "m.onnx", "model": model}, {}, {})
    draft = msgspec.convert(_request.draft(typed(*given), "key", files), Draft)
    return compose(draft, Known({BLOB: {**model, "name": "m.onnx"}}, agents or []))


def wanted(*given: str, agents: list[Agent] | None = None, dims: list[Any] | None = None) -> dict[str, Any]:
    result = drafted(*given, agents=agents, dims=dims)
    assert result.errors == []
    return msgspec.to_builtins(result.request)


def agent(name: str, *backends: str, online: bool = True, platform: str = "x86") -> Agent:
    devices = ["cpu", "cuda:0"][: 1 + (platform == "cuda")]
    runtimes = [Runtime(backend, "1", "python", "3.11", devices) for backend in backends]
    can = Capabilities(platform, "", "", name, "", 1, 1, 0, "", runtimes=runtimes)  # type: ignore[arg-type]
    return Agent(
        id=f"id-{name}",
        owner=None,
        name=name,
        public=True,
        local=False,
        address="",
        capabilities=can,
        registered_ns=0,
        seen_ns=time.time_ns() if online else 0,
    )


def test_specs_are_the_product_of_lists_with_readable_ids() -> None:
    lists = ("--backend", "onnxruntime", "openvino", "--precision", "f32", "bf16", "--threads", "1", "2")
    specs = drafted(*lists).request.specs
    assert [s.id for s in specs] == [
        "ort-f32-1t",
        "ort-f32-2t",
        "ort-bf16-1t",
        "ort-bf16-2t",
        "ov-f32-1t",
        "ov-f32-2t",
        "ov-bf16-1t",
        "ov-bf16-2t",
    ]
    assert (specs[3].backend, specs[3].threads) == ("onnxruntime", 2)


def test_backends_are_those_of_online_agents() -> None:
    agents = [agent("a", "openvino", "torch"), agent("b", "onnxruntime", online=False)]
    assert [s["backend"] for s in wanted(agents=agents)["specs"]] == ["openvino"]


def test_a_platform_chooses_its_backends_and_its_device() -> None:
    agents = [agent("a", "openvino"), agent("b", "onnxruntime", platform="cuda")]
    (spec,) = wanted("--platform", "cuda", agents=agents)["specs"]
    assert (spec["id"], spec["backend"], spec["device"], spec["platform"]) == (
        "ort-cuda",
        "onnxruntime",
        "cuda",
        "cuda",
    )


def test_an_agent_is_named_by_name_or_id() -> None:
    agents = [agent("a", "openvino"), agent("b", "onnxruntime")]
    for name in ("b", "id-b"):
        (spec,) = wanted("--agent", name, agents=agents)["specs"]
        assert (spec["agent"], spec["backend"]) == ("id-b", "onnxruntime")


def test_the_batch_is_swept_and_other_dimensions_have_a_size() -> None:
    asked = wanted("--batch", "1:4", "--dim", "seq=16", "--backend", "openvino")
    assert asked["sweep"] == {"dim": "batch", "values": [1, 2, 4]}
    assert asked["dims"] == {"seq": 16}


def test_another_dimension_can_be_swept() -> None:
    asked = wanted("--batch", "16,32", "--sweep-dim", "seq", "--dim", "batch=2", "--backend", "openvino")
    assert asked["sweep"] == {"dim": "seq", "values": [16, 32]}
    assert asked["dims"] == {"batch": 2}


def test_a_model_with_fixed_sizes_has_one_point_and_no_sweep() -> None:
    assert wanted("--backend", "openvino", dims=[1, 4])["sweep"] == {"dim": "", "values": [1]}
    (error,) = drafted("--batch", "1:4", "--backend", "openvino", dims=[1, 4]).errors
    assert error.error == "there is no dimension to sweep"


@pytest.mark.parametrize(
    "given", [("--dim", "seq"), ("--dim", "seq="), ("--shape", "x=float32"), ("--dim", "seq=1", "--dim", "seq=2")]
)
def test_wrong_arguments_are_reported_with_an_example(given: tuple[str, ...]) -> None:
    with pytest.raises(BadParameter) as caught:
        wanted("--backend", "openvino", *given)
    assert caught.value.hint


def test_an_invalid_size_is_reported_with_an_example() -> None:
    (error,) = drafted("--backend", "openvino", "--dim", "seq=x").errors
    assert (error.field, error.error, error.hint) == ("dims.seq", "'x' is no size", "for example: seq=64")


# a terminal


class Terminal(io.StringIO):
    """Text that would be shown."""

    def isatty(self) -> bool:
        return True


class Played:
    """A server that answers one after the other."""

    url = "http://here/"

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)

    def get(self, path: str) -> dict[str, Any]:
        return self.answers.pop(0)


def state(what: str, progress: float, *batches: int, name: str = "ort") -> dict[str, Any]:
    task = {
        "id": "t",
        "spec": name,
        "state": what,
        "phase": "measuring",
        "progress": progress,
        "agent_name": "box",
        "reason": None,
    }
    points = [
        {
            "task": "t",
            "spec": name,
            "batch": b,
            "qps": 10.0,
            "p50_ns": 1000,
            "p50_margin_ns": None,
            "stable": True,
            "host_busy": None,
        }
        for b in batches
    ]
    return {"job": {"id": "j", "state": what, "tasks": [task]}, "points": points, "waits": {}}


def test_on_a_terminal_the_same_lines_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_watch, "ASK_S", 0)
    out, server = Terminal(), Played(state("running", 0.1), state("running", 0.5, 1), state("succeeded", 1.0, 1, 2))
    _watch.wait(server, "j", out)  # type: ignore[arg-type]
    assert out.getvalue().count("\x1b[1A") == 2
    assert "running, measuring on box  50 %  batch 1: 10.0 runs/s" in out.getvalue()


def test_names_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_watch, "ASK_S", 0)
    out = io.StringIO()
    _watch.wait(Played(state("succeeded", 1.0, name="a\x1b[2Jb\n")), "j", out)  # type: ignore[arg-type]
    assert "\x1b" not in out.getvalue()
    assert "a�[2Jb�: succeeded" in out.getvalue()


def test_a_known_file_is_not_sent_again(lonely: str, tmp_path: Path) -> None:
    client, sent = Client(lonely), list[int]()
    first = client.upload(model(tmp_path / "first.onnx"), lambda done, _: sent.append(done))
    assert sent
    sent.clear()
    again = client.upload(model(tmp_path / "second.onnx"), lambda done, _: sent.append(done))
    assert (again["blob"], again["name"], sent) == (first["blob"], "second.onnx", [])
