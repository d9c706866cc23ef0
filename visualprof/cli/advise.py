"""Tries conversions, runtimes and options of a model, each measured beside it on this machine (or on a server's).

visualprof advise model.onnx --batch 1:64 --max-error 1e-2 --data rows.npz
Each is faster, equal within noise, slower, wrong (its outputs differ), without effect, or failed: docs/advice.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import urllib.parse
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from visualprof.cli import _request, _watch, submit
from visualprof.cli._sending import model_of
from visualprof.cli._server import Json, Server
from visualprof.errors import BadParameter, VisualprofError
from visualprof.remote.protocol import Objective

if TYPE_CHECKING:
    from visualprof.remote.queue.draft.compose import Drafted
    from visualprof.remote.queue.store.records import Agent
    from visualprof.views.answers.kinds import Kind

OBJECTIVES: tuple[str, ...] = tuple(filter(None, get_args(Objective)))
KINDS: dict[str, Kind] = {
    "candidate": "name", "verdict": "word", "ratio": "ratio", "ratio_low": "ratio", "ratio_high": "ratio",
    "latency_ns": "ns", "error": "count", "size_bytes": "bytes", "rss_bytes": "bytes", "convert_ns": "ns",
    "front": "flag", "why": "text",
}  # fmt: skip
MEMORY_SHARE = 0.9  # that a candidate and its original may take together


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("model", metavar="MODEL", help=submit.MODEL)
    add = parser.add_argument
    add(
        "--objective", choices=OBJECTIVES, default="latency", help="what candidates are judged by (default %(default)s)"
    )
    add("--max-error", type=float, default=1e-2, metavar="E", help="beyond it outputs are wrong (default %(default)s)")
    data = "rows of your own, arrays by the inputs' names: every second one calibrates, the others judge"
    add("--data", type=Path, metavar="FILE.npz", help=data)
    add("--metric", type=Path, metavar="FILE.py", help="with metric(original, candidate), lists of outputs -> a number")
    add("--only", action="extend", nargs="+", default=[], metavar="NAME", help="candidates, or how their names begin")
    add("--budget", type=float, default=600.0, metavar="S", help="no candidate begins after (default %(default)s)")
    add("--candidate-s", type=float, default=120.0, metavar="S", help="for each of its steps (default %(default)s)")
    add(
        "-o", "--output", type=Path, metavar="DIR", help="gets the result, with the made models (default: MODEL-advice)"
    )
    add("--format", choices=("table", "json"), default="table", help="of what is printed")
    add("--apply", action="store_true", help="with --server: what passes becomes versions, and their evaluations begin")
    add("--server", default="", metavar="URL", help="measures there; without, on this machine")
    add("--token", default="", metavar="T", help="of the server")
    submit.add_inputs(parser)
    submit.add_specs(parser)
    sent = {"concurrency", "rate", "slo", "mlperf", "price_per_hour", "max_s", "quiet_host", "pin", "repeat"}
    parser.set_defaults(**dict.fromkeys(sent), name="", priority="normal", profile_runs=0, min_s=1.0, timeout=None)


def run(args: argparse.Namespace) -> int:
    """Tries the candidates and prints what became of them."""
    if args.apply and not args.server:
        hint = "start one with `visualprof runs/ --with-agent` and name it: --server http://127.0.0.1:8040"
        raise BadParameter("--apply makes versions, which a server keeps", hint)
    out = _watch.stream(args.format == "json")
    columns = _at_server(args) if args.server else _here(args)
    applied = _applied(args, columns) if args.apply else []
    if args.format == "json":
        print(json.dumps({"advice": columns, "applied": applied}))
    else:
        rows = [{name: columns[name][i] for name in KINDS} for i in range(len(columns["candidate"]))]
        print(_watch.table(rows, KINDS), end="", file=out)
    return 0


def _advise(args: argparse.Namespace, data: dict[str, str]) -> Json:
    """The part of a draft that says what is tried."""
    metric = ""
    if args.metric:
        try:
            metric = args.metric.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise BadParameter(f"--metric {args.metric} cannot be read: {error}") from error
    limits = {"max_error": args.max_error, "budget_s": args.budget, "candidate_s": args.candidate_s}
    return {"objective": args.objective, **limits, "only": args.only, "data": data, "metric": metric}


def _at_server(args: argparse.Namespace) -> Json:
    """Submits a job with advice and waits for it; the table of its candidates."""
    server = Server(args.server, args.token)
    files = submit.upload(server, args)
    data = {name: one["blob"] for name, one in submit.arrays_of(server, args.data).items()} if args.data else {}
    body = _request.draft(args, f"cli-{uuid.uuid4().hex}", files) | {"advise": _advise(args, data)}
    drafted = server.post("jobs/draft", body)
    if drafted["errors"]:
        raise _refused(drafted["errors"])
    request = drafted["request"]
    request["specs"] = request["specs"][:1]  # of several ways to run it the others are candidates
    answer = submit.submitted(server, request)
    print(f"job {answer['job']['id']}: {server.url}#/run?job={answer['job']['id']}", file=sys.stderr)
    answer = _watch.wait(server, answer["job"]["id"], sys.stderr)
    runs = [task["run"] for task in answer["job"]["tasks"] if task["run"]]
    if not runs:
        raise VisualprofError("the job ended without a result", "the Run page has its log")
    args.report = runs[0]
    found = server.get(f"evaluation/overlay?{urllib.parse.urlencode({'reports': runs[0]})}")["advice"]
    return _told(found, next((text for task in answer["job"]["tasks"] for text in task["warnings"]), ""))


def _applied(args: argparse.Namespace, columns: Json) -> list[Json]:
    """Makes versions of what passes."""
    del columns
    answer = Server(args.server, args.token).post("advice/apply", {"report": args.report, "candidates": []})
    for one in answer["versions"]:
        print(f"{one['candidate']}: {one['address']}, job {one['job']}", file=sys.stderr)
    return answer["versions"]


def _told(columns: Json, otherwise: str) -> Json:
    if not columns["candidate"]:
        raise VisualprofError(f"there is no advice: {otherwise}" if otherwise else "there is no advice", "see the log")
    return columns


def _refused(errors: list[Json]) -> BadParameter:
    first = errors[0]
    named = f"{first['field']}: " if first["field"] else ""
    return BadParameter(f"{named}{first['error']}", first["hint"] or "")


def _here(args: argparse.Namespace) -> Json:
    """Tries everything on this machine, in children like those of an agent."""
    import psutil

    from visualprof.cli.view import reports_below
    from visualprof.remote.agent import bundle
    from visualprof.remote.agent.machine.nvml import Nvml
    from visualprof.remote.agent.machine.runtimes import probe_all
    from visualprof.remote.agent.machine.sandbox import sandbox_level
    from visualprof.remote.agent.work.alone import Files, work_alone
    from visualprof.remote.protocol import TaskFailure, no_agent_here
    from visualprof.views.measure.advice import advice_columns

    if why := no_agent_here():
        raise VisualprofError(why, "advice is measured by agents: --server URL")
    folder = args.output or Path(f"{Path(args.model).stem}-advice")
    if folder.exists() and not (folder / "job.json").is_file():
        raise BadParameter(f"{folder} is there and no result", "name another folder: -o DIR")
    machine = probe_all([], [], sandbox_level("auto", _say), Nvml(), _say)
    memory = round(MEMORY_SHARE * psutil.virtual_memory().total)
    with tempfile.TemporaryDirectory(prefix="visualprof-advise-") as place:
        known = _Here(machine.capabilities, Path(place))
        drafted = known.drafted(args)
        files = Files(known.model, known.parts, known.inputs, known.data)
        stages = ("measure:0", "advise")
        try:
            result = work_alone(
                drafted.request, files, stages, machine, memory, bundle.child_archive(), Path(place, "work"), _say
            )
        except TaskFailure as failure:
            raise VisualprofError(failure.error, failure.hint) from None
        _moved(result, folder)
    reports = reports_below(str(folder))
    print(f"{folder}: visualprof {folder} shows it", file=sys.stderr)
    columns = advice_columns(reports)
    return _told({name: list(getattr(columns, name)) for name in columns.__struct_fields__}, "")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _moved(result: Path, folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    shutil.move(str(result), folder)


class _Here:
    """What a server would know of the files of the command line, and this machine as its only agent."""

    def __init__(self, capabilities: Any, folder: Path) -> None:
        from visualprof.remote.protocol import Intervals
        from visualprof.remote.queue.store.records import Agent

        now = time.time_ns()
        self._agent = Agent("here", None, "this machine", False, True, "", capabilities, now, now)
        self._kept: dict[str, Json] = {}
        self._folder = folder
        self.urgent = True
        self.intervals = Intervals(lease_s=1e6)
        self.parts: dict[str, Path] = {}
        self.inputs: dict[str, Path] = {}
        self.data: dict[str, Path] = {}

    def inspected(self, sha256: str) -> Json | None:
        """What inspection found in a file."""
        return self._kept.get(sha256)

    def agents(self) -> list[Agent]:
        """This machine."""
        return [self._agent]

    def drafted(self, args: argparse.Namespace) -> Drafted:
        """The job that the command means. Raises: VisualprofError: what is wrong with it."""
        from visualprof.remote.queue.draft.compose import compose
        from visualprof.remote.queue.draft.forms import draft_of

        self.model = model_of(Path(args.model))
        model = self._file(self.model, "")
        parts = {place: self._part(place) for place in _request.external(model)}
        given = _request.pairs(args.input, "--input", "data=data.npy")
        self.inputs = {name: Path(file) for name, file in given.items()}
        arrays = {name: self._file(path, "array") for name, path in self.inputs.items()}
        data = self._data(args.data) if args.data else {}
        files = _request.Files(model, arrays, parts)
        body = _request.draft(args, "here", files) | {"advise": _advise(args, data)}
        drafted = compose(draft_of(body), self)
        if drafted.errors:
            raise _refused([asdict(error) for error in drafted.errors])
        return drafted

    def _file(self, path: Path, kind: str) -> Json:
        """A file as a server answers its upload."""
        from visualprof.remote.agent.child_files import digest
        from visualprof.remote.queue.check.inspect import as_json, inspect_file

        try:
            blob = digest(path)
        except OSError as error:
            raise BadParameter(f"{path} cannot be read: {error.strerror}") from error
        found = as_json(inspect_file(path, path.name))
        if kind and found["kind"] != kind:
            raise BadParameter(f"{path.name} is a model", "an input is an .npy file: --input NAME=FILE.npy")
        self._kept[blob] = found | {"name": path.name, "size_bytes": path.stat().st_size}
        return {"blob": blob, "name": path.name, "model": found, "others": []}

    def _part(self, place: str) -> str:
        from visualprof.remote.agent.child_files import digest

        file = self.model.parent / place
        if not file.is_file():
            raise BadParameter(f"{file} is missing: weights of {self.model.name} lie in it", "it belongs beside it")
        self.parts[place] = file
        blob = digest(file)
        self._kept[blob] = {"kind": "part", "size_bytes": file.stat().st_size, "name": place}
        return blob

    def _data(self, path: Path) -> dict[str, str]:
        """The arrays of an .npz as files of their own, and their sha256."""
        import numpy as np

        try:
            with np.load(path, allow_pickle=False) as packed:
                arrays = {name: packed[name] for name in packed.files}
        except (OSError, ValueError, AttributeError) as error:
            raise BadParameter(
                f"--data {path} cannot be read: {error}", "numpy.savez(path, **{input: rows})"
            ) from error
        for i, (name, values) in enumerate(arrays.items()):
            self.data[name] = self._folder / f"data{i}.npy"
            np.save(self.data[name], values, allow_pickle=False)
        return {name: cast("str", self._file(file, "array")["blob"]) for name, file in self.data.items()}
