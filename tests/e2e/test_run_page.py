"""The Run and Machines pages: a job is put together, submitted and followed, against a server that plays along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.e2e import jobs_data
from tests.e2e.jobs_data import HOSTILE, LONG, NO_LOAD
from tests.e2e.jobs_fake import JobsFake, array_upload, model_upload, part_upload
from tests.e2e.live import Dashboard, Locator, Page, Visits, expect
from tests.e2e.locators import raw_keys
from tests.recordings import recording_path

MODEL = "resnet10_dynbatch.onnx"
BERT = "bert.onnx"
RUN = "pytorch-h200/cnn"


@pytest.fixture
def fake(samples: Dashboard) -> Iterator[JobsFake]:
    playing = JobsFake(samples)
    playing.uploads[MODEL] = model_upload()
    two = ({"name": "mask", "dtype": "int64", "dims": ["batch", "seq"]},)
    playing.uploads[BERT] = model_upload(BERT, *two, dims={"batch": 1, "seq": 128})
    yield playing
    playing.stop()


@pytest.fixture
def open_page(fake: JobsFake, visit: Visits) -> Callable[..., Page]:
    def _open(page: str = "run", **query: Any) -> Page:
        return visit(fake, page, **query)  # type: ignore[arg-type]  # all that a visit needs is the address

    return _open


def choose(page: Page, *names: str) -> None:
    """Picks files as the drop zone's dialog does."""
    files: list[Any] = [{"name": name, "mimeType": "application/octet-stream", "buffer": b"content"} for name in names]
    page.locator("input[type=file]").set_input_files(files)


def with_model(page: Page, name: str = MODEL) -> Page:
    choose(page, name)
    expect(page.get_by_role("table", name="Configurations")).to_be_visible()
    return page


def spec_row(page: Page, number: int) -> Locator:
    return page.get_by_role("table", name="Configurations").locator("tbody").nth(number)


def submit(page: Page) -> Locator:
    return page.get_by_role("button", name="Submit")


def line(page: Page, title: str) -> Locator:
    return page.get_by_role("list", name="Jobs").locator(".line").filter(has_text=title)


def nothing_ran(page: Page) -> None:
    assert page.locator("main img, main script, main iframe").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_model_and_its_arrays_become_a_request(open_page: Callable[..., Page], fake: JobsFake) -> None:
    fake.uploads["mask.npy"] = array_upload("mask.npy", "int64", 16, 128)
    page = open_page()
    choose(page, BERT, "mask.npy")
    expect(page.get_by_role("table", name="Inputs")).to_contain_text("int64 16×128")
    page.get_by_label("Sizes of the swept dimension").fill("1:8, 12")
    expect(page.get_by_role("list", name="Points to measure").get_by_role("listitem")).to_have_text(
        ["1", "2", "4", "8", "12"]
    )
    page.get_by_label("Size of seq").fill("64")
    page.get_by_label("Name", exact=True).last.fill("nightly")
    expect(submit(page)).to_have_text("Submit 5 points × 3 configurations")
    submit(page).click()
    expect(page.get_by_text("Submitted as j-")).to_be_visible()
    [sent] = fake.sent("POST", "jobs")
    blob = fake.uploads["mask.npy"]["blob"]
    assert sent["model"] == {"blob": "b" * 64, "name": BERT, "parts": []}
    assert sent["inputs"] == [
        {"name": "input", "dtype": "float32", "dims": ["batch", 3, 96, 96], "fill": "random", "blob": ""},
        {"name": "mask", "dtype": "int64", "dims": ["batch", "seq"], "fill": "file", "blob": blob},
    ]
    assert sent["sweep"] == {"dim": "batch", "values": [1, 2, 4, 8, 12]}
    assert (sent["dims"], sent["name"]) == ({"seq": 64}, "nightly")
    assert sent["measure"] == {"warmup_s": 0.2, "min_s": 3, "max_s": 60, "min_n": 662, "load": NO_LOAD}


