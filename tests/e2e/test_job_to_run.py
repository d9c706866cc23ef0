"""A job from the drop of a file to the pages of its result, in a browser, on a real agent."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES, SAMPLES, until
from tests.e2e.live import Dashboard, Page, Visits, expect
from tests.recordings import recording_path
from tests.remote.child_runs import megengine_python
from tests.swift import Swift

ONNX = SAMPLES / "models" / "resnet10.onnx"
MINUTES_S = 180


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs {module}")


def wait_for_agent(dashboard: Dashboard, *backends: str) -> None:
    def there() -> bool:
        online = [agent for agent in dashboard.get("agents")["agents"] if agent["online"]]
        return {r["backend"] for agent in online for r in agent["capabilities"]["runtimes"]}.issuperset(backends)

    until(there, 60)


def the_job(dashboard: Dashboard, state: str) -> dict[str, Any]:
    """The only job, once it is in that state."""

    def there() -> dict[str, Any] | None:
        for job in dashboard.get("jobs")["jobs"]:
            assert job["state"] == state or job["state"] not in ("failed", "cancelled"), job
            return job if job["state"] == state else None
        return None

    return until(there, MINUTES_S)


def views_of(dashboard: Dashboard, run: str) -> set[str]:
    """Every view of a run that is parsed and answers."""
    dashboard.wait(
        lambda spans: any(run in file for file in spans) and all(s["state"] == "ready" for s in spans.values())
    )
    answered = set[str]()
    for one in dashboard.get("runs")["runs"]:
        for worker in one["workers"] if one["id"] == run else ():
            for span in worker["spans"]:
                for view in span["views"]:
                    dashboard.get(f"view/{view}", run=run, worker=worker["id"], span=span["id"])
                    answered.add(view)
    return answered


def with_agent(serve: Callable[..., Dashboard], visit: Visits, *backends: str) -> tuple[Dashboard, Page]:
    dashboard = serve(None, "--with-agent")
    wait_for_agent(dashboard, *backends)
    return dashboard, visit(dashboard, "run")


def give(page: Page, *files: Path) -> None:
    page.locator("input[type=file]").set_input_files([str(file) for file in files])
    expect(page.get_by_role("table", name="Configurations")).to_be_visible()


def quick(page: Page, sizes: str = "1, 2") -> None:
    page.get_by_text("Measurement", exact=True).click()
    page.get_by_label("Min. time").fill("0.1")
    page.get_by_label("Sizes of the swept dimension").fill(sizes)
    for threads in page.get_by_label("Threads").all():
        threads.fill("1")  # more wait for each other in every operator while other tests run: 0.2 ms become 200 ms


def submit(page: Page) -> None:
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("Submitted as")).to_be_visible()


@pytest.mark.long
def test_an_onnx_model_is_dropped_measured_by_two_runtimes_and_opened(
    serve: Callable[..., Dashboard], visit: Visits
) -> None:
    needs("onnxruntime")
    needs("openvino")
    dashboard, page = with_agent(serve, visit, "onnxruntime", "openvino")
    give(page, ONNX)
    quick(page)
    submit(page)
    job = the_job(dashboard, "succeeded")
    assert {task["backend"] for task in job["tasks"]} >= {"onnxruntime", "openvino"}
    runs = {task["backend"]: task["run"] for task in job["tasks"]}
    assert views_of(dashboard, runs["onnxruntime"]) >= {"overview", "operator", "trace", "memory"}
    assert views_of(dashboard, runs["openvino"]) >= {"operator", "trace"}
    for view in ("overview", "operator", "trace", "graph", "evaluation"):
        opened = visit(dashboard, view, run=runs["onnxruntime"])
        expect(opened.locator("main")).not_to_be_empty()
        expect(opened.get_by_role("alert")).to_have_count(0)
    names = {row["name"] for row in dashboard.get("models")["models"]}
    assert {"resnet10.onnx", "executed.onnx"} <= names


@pytest.mark.long
def test_a_megengine_model_runs_in_its_own_interpreter_and_opens_in_every_view(
    serve: Callable[..., Dashboard], visit: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUALPROF_RUNTIMES", str(Path(megengine_python()).parents[2]))
    dashboard, page = with_agent(serve, visit, "megengine")
    give(page, SAMPLES / "megengine-train" / "lenet.mge", recording_path("models/megengine/lenet.data.npy"))
    expect(page.get_by_role("table", name="Inputs")).to_contain_text("lenet.data.npy")
    quick(page)
    submit(page)
    job = the_job(dashboard, "succeeded")
    assert job["data"] == ["lenet.data.npy"]
    run = job["tasks"][0]["run"]
    assert views_of(dashboard, run) >= {"overview", "operator", "trace", "memory", "profile"}
    opened = visit(dashboard, "profile", run=run, worker="profile")
    expect(opened.get_by_role("grid").first).to_contain_text("conv1")


@pytest.mark.long
def test_torchscript_with_shapes_written_by_hand_is_measured(serve: Callable[..., Dashboard], visit: Visits) -> None:
    needs("torch")
    dashboard, page = with_agent(serve, visit, "torch")
    page.locator("input[type=file]").set_input_files(str(FIXTURES / "graphs" / "torch_cnn_script.pt"))
    page.get_by_label("Dimensions of x").fill("batch, 3, 16, 16")
    page.get_by_label("Type").select_option("float32")
    page.get_by_label("Sweep").select_option("batch")
    quick(page)
    submit(page)
    job = the_job(dashboard, "succeeded")
    assert views_of(dashboard, job["tasks"][0]["run"]) >= {"overview", "operator", "trace", "memory"}


@pytest.mark.long
def test_a_model_goes_from_the_page_into_the_bucket_and_its_result_comes_back(
    serve: Callable[..., Dashboard], visit: Visits, swift: Swift
) -> None:
    needs("onnxruntime")
    dashboard = serve(None, "--with-agent", "--store", swift.new())
    wait_for_agent(dashboard, "onnxruntime")
    page = visit(dashboard, "run")
    visit.tolerate(r"asked for http://127\.0\.0\.1:\d+/bucket")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(f"{request.method} {request.url}"))
    give(page, ONNX)
    quick(page)
    submit(page)
    assert (
        [request_line for request_line in sent if request_line.startswith("PUT ")]
        == [one for one in sent if swift.endpoint in one]
        != []
    )
    assert not [
        request_line for request_line in sent if request_line.startswith("POST ") and "/uploads?" in request_line
    ]
    job = the_job(dashboard, "succeeded")
    assert views_of(dashboard, job["tasks"][0]["run"]) >= {"overview", "operator"}
