"""Tasks run by the agent: what the server sees, and how they end."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.remote.agent_runs import StartAgent, server, start
from tests.remote.fake_server import FakeServer
from visualprof.remote.agent.machine.sandbox import bubblewrap_problem
from visualprof.remote.protocol import Input, Profile, Spec

pytestmark = pytest.mark.slow

__all__ = ["server", "start"]


def test_a_task_is_leased_run_and_finished(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"say=hello measure=0.1")
    agent = start("--once")
    report = server.finished(task)
    assert (report["state"], report["reason"], report["warnings"]) == ("succeeded", None, [])
    assert set(report["files"]) == {
        "env.json",
        "job.json",
        "log.txt",
        "monitor.jsonl",
        "points.jsonl",
        "status.json",
    }
    assert agent.ended() == 0, agent.said


def test_the_result_contains_request_environment_and_outcome(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"say=hello measure=0.1", name="../my model.onnx")
    start("--once")
    server.finished(task)
    job, env, status = (task.json(name) for name in ("job.json", "env.json", "status.json"))
    assert (job["schema"], job["job"], job["task"], job["attempt"]) == ("visualprof.job/1", "j1", "t1", 1)
    assert job["model"] == {
        "name": "../my model.onnx",
        "sha256": task.lease.request.model.blob,
        "format": "onnx",
        "file": "my_model.onnx",
    }
    assert (env["agent"], env["agent_id"], env["backend"], env["version"]) == ("fake", "a1", "onnxruntime", "1.2.3")
    assert env["effective"] == {"threads": "1"}
    assert (status["state"], status["load_ns"], status["profiles"]) == ("succeeded", 5, [])
    assert 0.1e9 < status["finished_ns"] - status["started_ns"] < 20e9
    assert task.result["log.txt"] == b"hello\n"


def test_the_result_lists_the_sizes_that_failed(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure=0.05 unmeasured=8 unmeasured=2 unmeasured=8")
    start("--once")
    assert server.finished(task)["state"] == "succeeded"
    assert task.json("status.json")["not_measured"] == [8, 2]


def test_points_log_and_phase_are_reported_while_a_task_runs(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"say=hello measure=0.1 phase=measuring hang")
    start()
    server.wait(lambda: task.points and task.log and "measuring" in task.phases and task.progress[-1] > 0)
    assert task.report is None
    assert task.points[0]["batch"] == 4
    assert task.log == b"hello\n"


def test_inputs_are_stored_next_to_the_model_under_safe_names(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure", inputs={"../x:0": b"values"}, given=[Input("../x:0", "float32", [1], "file")])
    agent = start()
    server.finished(task)
    blobs = [path.read_bytes() for path in (agent.state / "blobs").iterdir()]
    assert sorted(blobs) == [b"measure", b"values"]


@pytest.mark.parametrize("reason", ["model_error", "input_error", "out_of_memory"])
def test_a_child_that_fails_says_why(server: FakeServer, start: StartAgent, reason: str) -> None:
    task = server.submit(f"measure=0.05 fail={reason}".encode())
    start("--once")
    report = server.finished(task)
    assert (report["state"], report["reason"], report["hint"]) == ("failed", reason, "nothing helps")
    assert task.json("status.json")["error"] == f"it is {reason}"
    assert len(task.lines("points.jsonl")) == 1, "what was measured before is kept"


def test_a_native_crash_names_the_signal_and_ends_with_the_log(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"say=almost_there phase=measuring crash=SIGSEGV")
    start("--once")
    report = server.finished(task)
    assert report["reason"] == "crashed"
    assert "SIGSEGV" in report["error"]
    assert "measuring batch 1" in report["error"]
    assert "almost_there" in report["hint"]


def test_an_exit_without_a_result_is_a_crash(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"exit=0")
    start("--once")
    report = server.finished(task)
    assert (report["reason"], report["state"]) == ("crashed", "failed")
    assert "without a result" in report["error"]


def test_a_crash_after_the_work_is_a_warning(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure=0.05 finished crash=SIGSEGV")
    start("--once")
    report = server.finished(task)
    assert report["state"] == "succeeded"
    assert report["warnings"] == ["the child ended by SIGSEGV after its work was done"]


def test_a_profile_announced_with_nonsense_is_reported_as_unknown(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure=0.05 odd_profiles")
    start("--once")
    assert server.finished(task)["state"] == "succeeded"
    for profile in task.json("status.json")["profiles"]:
        assert all(value is None or isinstance(value, (str, int)) for value in profile.values())


def test_an_abort_for_want_of_memory_is_out_of_memory(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"say=std::bad_alloc crash=SIGABRT")
    start("--once")
    assert server.finished(task)["reason"] == "out_of_memory"


def test_a_model_that_hangs_is_ended_at_the_timeout(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure=0.05 hang", timeout_s=1.0)
    agent = start()
    report = server.finished(task)
    assert (report["state"], report["reason"]) == ("failed", "timeout")
    assert "did not finish within 1 s" in report["error"]
    assert agent.children() == []


def test_a_child_beyond_its_memory_is_ended(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"eat=300")
    start("--memory", "0.1")
    report = server.finished(task)
    assert report["reason"] == "out_of_memory"
    assert "0.10 are allowed" in report["error"]


def test_a_log_of_a_gigabyte_is_truncated_and_blocks_nothing(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"flood=1000 measure=0.05")
    agent = start()
    report = server.finished(task, 60)
    assert report["state"] == "succeeded"
    log = task.result["log.txt"]
    assert 16 << 20 <= len(log) < (16 << 20) + 200
    assert log.endswith(b"[the log ends here: its limit is 16 MiB]\n")
    assert agent.process.poll() is None


def test_a_canceled_task_ends_soon_with_its_measurements(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure=0.05 hang")
    agent = start()
    server.wait(lambda: task.points)
    began = time.monotonic()
    task.cancel = True
    report = server.finished(task)
    assert (report["state"], report["reason"]) == ("cancelled", None)
    assert time.monotonic() - began < 9, "before the grace has passed"
    assert agent.children() == []
    assert len(task.lines("points.jsonl")) == 1
    assert task.json("status.json")["state"] == "cancelled"


def test_a_stale_lease_ends_the_child_and_reports_nothing(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"deaf hang")
    agent = start()
    server.wait(lambda: agent.children())
    task.stale = True
    server.wait(lambda: not agent.children())
    server.wait(lambda: not list((agent.state / "work").iterdir()))
    assert task.finishes == 0
    assert not any("uploads" in path for _, path, _ in server.requests)
    again = server.submit(b"measure=0.05")
    assert server.finished(again)["state"] == "succeeded", "the agent works on"


def test_descendants_that_left_the_group_end_with_the_task(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"family measure=0.1")
    agent = start()
    assert server.finished(task)["state"] == "succeeded"
    assert agent.children() == []


def test_links_and_pipes_in_the_result_are_not_followed(server: FakeServer, start: StartAgent, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    task = server.submit(f"links={secret} file=fine.json file=sub/fine.json file=a/b/deep.json measure=0.05".encode())
    start()
    report = server.finished(task)
    assert report["state"] == "succeeded"
    assert secret.read_text() == "s3cret"
    assert not any(b"s3cret" in data for data in task.files.values())
    assert {"fine.json", "sub/fine.json", "monitor.jsonl"} <= set(report["files"])
    left_out = " ".join(report["warnings"])
    assert all(name in left_out for name in ("secret.txt", "pipe", "a/b/deep.json"))
    assert task.json("status.json")["state"] == "succeeded"


def test_nonsense_among_the_events_changes_nothing(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"nonsense measure=0.05")
    start()
    assert server.finished(task)["state"] == "succeeded"
    assert len(task.points) == 1


def test_the_childs_environment_holds_nothing_of_the_agents(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"environment")
    start()
    server.finished(task)
    seen = task.json("environment.json")
    assert "SECRET" not in seen
    assert not any("vp_" in value or "s3cret" in value for value in seen.values())
    assert seen["HOME"].startswith(str(Path(seen["HOME"]).parents[2] / "work"))
    assert "PYTHONPATH" not in seen


@pytest.mark.skipif(bool(bubblewrap_problem()), reason=f"bubblewrap: {bubblewrap_problem()}")
def test_in_the_sandbox_a_child_sees_only_its_folder_and_no_network(server: FakeServer, start: StartAgent) -> None:
    state = start("--sandbox", "require").state
    task = server.submit(f"look={state / 'identity.json'} measure=0.05".encode())
    report = server.finished(task)
    assert report["state"] == "succeeded", report
    seen = task.json("seen.json")
    assert seen["path"] is False
    assert seen["writes_model"] is False
    assert task.json("env.json")["sandbox"] == 2


@pytest.mark.skipif(bool(bubblewrap_problem()), reason=f"bubblewrap: {bubblewrap_problem()}")
def test_in_the_sandbox_a_crash_still_names_its_signal(server: FakeServer, start: StartAgent) -> None:
    start("--sandbox", "require")
    report = server.finished(server.submit(b"crash=SIGSEGV"))
    assert report["reason"] == "crashed"
    assert "SIGSEGV" in report["error"]


@pytest.mark.skipif(bool(bubblewrap_problem()), reason=f"bubblewrap: {bubblewrap_problem()}")
def test_in_the_sandbox_a_cancelled_child_and_its_family_end(server: FakeServer, start: StartAgent) -> None:
    agent = start("--sandbox", "require")
    task = server.submit(b"family measure=0.05 hang")
    server.wait(lambda: task.points)
    task.cancel = True
    assert server.finished(task)["state"] == "cancelled"
    assert agent.children() == []


@pytest.mark.parametrize("kind", ["chrome_list", "chrome_object"])
def test_a_profile_gets_the_monitors_counters(server: FakeServer, start: StartAgent, kind: str) -> None:
    task = server.submit(f"measure=0.05 profile.tell_profile={kind}".encode(), profile=Profile(3))
    start()
    assert server.finished(task)["state"] == "succeeded"
    body = task.json("timeline.json")
    events = body["traceEvents"] if kind == "chrome_object" else body
    counters = [event for event in events if event["ph"] == "C"]
    assert {"CPU %", "RSS bytes"} <= {counter["name"] for counter in counters}
    assert all(0 <= row["ts"] < 1e6 for row in counters)
    assert [row["name"] for row in events if row["ph"] == "X"] == ["op"]
    profile = task.json("status.json")["profiles"][0]
    assert (profile["pass"], profile["file"], profile["runs"], profile["error"]) == (
        "timeline",
        "timeline.json",
        3,
        None,
    )


@pytest.mark.parametrize("way", ["crash=SIGSEGV", "fail=model_error", "hang"])
def test_a_profile_pass_that_fails_is_a_warning(server: FakeServer, start: StartAgent, way: str) -> None:
    task = server.submit(f"measure=0.05 profile.{way}".encode(), profile=Profile(3), timeout_s=2.0)
    start()
    report = server.finished(task)
    assert report["state"] == "succeeded"
    assert report["warnings"][0].startswith("profile pass timeline: ")
    assert task.json("status.json")["profiles"][0]["error"]
    assert len(task.lines("points.jsonl")) == 1


def test_a_runtime_that_is_not_there_is_named(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure", spec=Spec("s1", "openvino", version="1.0"))
    start()
    report = server.finished(task)
    assert report["reason"] == "no_runtime"
    assert report["hint"].endswith("visualprof agent install-runtime openvino==1.0")


def test_a_device_runs_one_task_at_a_time(server: FakeServer, start: StartAgent) -> None:
    first, second = server.submit(b"measure=0.6"), server.submit(b"measure=0.1")
    start()
    server.wait(lambda: first.points)
    assert not second.phases
    server.finished(second)
    one, two = (task.json("status.json") for task in (first, second))
    assert one["finished_ns"] < two["started_ns"]


def test_each_device_runs_its_own_task(server: FakeServer, start: StartAgent) -> None:
    first = server.submit(b"measure=0.05 hang")
    start(FAKE_DEVICES="cpu,cuda:0")
    server.wait(lambda: first.points)
    second = server.submit(b"measure=0.05", spec=Spec("s1", "onnxruntime", device="cuda:0"))
    assert server.finished(second)["state"] == "succeeded"
    assert first.report is None
    assert ["cuda:0"] in server.polls


@pytest.mark.parametrize("other", [b"othersX", b"short"])
def test_a_model_with_a_wrong_hash_is_not_run(server: FakeServer, start: StartAgent, other: bytes) -> None:
    task = server.submit(b"measure")
    server.blobs[task.lease.request.model.blob] = other
    start()
    report = server.finished(task)
    assert report["reason"] == "agent_error"
    assert "damaged" in report["error"]
    assert json.loads(task.result["status.json"])["reason"] == "agent_error"
    assert not task.points


def test_an_interrupted_download_resumes_at_its_offset(server: FakeServer, start: StartAgent) -> None:
    server.cut_get_after = 10
    task = server.submit(b"say=1 " * 100 + b"measure=0.05")
    start()
    assert server.finished(task)["state"] == "succeeded"
    gets = [headers.get("Range") for method, _, headers in server.requests if method == "GET"]
    assert gets == [None, "bytes=10-"]
