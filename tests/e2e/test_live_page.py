"""Live runs on the page: the strip, a recording asked for by a click, the times of steps."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tests.e2e.live import PATIENCE_S, ROOT, Dashboard, Page, Visits, expect
from tests.live_files import acknowledge, heartbeat, request, series

MS = 1_000_000


class Ranks:
    """Two ranks that beat, in as many steps as time goes by."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.silent: set[int] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join()

    def _beat(self) -> None:
        step = 1234
        while not self._end.wait(0.1):
            step += 1
            for rank in {0, 1} - self.silent:
                heartbeat(self.run, rank, step=step)


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    beating = Ranks(tmp_path / "runs" / "job")
    yield beating
    beating.end()


def record(page: Page, run: Path) -> str:
    """Presses the button; the id of what was asked for."""
    page.get_by_role("button", name="Record 5 steps").click()
    expect(page.locator(".strip .recording")).to_contain_text("Recording 5 steps")
    return request(run).id


def test_a_run_without_a_recording_is_recorded_by_a_click_and_opens(
    serve: Callable[..., Dashboard], visit: Visits, ranks: Ranks
) -> None:
    page = visit(serve(), "overview", run="job")
    strip = page.locator(".strip")
    expect(strip).to_contain_text(re.compile(r"2 ranks · step 1,\d{3} · "))
    expect(strip).to_contain_text("48.0 ms per step · on node7 · PyTorch")
    expect(page.get_by_text("No recordings of this run yet")).to_be_visible()
    expect(page.locator(".command-line")).to_contain_text("visualprof record")
    page.get_by_role("button", name="Run", exact=False).first.focus()
    page.get_by_label("Steps to record").fill("3")
    page.get_by_role("button", name="Data to record").click()
    page.get_by_label("Python stacks").check()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Record 3 steps").click()
    expect(strip).to_contain_text("Recording 3 steps")
    expect(strip).to_contain_text("ranks 0, 1no answer yet")
    asked = request(ranks.run)
    assert (asked.count, asked.options) == (3, {"memory": True, "shapes": True, "stacks": True})
    expect(page.get_by_role("button", name="Record 3 steps")).to_be_disabled()
    acknowledge(ranks.run, asked.id, 0, "recording")
    acknowledge(ranks.run, asked.id, 1, "armed")
    expect(strip.locator("li.recording")).to_have_text("rank 0recording")
    expect(strip.locator("li.armed")).to_contain_text("rank 1ready")
    names = [f"rank{rank}_node7_{40 + rank}.step1300.pt.trace.json.gz" for rank in (0, 1)]
    for rank, name in enumerate(names):
        shutil.copy(SAMPLES / "pytorch-ddp-cpu" / f"rank{rank}.pt.trace.json.gz", ranks.run / name)
        acknowledge(ranks.run, asked.id, rank, "done", file=name)
    expect(strip).to_contain_text("Recorded 3 steps")
    expect(page.locator(".headline")).to_be_visible()  # it opened by itself
    expect(page).to_have_url(re.compile("span=step1300"))


def test_problems_are_shown_by_rank(serve: Callable[..., Dashboard], visit: Visits, ranks: Ranks) -> None:
    page = visit(serve(), "overview", run="job")
    asked = record(page, ranks.run)
    ranks.silent.add(1)
    time.sleep(0.3)
    heartbeat(ranks.run, 1, ago_s=40.0)
    strip = page.locator(".strip")
    expect(strip.locator("li.trouble")).to_contain_text("rank 1no heartbeat for 4")
    expect(strip.locator(".recording li.silent")).to_contain_text("rank 1")
    for rank in (0, 1):
        acknowledge(ranks.run, asked, rank, "late", why="rank1_node7_41 did not answer in time")
    expect(strip).to_contain_text("Nothing was recorded")
    expect(strip.locator("li.late")).to_contain_text("ranks 0, 1too late")
    expect(strip.locator("li.late")).to_contain_text("Try again.")


def test_a_user_on_another_page_is_not_redirected(serve: Callable[..., Dashboard], visit: Visits, ranks: Ranks) -> None:
    runs = ranks.run.parent
    shutil.copytree(SAMPLES / "pytorch-cpu", runs / "other")
    shutil.copytree(SAMPLES / "pytorch-ddp-cpu", ranks.run, dirs_exist_ok=True)
    dashboard = serve()
    dashboard.wait(lambda spans: len(spans) >= 3 and all(span["state"] == "ready" for span in spans.values()))
    page = visit(dashboard, "overview", run="job")
    asked = record(page, ranks.run)
    page.get_by_role("button", name="Run: job").click()
    page.get_by_role("option").filter(has_text="other").click()
    expect(page).to_have_url(re.compile("run=other"))
    name = "rank0_node7_40.step1300.pt.trace.json.gz"
    shutil.copy(SAMPLES / "pytorch-ddp-cpu" / "rank0.pt.trace.json.gz", ranks.run / name)
    for rank in (0, 1):
        acknowledge(ranks.run, asked, rank, "done", file=name)
    dashboard.wait(lambda spans: spans.get(f"job/{name}", {"state": ""})["state"] == "ready")
    page.wait_for_timeout(2500)  # two looks of the page
    assert "run=other" in page.url
    assert "span=" not in page.url


