"""Opens the dashboard over sample runs, one of each framework."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from visualprof.cli.serve import add_server_arguments, serve
from visualprof.errors import NotFound

_SAMPLES = Path(__file__).parents[1] / "samples"
_PATIENCE_S = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_server_arguments(parser)
    parser.add_argument("--check", action="store_true", help="ask for every view of every sample once, and exit 0 or 1")


def run(args: argparse.Namespace) -> int:
    """Serves a copy of the samples, which is gone afterwards."""
    from visualprof.server.app import Settings

    if not _SAMPLES.is_dir():
        raise NotFound(
            "this installation has no sample runs", "install visualprof again: pip install --force-reinstall visualprof"
        )
    settings = Settings(language=args.language, host=args.host)
    with tempfile.TemporaryDirectory(prefix="visualprof-demo-") as folder:
        runs = Path(folder) / "samples"
        shutil.copytree(_SAMPLES, runs)  # times of change included, so that the cache knows the files next time
        return check(runs) if args.check else serve([str(runs)], args.port, settings, args.open)


def check(runs: Path) -> int:
    """Asks a server of its own for everything that it shows of a folder; 1 when anything fails."""
    from visualprof.server.app import Settings
    from visualprof.server.serve import Server

    began = time.monotonic()
    with Server([runs], 0, Settings()) as server:
        server.start()
        spans, problems = _parsed(server.url)
        answers = 0
        for query, views in spans:
            for view in views:
                for kind in ("view", "charts"):
                    answers += 1
                    status, body = _get(f"{server.url}api/v1/{kind}/{view}?{query}")
                    if status != 200:
                        problems.append(f"{kind}/{view}?{query}: {status} {body.get('error')}")
    for problem in problems:
        print(problem, file=sys.stderr)
    if not spans:
        print("there are no sample runs", file=sys.stderr)
    print(f"{len(spans)} profiles, {answers} answers, {len(problems)} problems, {time.monotonic() - began:.1f} s")
    return 1 if problems or not spans else 0


def _parsed(url: str) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """Of each span its query and views, once all are parsed, and what could not be."""
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
    return queries, problems + [f"{each['file']}: {each['error']}" for each in answer["skipped"]]


def _get(url: str) -> tuple[int, dict[str, Any]]:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would not find this machine
    try:
        with direct.open(url, timeout=_PATIENCE_S) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