def test_a_load_is_typed_and_its_errors_are_shown(open_page: Callable[..., Page], fake: JobsFake) -> None:
    page = open_page()
    choose(page, BERT)
    page.locator(".measuring.load summary").click()
    page.get_by_label("Concurrency").fill("1:4")
    page.get_by_label("Latency limit").fill("99<50ms")
    expect(page.get_by_text("'99<50ms' is no limit of the latency")).to_be_visible()
    page.get_by_label("Latency limit").fill("p99<=50ms")
    page.get_by_label("MLPerf").select_option("Server")
    submit(page).click()
    expect(page.get_by_text("Submitted as j-")).to_be_visible()
    [sent] = fake.sent("POST", "jobs")
    asked = {"concurrency": [1, 2, 4], "percentile": 99, "limit_ms": 50, "mlperf": "Server"}
    assert sent["measure"]["load"] == NO_LOAD | asked


def test_specs_start_with_the_runtimes_of_online_machines(open_page: Callable[..., Page], fake: JobsFake) -> None:
    page = with_model(open_page())
    submit(page).click()
    expect(page.get_by_text("Submitted as j-")).to_be_visible()
    [sent] = fake.sent("POST", "jobs")
    specs = {(spec["id"], spec["backend"], spec["agent"], spec["device"]) for spec in sent["specs"]}
    assert specs == {
        ("ort-lab-x86", "onnxruntime", "a1", "cpu"),
        ("ort-gpu-box-cuda0", "onnxruntime", "a2", "cuda:0"),
        ("ov-lab-x86", "openvino", "a1", "cpu"),
    }


def test_a_spec_can_be_doubled_changed_and_removed(open_page: Callable[..., Page], fake: JobsFake) -> None:
    page = with_model(open_page())
    spec_row(page, 2).get_by_role("button", name="Remove").click()
    spec_row(page, 1).get_by_role("button", name="Remove").click()
    spec_row(page, 0).get_by_role("button", name="Duplicate").click()
    copy = spec_row(page, 1)
    copy.get_by_label("Precision").select_option("f32")
    copy.get_by_label("Threads").fill("4")
    copy.get_by_role("button", name="options").click()
    page.get_by_label("optimization").select_option("basic")
    page.keyboard.press("Escape")
    copy.get_by_label("Machine").select_option("platform:cuda")
    expect(submit(page)).to_have_text("Submit 5 points × 2 configurations")
    submit(page).click()
    expect(page.get_by_text("Submitted as j-")).to_be_visible()
    [sent] = fake.sent("POST", "jobs")
    assert sent["specs"][1] == {
        "id": "ort-cuda-f32-4t-basic",
        "backend": "onnxruntime",
        "version": "",
        "agent": "",
        "platform": "cuda",
        "device": "cpu",
        "precision": "f32",
        "threads": 4,
        "options": {"optimization": "basic"},
    }


def test_errors_are_shown_at_their_fields(open_page: Callable[..., Page], fake: JobsFake) -> None:
    fake.errors = [
        {"field": "specs[1].agent", "error": "gpu-box has no openvino", "hint": "it has torch"},
        {"field": "inputs[0].blob", "error": "the file is too small", "hint": None},
        {"field": "key", "error": "is not one", "hint": None},
    ]
    fake.warnings = [{"field": "specs[0].threads", "error": "more than its cores", "hint": None}]
    page = with_model(open_page())
    expect(spec_row(page, 1)).to_contain_text("gpu-box has no openvino it has torch")
    expect(spec_row(page, 1).get_by_label("Machine")).to_have_class("box wrong")
    expect(spec_row(page, 0)).to_contain_text("more than its cores")
    expect(page.get_by_role("table", name="Inputs")).to_contain_text("the file is too small")
    expect(page.locator(".homeless")).to_have_text("key is not one")
    expect(page.get_by_text("3 fields need fixing")).to_be_visible()
    expect(submit(page)).to_be_disabled()
    fake.errors = []
    spec_row(page, 0).get_by_label("Threads").fill("2")
    expect(page.get_by_text("fields need fixing")).to_have_count(0)
    expect(submit(page)).to_be_enabled()


def test_an_invalid_number_is_reported_immediately(open_page: Callable[..., Page]) -> None:
    page = with_model(open_page(), BERT)
    page.get_by_label("Sizes of the swept dimension").fill("1:0")
    expect(page.get_by_text("Enter 1:64, 8:64:8 or 1, 2, 4")).to_be_visible()
    page.get_by_label("Size of seq").fill("many")
    expect(page.get_by_text("Enter a whole number from 1 for this dimension")).to_be_visible()
    expect(submit(page)).to_be_disabled()


