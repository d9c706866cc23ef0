"""A user who has only Python: no runtime, no browser, no compiled page, an empty home directory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import pytest

from tests.conftest import ROOT

PATIENCE_S = 60
Ask = Callable[[str], Any]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(os.name == "nt", reason="the paths are those of a Unix"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with what `pip install .` brings."""
    folder = tmp_path_factory.mktemp("newcomer")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "venv" / "bin" / "python"]
    install = [*pip, "install", "-q", "--no-compile", ROOT]  # most of what it would compile is never imported
    subprocess.run(install, check=True, env={**os.environ, "VISUALPROF_SKIP_FRONTEND": "1"})
    return folder


def demo(home: Path, *options: str) -> subprocess.Popen[str]:
    bare = {"HOME": str(home), "PATH": os.defpath}
    command = [home / "venv" / "bin" / "visualprof", "demo", *options]
    return subprocess.Popen(command, env=bare, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def opened(home: Path) -> Iterator[tuple[str, Ask]]:
    """Return what the printed link opens, and a function that sends the requests of the pages."""
    process = demo(home, "--port", "0")
    assert process.stdout
    match = re.search(r"(http://[^/]+/)\S*#/(\S+)", process.stdout.readline())
    assert match, process.communicate()
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(path: str) -> Any:
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return json.loads(direct.open(f"{match[1]}api/v1/{path}", timeout=PATIENCE_S).read())
            except urllib.request.HTTPError as error:  # noqa: PERF203 - the loop sleeps
                # 503: it is being read
                if error.code != 503 or time.monotonic() > end:
                    raise
                time.sleep(0.1)

    yield match[2], ask
    process.terminate()
    process.communicate(timeout=30)


def numbers(value: Any) -> int:
    """How many there are in an answer."""
    if isinstance(value, (dict, list)):
        return sum(map(numbers, value.values() if isinstance(value, dict) else value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def test_every_command_answers_or_names_what_is_missing(home: Path) -> None:
    process = demo(home, "--check")
    out, error = process.communicate(timeout=10 * PATIENCE_S)
    assert process.returncode == 0, error
    assert "no job is run: ONNX Runtime is not installed (pip install" in error
    assert re.search(r"\d\d profiles, \d{3} answers, 0 problems", out)


def test_the_link_opens_an_overview_with_numbers(opened: tuple[str, Ask]) -> None:
    link, ask = opened
    page, _, query = link.partition("?")
    (run,) = parse_qs(query)["run"]
    assert page == "overview"
    overview = ask(f"view/overview?run={quote(run, safe='')}")
    assert overview["headline"]["step_median_ns"] > 0
    assert ask(f"view/findings?run={quote(run, safe='')}")["findings"]


def test_every_page_has_something_to_show(opened: tuple[str, Ask]) -> None:
    _, ask = opened

    def workers_now() -> list[tuple[str, Any]]:
        return [(run["id"], worker) for run in ask("runs")["runs"] for worker in run["workers"]]

    while any(span["state"] in ("waiting", "parsing") for _, worker in workers_now() for span in worker["spans"]):
        time.sleep(0.1)
    workers = workers_now()
    views = defaultdict[str, list[tuple[str, str]]](list)
    for run, worker in workers:
        for view in {view for span in worker["spans"] for view in span["views"]}:
            views[view].append((run, worker["id"]))
    assert views.keys() >= {"overview", "operator", "kernel", "trace", "memory", "distributed", "profile"}
    for view, places in views.items():
        named = (f"run={quote(run, safe='')}&worker={quote(worker, safe='')}" for run, worker in reversed(places))
        answers = (ask(f"view/{view}?{place}") for place in named)
        assert any(numbers(answer) > 10 for answer in answers), view  # no kernels follow each other in some
    while (match := ask(f"models/match?run={quote('pytorch-cpu/gpt', safe='')}&worker=gpt"))["reading"]:
        time.sleep(0.1)
    assert match["best"] == "pytorch-cpu/gpt.graph.json"


def test_the_pages_of_jobs_show_a_sample_that_is_marked(opened: tuple[str, Ask]) -> None:
    _, ask = opened
    reports = ask("evaluation")["reports"]
    assert len(reports) == 4
    assert all(report["sample"] and report["points"] == 6 for report in reports)
    overlay = ask("evaluation/overlay?" + "&".join(f"reports={quote(report['id'])}" for report in reports))
    assert [v["report"] for v in overlay["verdicts"] if v["id"] == "sample"] == [r["id"] for r in reports]
    assert overlay["charts"].keys() == {"throughput", "qps", "latency", "tradeoff"}
    (job,) = ask("jobs")["jobs"]
    assert (job["sample"], job["state"], len(job["tasks"])) == (True, "succeeded", 4)
    machines = {row["name"]: row for row in ask("agents")["agents"]}
    assert machines["sample"]["online"] is False