def test_times_of_steps_lead_to_their_recordings(
    serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "job"
    series(run, 0, [10 * MS] * 20 + [-2, 30 * MS, 30 * MS, -3] + [10 * MS] * 20, first=100)
    page = visit(serve(), "overview", run="job")
    card = page.locator("[data-place=step_times]")
    expect(card).to_contain_text("42 steps, median 10.0 ms")
    expect(page.get_by_text("No recordings of this run yet")).to_be_visible()
    expect(page.locator(".strip")).to_have_count(0)
    for step in (120, 300):
        name = f"rank0_node7_40.step{step}.pt.trace.json.gz"
        shutil.copy(SAMPLES / "pytorch-ddp-cpu" / "rank0.pt.trace.json.gz", run / name)
    page.get_by_role("button", name="step 120").click()
    expect(page).to_have_url(re.compile("span=step120"))
    expect(page.locator(".headline")).to_be_visible()
    page.get_by_role("button", name="step120").click()
    page.get_by_role("option").filter(has_text="step300").click()
    expect(page).to_have_url(re.compile("span=step300"))
    chart = card.get_by_role("application").or_(card.locator("[tabindex='0']")).last
    chart.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("span=step120"))


TRAINING = """
import sys, time, torch
from torch import distributed
from visualprof import capture
rank, port, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
capture.watch(folder, run="job", slow=False)  # a busy machine makes slow steps
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.rand(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    capture.step()
"""


@pytest.mark.slow
@pytest.mark.long
def test_two_real_ranks_are_recorded_by_a_click(serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    visit.tolerate("status of 409")  # the monitor's file comes before the recording, and has no overview
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    runs = tmp_path / "runs"
    dashboard = serve()
    processes = [
        subprocess.Popen([sys.executable, "-c", TRAINING, str(rank), port, str(runs)], cwd=ROOT) for rank in (0, 1)
    ]
    try:
        page = visit(dashboard, "overview", run="job")
        expect(page.locator(".strip")).to_contain_text("2 ranks", timeout=6 * PATIENCE_S * 1000)
        expect(page.locator(".strip")).to_contain_text("per step", timeout=3 * PATIENCE_S * 1000)
        page.get_by_role("button", name="Record 5 steps").click()
        expect(page.locator(".headline")).to_be_visible(timeout=6 * PATIENCE_S * 1000)
        expect(page.locator(".strip")).to_contain_text("Recorded 5 steps")
        expect(page.locator(".strip li.done")).to_contain_text("ranks 0, 1")
        # The monitor's file is there, too.
        spans = [span for file, span in dashboard.spans().items() if ".pt.trace" in file]
        steps = {json.dumps(span["steps"]) for span in spans}
        assert (len(spans), len(steps)) == (2, 1), spans  # both ranks the same five
        assert len(json.loads(steps.pop())) == 5
        expect(page.locator("[data-place=step_times]")).to_contain_text("median")
        processes[1].kill()
        expect(page.locator(".strip li.trouble")).to_contain_text("ended", timeout=3 * PATIENCE_S * 1000)
    finally:
        for process in processes:
            process.kill()
            process.wait()


ALONE = """
import sys, time, torch
from visualprof import capture
capture.watch(sys.argv[1], run="job", slow=False)  # a busy machine makes slow steps
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.rand(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    capture.step()
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_process_of_another_machine_is_recorded_by_a_click(
    serve: Callable[..., Dashboard], visit: Visits, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    visit.tolerate("status of 409")  # as above
    server_folder, other_folder = tmp_path / "runs" / ".visualprof", tmp_path / "there"
    server_folder.mkdir(parents=True)
    (server_folder / "agent-token").write_text("vp_r_of-these-tests")
    dashboard = serve()
    agent = [sys.executable, "-m", "visualprof", "agent", "--server", dashboard.url, "--name", "gpu box"]
    agent += ["--sandbox", "off", "--state", str(tmp_path / "state"), "--watch-runs", str(other_folder)]
    environment = {**os.environ, "VISUALPROF_AGENT_TOKEN": "vp_r_of-these-tests"}
    environment["VISUALPROF_RUNTIMES"] = str(tmp_path / "runtimes")
    commands = agent, [sys.executable, "-c", ALONE, str(other_folder)]
    processes = [subprocess.Popen(command, cwd=ROOT, env=environment) for command in commands]
    try:
        page = visit(dashboard, "overview", run="gpu-box/job")
        strip = page.locator(".strip")
        expect(strip).to_contain_text("per step", timeout=6 * PATIENCE_S * 1000)
        page.get_by_role("button", name="Record 5 steps").click()
        expect(strip).to_contain_text("Recorded 5 steps", timeout=3 * PATIENCE_S * 1000)
        expect(page.locator(".headline")).to_be_visible(timeout=3 * PATIENCE_S * 1000)  # it opened by itself
        expect(page.locator("[data-place=step_times]")).to_contain_text("median")
        (recording,) = (tmp_path / "runs" / "gpu-box" / "job").glob("*.step*.gz")
        assert recording.read_bytes() == (other_folder / "job" / recording.name).read_bytes()
        processes[0].kill()
        processes[0].wait()
        expect(strip).to_contain_text("no heartbeat", timeout=3 * PATIENCE_S * 1000)
        processes[0] = subprocess.Popen(agent, cwd=ROOT, env=environment)
        processes[1].kill()
        processes[1].wait()
        expect(strip).to_contain_text("ended", timeout=3 * PATIENCE_S * 1000)
    finally:
        for process in processes:
            process.kill()
            process.wait()