def test_a_file_that_is_not_a_model_is_rejected_and_the_form_stays(
    open_page: Callable[..., Page], fake: JobsFake, visit: Visits
) -> None:
    visit.tolerate("status of 422")
    page = with_model(open_page())
    choose(page, "notes.bin")
    refusal = page.get_by_role("alert").filter(has_text="notes.bin")
    expect(refusal).to_contain_text("no model format recognizes the content")
    expect(page.get_by_role("table", name="Configurations")).to_be_visible()
    refusal.get_by_role("button", name="Dismiss").click()
    expect(refusal).to_have_count(0)


def test_an_upload_can_be_cancelled(open_page: Callable[..., Page], fake: JobsFake) -> None:
    fake.held.add(MODEL)
    page = open_page()
    choose(page, MODEL)
    sending = page.get_by_role("status").filter(has_text=MODEL)
    sending.get_by_role("button", name="Cancel").click()
    expect(sending).to_have_count(0)
    expect(page.get_by_text("Drop a model here")).to_be_visible()


def test_files_can_be_dropped_anywhere_on_the_page(open_page: Callable[..., Page]) -> None:
    page = open_page()
    expect(page.get_by_text("Drop a model here")).to_be_visible()
    handle = page.evaluate_handle(
        "name => { const data = new DataTransfer(); data.items.add(new File(['content'], name)); return data; }", MODEL
    )
    page.dispatch_event(".list", "drop", {"dataTransfer": handle})
    expect(page.get_by_role("table", name="Configurations")).to_be_visible()


def test_inputs_of_torchscript_are_written_by_hand(open_page: Callable[..., Page], fake: JobsFake) -> None:
    inputs = [{"name": "x", "dtype": "", "dims": None}]
    fake.uploads["m.pt"] = model_upload("m.pt", format="torchscript", inputs=inputs, backends=["torch"], dims={})
    page = with_model(open_page(), "m.pt")
    expect(page.get_by_text("Enter the dimensions")).to_be_visible()
    page.get_by_label("Dimensions of x").fill("batch, 3, 224×224")
    page.get_by_label("Type").select_option("int64")
    page.get_by_label("Sweep").select_option("batch")
    page.get_by_label("Sizes of the swept dimension").fill("1")
    expect(submit(page)).to_be_enabled()
    submit(page).click()
    expect(page.get_by_text("Submitted as j-")).to_be_visible()
    [sent] = fake.sent("POST", "jobs")
    expected = {"name": "x", "dtype": "int64", "dims": ["batch", 3, 224, 224], "fill": "random", "blob": ""}
    assert sent["inputs"] == [expected]


def test_an_input_of_torchscript_may_be_a_single_number(open_page: Callable[..., Page], fake: JobsFake) -> None:
    inputs = [{"name": "scale", "dtype": "", "dims": None}]
    fake.uploads["m.pt"] = model_upload("m.pt", format="torchscript", inputs=inputs, backends=["torch"], dims={})
    page = with_model(open_page(), "m.pt")
    page.get_by_label("Dimensions of scale").fill("()")
    submit(page).click()
    expect(page.get_by_text("Submitted as j-")).to_be_visible()
    assert fake.sent("POST", "jobs")[0]["inputs"][0]["dims"] == []


def test_a_job_that_no_machine_can_run_gives_a_message(open_page: Callable[..., Page], fake: JobsFake) -> None:
    page = with_model(open_page())
    for machine in fake.agents:
        machine["online"] = False
    submit(page).click()
    expect(page.get_by_role("list", name="Jobs").get_by_role("listitem").first).to_contain_text(
        "No online machine can run it."
    )


def test_a_draft_survives_a_reload_until_it_is_cleared(open_page: Callable[..., Page]) -> None:
    page = with_model(open_page())
    page.get_by_label("Sizes of the swept dimension").fill("3, 5")
    page.reload()
    expect(page.get_by_label("Sizes of the swept dimension")).to_have_value("3, 5")
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_text("Drop a model here")).to_be_visible()
    page.reload()
    expect(page.get_by_text("Drop a model here")).to_be_visible()


