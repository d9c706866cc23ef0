"""Open the dashboard over sample runs of each framework, and measure a model on this machine.

Examples:
  visualprof demo --port 8050
  visualprof demo --copy samples    copy the sample files and exit
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from visualprof.cli._demo_nights import write_nights
from visualprof.cli._server import Server as Client
from visualprof.cli.serve import add_server_arguments, serve, token_of
from visualprof.errors import BadParameter, NotFound
from visualprof.remote.protocol import agent_unsupported_reason
from visualprof.remote.queue.settings import QueueSettings
from visualprof.server.settings import AccessSettings, Settings, WebSettings

_SAMPLES = Path(__file__).parents[1] / "samples"
_MODEL = _SAMPLES / "models" / "resnet10.onnx"
_JOB = _SAMPLES / "resnet10-sample" / "jobs.sql"
_FIRST = "#/overview?run=pytorch-h200%2Fcnn"
_PATIENCE_S = 120
_CASE_MODULES = ("torch", "sklearn", "onnx", "onnxruntime")  # required by the case `digits`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_server_arguments(parser)
    parser.add_argument(
        "--check", action="store_true", help="Run the job, request every view of every run once, and exit with 0 or 1."
    )
    parser.add_argument("--copy", metavar="DIR", help="Copy the sample files to the new folder DIR and exit.")


def run(args: argparse.Namespace) -> int:
    """Serve a temporary copy of the samples."""
    if not _SAMPLES.is_dir():
        raise NotFound(
            "this installation has no sample runs", "install visualprof again: pip install --force-reinstall visualprof"
        )
    if args.copy:
        return _copy_samples(Path(args.copy))
    with tempfile.TemporaryDirectory(prefix="visualprof-demo-", ignore_cleanup_errors=True) as folder:
        runs, jobs = lay_out(Path(folder))
        if args.check:
            return check(runs, jobs, token_of(args))
        os.environ.setdefault("VISUALPROF_ALLOW_ROOT", "1")  # often a container; the sandbox also holds for root
        settings = Settings(
            web=WebSettings(host=args.host, language=args.language, demo=True),
            access=AccessSettings(private=args.private, token=token_of(args)),
            queue=QueueSettings(data=jobs, with_agent=sys.platform.startswith("linux")),
        )
        return serve([str(runs)], args.port, settings, args.open, functools.partial(_fill, runs), _FIRST)


def _copy_samples(folder: Path) -> int:
    """Copy the sample files to a new folder and print its path."""
    try:
        shutil.copytree(_SAMPLES, folder, ignore=shutil.ignore_patterns(_JOB.name))
    except OSError as error:
        raise BadParameter(
            f"the samples cannot be copied to {folder}: {error.strerror or error}",
            "name a folder that does not exist, in a folder that you may write",
        ) from error
    print(folder)
    return 0


def lay_out(folder: Path) -> tuple[Path, Path]:
    """Create a log directory with the samples, and the data of a queue that contains the job of the sample result."""
    runs, jobs = folder / "samples", folder / "jobs"
    ignored = shutil.ignore_patterns(_JOB.name, _MODEL.parent.name)
    shutil.copytree(_SAMPLES, runs, ignore=ignored)  # copies modification times, so that the cache stays valid
    write_nights(_SAMPLES / "pytorch-loader", runs / "nightly")
    (jobs / "blobs").mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(jobs / "jobs.sqlite")) as database:
        database.executescript(_JOB.read_text("utf-8"))
    shutil.copy(_MODEL, jobs / "blobs" / hashlib.sha256(_MODEL.read_bytes()).hexdigest())
    return runs, jobs


def check(runs: Path, jobs: Path | None, token: str = "") -> int:
    """Request everything that a server shows of a folder; return 1 if a request fails or an answer is empty.

    Args:
        jobs: Folder for the jobs; a job is run first unless it is None.
        token: Token of the server.
    """
    from visualprof.server.serve import Server

    began, measuring = time.monotonic(), jobs is not None and _can_measure()
    os.environ.setdefault("VISUALPROF_ALLOW_ROOT", "1")
    queue = QueueSettings(data=jobs, with_agent=measuring)
    with Server([runs], 0, Settings(access=AccessSettings(token=token), queue=queue)) as server:
        server.start()
        problems = [] if not measuring or _measure(server.url, "--wait") == 0 else ["the job did not succeed"]
        spans, unread = _parsed(server.url)
        problems += unread
        questions = [
            f"{kind}/{view}?{query}" for query, views in spans for view in views for kind in ("view", "charts")
        ]
        questions += _about_jobs(server.url) if jobs is not None else []
        for question in questions:
            status, body = _get(f"{server.url}api/v1/{question}")
            if status != 200:
                problems.append(f"{question}: {status} {body.get('error')}")
    for problem in problems:
        print(problem, file=sys.stderr)
    if not spans:
        print("there are no sample runs", file=sys.stderr)
    print(
        f"{len(spans)} profiles, {len(questions)} answers, {len(problems)} problems, {time.monotonic() - began:.1f} s"
    )
    return 1 if problems or not spans else 0


def _can_measure() -> bool:
    """Whether the sample model can be measured here. If not, print what to do."""
    why = agent_unsupported_reason() or "ONNX Runtime is not installed (pip install 'visualprof[onnxruntime]')"
    if importlib.util.find_spec("onnxruntime") and not agent_unsupported_reason():
        return True
    print(f"no job is run: {why}; the Results page shows one that was measured elsewhere", file=sys.stderr)
    return False


def _fill(runs: Path, url: str) -> None:
    """Register the sample model. Measure it and run a benchmark case, if that is possible."""
    from visualprof.cli import main

    main(["model", "add", "resnet10", str(_MODEL), "--server", url])
    if _can_measure():
        _measure(url)
    if all(map(importlib.util.find_spec, _CASE_MODULES)):
        command = [sys.executable, "-m", "visualprof", "case", "run", "digits", "--logdir", str(runs)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _measure(url: str, *options: str) -> int:
    """Measure the sample model; return the exit status of `visualprof submit`."""
    from visualprof.cli import main

    _wait_for_agent(url)
    sizes = ["--batch", "1:8", "--min-s", "0.5", "--name", "resnet10"]
    return main(["submit", str(_MODEL), "--server", url, "--backend", "onnxruntime", *sizes, *options])


def _wait_for_agent(url: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        agents = Client(url).get("agents")["agents"]
        if any(agent["capabilities"]["runtimes"] for agent in agents):
            return
        time.sleep(0.2)


def _about_jobs(url: str) -> list[str]:
    """Return the requests of the pages Jobs, Results and Machines. Without a report the first request is rejected."""
    _, listed = _get(f"{url}api/v1/evaluation")
    overlay = f"evaluation/overlay?{urllib.parse.urlencode([('reports', row['id']) for row in listed['reports']])}"
    table = _get(f"{url}api/v1/{overlay}")[1].get("table", {"report": [], "batch": []})
    points = zip(table["report"], table["batch"], strict=True)
    asked = [urllib.parse.urlencode({"report": report, "batch": batch}) for report, batch in points]
    jobs = [f"jobs/{row['id']}" for row in _get(f"{url}api/v1/jobs")[1]["jobs"]]
    return [overlay, *(f"evaluation/point?{query}" for query in asked), *jobs, "agents", "backends", "models"]


def _parsed(url: str) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """Return the query and the views of each span after parsing, and the spans that could not be parsed."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        _, answer = _get(f"{url}api/v1/runs")
        spans = [(run, worker, span) for run in answer["runs"] for worker in run["workers"] for span in worker["spans"]]
        busy = [span for *_, span in spans if span["state"] in ("waiting", "parsing")]
        if (spans and not busy) or time.monotonic() > end:
            break
        time.sleep(0.1)
    queries = [
        (urllib.parse.urlencode({"run": run["id"], "worker": worker["id"], "span": span["id"]}), span["views"])
        for run, worker, span in spans
    ]
    problems = [f"{span['file']}: {span['state']}: {span['error']}" for *_, span in spans if span["state"] != "ready"]
    return queries, problems + [f"{file['file']}: {file['error']}" for file in answer["skipped"]]


def _get(url: str) -> tuple[int, dict[str, Any]]:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy cannot reach this machine
    try:
        with direct.open(url, timeout=_PATIENCE_S) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