def test_a_submission_that_was_not_answered_is_sent_again_as_the_same(
    open_page: Callable[..., Page], fake: JobsFake, visit: Visits
) -> None:
    visit.tolerate("status of 507")
    fake.refusals.append((507, {"error": "the disk is full", "hint": "make room"}))
    page = with_model(open_page())
    submit(page).click()
    expect(page.get_by_role("alert").filter(has_text="the disk is full")).to_be_visible()
    submit(page).click()
    expect(page.get_by_text("Submitted as j-")).to_be_visible()
    submit(page).click()  # once more is another job
    expect(line(page, MODEL)).to_have_count(4)
    first, second, third = (body["key"] for body in fake.sent("POST", "jobs"))
    assert first == second != third


def test_errors_on_submission_are_shown_at_their_fields(
    open_page: Callable[..., Page], fake: JobsFake, visit: Visits
) -> None:
    visit.tolerate("status of 400")
    error = {"field": "specs[0].version", "error": "is gone meanwhile", "hint": None}
    fake.refusals.append((400, {"error": "is gone meanwhile", "hint": None, "errors": [error]}))
    page = with_model(open_page())
    submit(page).click()
    expect(spec_row(page, 0)).to_contain_text("is gone meanwhile")


def test_a_submitted_job_is_open_and_followed(open_page: Callable[..., Page], fake: JobsFake) -> None:
    page = with_model(open_page())
    submit(page).click()
    first = page.get_by_role("list", name="Jobs").get_by_role("listitem").first
    expect(first).to_contain_text("Waiting for a free machine: position 1 of 1.")
    job = fake.jobs[0]
    assert f"job={job['id']}" in page.url
    job["tasks"][0].update(state="running", phase="measuring", progress=0.5, agent="a1", agent_name="lab-x86", points=2)
    job.update(state="running", progress=0.3)
    expect(first).to_contain_text("measuring")
    expect(first.get_by_role("list", name="Points so far").get_by_role("listitem")).to_have_count(2)
    expect(first.get_by_role("link", name="lab-x86")).to_be_visible()


def test_every_state_is_shown_and_foreign_names_are_escaped(open_page: Callable[..., Page]) -> None:
    page = open_page()
    for title, state in [
        ("ResNet-50 nightly", "Running"),
        ("人脸检测模型", "Waiting"),
        ("detector", "Failed"),
        ("old.mge", "Canceled"),
    ]:
        expect(line(page, title)).to_contain_text(state)
    expect(line(page, HOSTILE)).to_contain_text(HOSTILE)
    line(page, HOSTILE).click()
    expect(page.get_by_role("alert").filter(has_text="INVALID_GRAPH")).to_contain_text(HOSTILE)
    assert LONG[:60] in line(page, HOSTILE).inner_text()
    nothing_ran(page)


def test_a_failure_shows_its_reason_and_the_last_log_lines(open_page: Callable[..., Page]) -> None:
    page = open_page(job="j-crash")
    why = page.get_by_role("alert").filter(has_text="SIGSEGV")
    expect(why).to_contain_text("Process crashed: the process ended by SIGSEGV while it was measuring batch 16")
    expect(why).to_contain_text("does the model run with this runtime at all?")
    log = page.get_by_label("Log", exact=True)
    expect(log).to_contain_text("Segmentation fault")
    expect(log).not_to_contain_text("loading")
    page.get_by_role("button", name="Log", exact=True).click()
    expect(log).to_contain_text(f"INFO loading resnet10_dynbatch.onnx\nwarming up: 100 %\ninput {HOSTILE} is float32")
    assert "log=t-crash" in page.url
    nothing_ran(page)


def test_a_log_follows_its_end_until_the_user_scrolls_up(open_page: Callable[..., Page], fake: JobsFake) -> None:
    page = open_page(job="j-run", log="t-run-1")
    log = page.locator("pre")
    expect(log).to_contain_text("Segmentation fault")
    bottom = "e => e.scrollHeight - e.clientHeight - e.scrollTop"
    assert log.evaluate(bottom) < 30
    fake.log += "".join(f"more {i}\n" for i in range(40))
    expect(log).to_contain_text("more 39")
    assert log.evaluate(bottom) < 30
    log.evaluate("e => { e.scrollTop = 0; }")
    expect(page.get_by_role("button", name="Follow")).to_be_visible()
    fake.log += "the end\n"
    expect(log).to_contain_text("the end")
    assert log.evaluate("e => e.scrollTop") == 0
    page.get_by_role("button", name="Follow").click()
    assert log.evaluate(bottom) < 30


def test_cancelling_asks_once_and_a_cancelled_job_can_be_retried(
    open_page: Callable[..., Page], fake: JobsFake
) -> None:
    page = open_page(job="j-run")
    page.get_by_role("button", name="Cancel job").click()
    assert fake.sent("POST", "jobs/j-run/cancel") == []
    page.get_by_role("button", name="No", exact=True).click()
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("button", name="Yes, cancel").click()
    expect(line(page, "ResNet-50 nightly")).to_contain_text("Canceled")
    page.get_by_role("button", name="Retry").click()
    expect(line(page, "ResNet-50 nightly")).to_contain_text("Waiting")
    assert len(fake.sent("POST", "jobs/j-run/cancel")) == len(fake.sent("POST", "jobs/j-run/retry")) == 1


def test_an_old_job_fills_the_form(open_page: Callable[..., Page], fake: JobsFake) -> None:
    page = open_page(job="j-done")
    page.get_by_role("button", name="Use as template").click()
    expect(page.get_by_text("ONNX · 1.23 MiB")).to_be_visible()
    expect(page.get_by_label("Sizes of the swept dimension")).to_have_value("1:16")
    expect(spec_row(page, 0).get_by_label("Threads")).to_have_value("2")
    expect(page.locator(".measuring:not(.load)")).to_contain_text("Min. time 1\u00a0s")
    submit(page).click()
    expect(page.get_by_text("Submitted as j-")).to_be_visible()
    [sent] = fake.sent("POST", "jobs")
    old = jobs_data.request()
    assert sent["key"] != old["key"]
    assert {k: sent[k] for k in ("model", "inputs", "specs", "sweep", "measure")} == {
        k: old[k] for k in ("model", "inputs", "specs", "sweep", "measure")
    }


def test_a_result_opens_on_its_page(open_page: Callable[..., Page], fake: JobsFake) -> None:
    done = next(job for job in fake.jobs if job["id"] == "j-done")
    done["tasks"][0]["run"] = RUN
    page = open_page(job="j-done")
    expect(page.get_by_role("link", name="Open evaluation").last).to_have_attribute(
        "href", "#/evaluation?reports=pytorch-h200/cnn,elsewhere"
    )
    page.get_by_role("link", name="Open result").click()
    expect(page.get_by_role("heading", name="Average step")).to_be_visible()
    assert f"run={RUN}" in page.url


def test_the_list_is_filtered_by_state_and_words_which_the_address_keeps(open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.get_by_role("radio", name="Failed 2").click()
    expect(page.get_by_role("list", name="Jobs").locator(".line")).to_have_count(2)
    page.get_by_placeholder("Search jobs").fill("detector")
    expect(page.get_by_role("list", name="Jobs").locator(".line")).to_have_count(1)
    page.reload()
    expect(page.get_by_role("list", name="Jobs").locator(".line")).to_have_count(1)
    page.get_by_placeholder("Search jobs").fill("no such job")
    expect(page.get_by_text("No match")).to_be_visible()


def test_without_a_machine_the_page_shows_the_command(open_page: Callable[..., Page], fake: JobsFake) -> None:
    fake.agents = []
    page = open_page()
    lack = page.get_by_role("status").filter(has_text="No machine is available for measuring yet.")
    expect(lack).to_contain_text(f"visualprof --logdir {fake.dashboard.folder} --with-agent")
    expect(lack).to_contain_text("visualprof agent --server http://192.168.7.2:8040 --token")
    expect(lack.get_by_role("button", name="Copy")).to_have_count(2)


def test_without_a_runtime_the_page_shows_how_to_install_one(open_page: Callable[..., Page], fake: JobsFake) -> None:
    fake.uploads["m.mge"] = model_upload("m.mge", format="megengine", backends=["megengine"])
    for agent in fake.agents:
        agent["capabilities"]["runtimes"] = []
    page = open_page()
    lack = page.get_by_role("status").filter(has_text="No machine has a runtime yet.")
    expect(lack).to_contain_text("visualprof agent install-runtime onnxruntime")
    choose(page, "m.mge")
    lack = page.get_by_role("status").filter(has_text="No machine has a runtime for this model.")
    expect(lack).to_contain_text("visualprof agent install-runtime megengine")
    expect(spec_row(page, 0).get_by_role("combobox", name="Runtime")).to_have_value("megengine")


def test_a_server_without_jobs_shows_the_reason(open_page: Callable[..., Page], fake: JobsFake) -> None:
    fake.problem = "the log directory cannot be written"
    page = open_page()
    expect(page.get_by_role("alert")).to_contain_text("the log directory cannot be written")
    expect(page.get_by_text("Drop a model here")).to_have_count(0)
    expect(line(page, "detector")).to_be_visible()


def test_machines_show_their_hardware_and_tasks(open_page: Callable[..., Page]) -> None:
    page = open_page("agents")
    card = page.get_by_role("region", name="gpu-box")
    for text in ("NVIDIA H200, 141 GiB", "96 cores", "PyTorch 2.13.0", "separate user", "online", "measuring"):
        expect(card).to_contain_text(text)
    expect(page.get_by_role("region", name="树莓派-5")).to_contain_text("probably lost")
    expect(page.locator("main")).to_contain_text("python3 agent.pyz --server http://192.168.7.2:8040 --token")
    card.get_by_role("link", name="ResNet-50 nightly").click()
    expect(line(page, "ResNet-50 nightly")).to_be_visible()
    assert "job=j-run" in page.url


def test_a_machine_is_made_private_and_a_lost_machine_removed(open_page: Callable[..., Page], fake: JobsFake) -> None:
    page = open_page("agents")
    page.get_by_role("region", name="gpu-box").get_by_role("switch", name="Public").click()
    expect(page.get_by_role("region", name="gpu-box").get_by_role("switch", name="Private")).not_to_be_checked()
    assert fake.sent("PATCH", "agents/a2") == [{"public": False}]
    lost = page.get_by_role("region", name="树莓派-5")
    lost.get_by_role("button", name="Remove").click()
    lost.get_by_role("button", name="Remove").click()
    expect(lost).to_have_count(0)
    assert len(fake.sent("DELETE", "agents/a3")) == 1


def test_weights_next_to_a_model_are_uploaded_with_it(open_page: Callable[..., Page], fake: JobsFake) -> None:
    fake.uploads["m.onnx"] = model_upload("m.onnx", external=[{"path": "weights/m.data", "size_bytes": 4096}])
    fake.uploads["m.data"] = part = part_upload("m.data", 4096)
    page = open_page()
    page.locator("input[type=file]").first.set_input_files({"name": "m.onnx", "mimeType": "", "buffer": b"m"})
    expect(page.get_by_text("weights/m.data is missing: weights of the model lie in it")).to_be_visible()
    expect(submit(page)).to_be_disabled()
    page.locator("input[type=file]").first.set_input_files({"name": "m.data", "mimeType": "", "buffer": b"d"})
    expect(submit(page)).to_be_enabled()
    submit(page).click()
    expect(page.get_by_text("Submitted as j-")).to_be_visible()
    [sent] = fake.sent("POST", "jobs")
    assert sent["model"]["parts"] == [{"path": "weights/m.data", "blob": part["blob"]}]


def test_a_job_is_deleted_and_the_freed_space_is_shown(open_page: Callable[..., Page], fake: JobsFake) -> None:
    page = open_page(job="j-done")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("group", name="Delete this job and its")).to_contain_text("2 results, 11.8 MiB?")
    assert fake.sent("DELETE", "jobs/j-done") == []
    page.get_by_role("button", name="Yes, delete").click()
    expect(page.locator(".detail")).to_have_count(0)
    assert len(fake.sent("DELETE", "jobs/j-done")) == 1
    assert "job=" not in page.url
    expect(open_page(job="j-run").get_by_role("button", name="Cancel job")).to_be_visible()
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)


def test_a_machine_is_drained_shut_out_and_let_in_again(open_page: Callable[..., Page], fake: JobsFake) -> None:
    page = open_page("agents")
    card = page.get_by_role("region", name="gpu-box")
    card.get_by_role("button", name="Drain").click()
    expect(card.get_by_text("drained", exact=True)).to_be_visible()
    card.get_by_role("button", name="Resume").click()
    expect(card.get_by_role("button", name="Drain")).to_be_visible()
    card.get_by_role("button", name="Block").click()
    expect(card).to_contain_text("Its running tasks are reassigned.")
    card.get_by_role("button", name="Block").click()
    expect(card.get_by_text("blocked", exact=True)).to_be_visible()
    expect(card.get_by_role("button", name="Remove")).to_be_visible()
    card.get_by_role("button", name="Unblock").click()
    expect(card.get_by_role("button", name="Drain")).to_be_visible()
    sent = [body["standing"] for body in fake.sent("PATCH", "agents/a2")]
    assert sent == ["drained", "works", "out", "works"]


def test_the_registration_token_is_changed(open_page: Callable[..., Page], fake: JobsFake) -> None:
    page = open_page("agents")
    page.get_by_role("button", name="Replace token").click()
    expect(page.get_by_role("group", name="The commands above stop working")).to_be_visible()
    page.get_by_role("button", name="Replace", exact=True).click()
    expect(page.locator("main")).to_contain_text("--token another")
    assert len(fake.sent("POST", "agents/token")) == 1


@pytest.mark.parametrize("page_name", ["run", "agents"])
def test_every_word_is_translated(open_page: Callable[..., Page], page_name: str) -> None:
    page = open_page(page_name, language="zh", job="j-run")
    expect(page.locator(".agent, .task").first).to_be_visible()
    if page_name == "run":
        choose(page, BERT)
        expect(page.locator(".specs")).to_be_visible()
        for folded in page.locator("summary").all():
            folded.click()
    assert raw_keys(page) == []
    keys = page.evaluate("document.body.innerText.match(/\\b(?:run|agents|evaluation)\\.[a-z_]+\\b/g)")
    assert keys is None


@pytest.mark.parametrize("name", ["run", "agents"])
def test_the_pages_fit_their_windows(open_page: Callable[..., Page], fake: JobsFake, name: str) -> None:
    fake.agents[0]["name"] = HOSTILE + "y" * 200
    fake.agents[0]["capabilities"]["runtimes"][0]["version"] = "2026.4.1-22982-" + "e" * 200
    page = open_page(name, size=(1920, 900), job="j-bad")
    expect(page.locator(".agent, .task").first).to_be_visible()
    nothing_ran(page)
    page.set_viewport_size({"width": 1280, "height": 900})
    nothing_ran(page)


def test_a_file_that_is_there_is_not_sent_again(serve: Callable[..., Dashboard], visit: Visits) -> None:
    dashboard, sent = serve(None), []
    for name in ("first.onnx", "second.onnx"):
        page = visit(dashboard, "run")
        page.on("request", lambda request: sent.append(request.url) if "/uploads?" in request.url else None)
        content = (SAMPLES / "models" / "resnet10.onnx").read_bytes()
        page.locator("input[type=file]").set_input_files({"name": name, "mimeType": "", "buffer": content})
        expect(page.locator(".model")).to_contain_text(name)
    assert [url.partition("name=")[2] for url in sent] == ["first.onnx"]


@pytest.mark.long
def test_a_model_is_measured_here_and_its_result_opens(serve: Callable[..., Dashboard], visit: Visits) -> None:
    pytest.importorskip("onnxruntime")
    model = recording_path(f"models/onnx/{MODEL}")
    page = visit(serve(None, "--with-agent"), "run")
    page.locator("input[type=file]").set_input_files(model)
    expect(page.get_by_role("table", name="Configurations")).to_be_visible()
    row = page.get_by_role("table", name="Configurations").locator("tbody")
    expect(row.first.get_by_label("Runtime")).to_have_value("onnxruntime")
    while row.count() > 1:
        row.last.get_by_role("button", name="Remove").click()
    page.get_by_label("Sizes of the swept dimension").fill("1:2")
    page.locator(".measuring:not(.load) summary").click()
    page.get_by_label("Min. time").fill("0.2")
    page.get_by_label("Min. samples").fill("20")
    expect(submit(page)).to_have_text("Submit 2 points × 1 configuration")
    expect(submit(page)).to_be_enabled()
    submit(page).click()
    points = page.get_by_role("list", name="Points so far").get_by_role("listitem")
    expect(points).to_have_count(2, timeout=60_000)
    expect(page.locator(".line").first).to_contain_text("Done", timeout=60_000)
    page.get_by_role("link", name="Open result").click()
    expect(page.get_by_role("heading", name="Average step")).to_be_visible()
    expect(page.get_by_text("Measured by a job: 2 measurements")).to_be_visible()
    page.get_by_role("link", name="Open Results").click()
    expect(page.get_by_role("img", name="Throughput by batch size").locator("canvas")).to_be_visible()
