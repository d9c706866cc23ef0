"""Measure a model in many configurations, on this machine or on a server: shared by `advise` and `search`."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from visualprof.cli import _request, _watch, submit
from visualprof.cli._sending import model_of
from visualprof.cli._server import Json, Server
from visualprof.errors import BadParameter, VisualprofError

if TYPE_CHECKING:
    from visualprof.remote.queue.draft.compose import CheckedDraft
    from visualprof.remote.queue.store.records import Agent

Stage = Literal["advise", "search"]
REPORT_S, REPORT_POLL_S = 30.0, 0.3  # until the server has read the files of a job that has just ended
DraftFields = Callable[[dict[str, str]], Json]  # (sha256 of the data by input name) -> draft fields

TRIALS = "work/box/out/search.json"
NOUN: dict[Stage, str] = {"advise": "advice", "search": "search"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the machine, the inputs and the measurement of the model itself."""
    add = parser.add_argument
    add(
        "--server",
        default="",
        metavar="URL",
        help="Measure on the machines of this server (default: measure on this machine).",
    )
    add("--token", default="", metavar="T", help="Token of the server.")
    submit.add_inputs(parser)
    submit.add_specs(parser)
    sent = ("concurrency", "rate", "slo", "mlperf", "price_per_hour", "max_s", "quiet_host", "pin", "repeat")
    parser.add_argument("--name", default="", help="Name of the job in the list (with --server).")
    parser.set_defaults(**dict.fromkeys(sent), priority="normal", profile_runs=None, min_s=1.0, timeout=None)


def run_tuning(args: argparse.Namespace, stage: Stage, asked: DraftFields) -> tuple[Json, str]:
    """Measure a model and run a stage; return its table and the id of the report that contains it."""
    return _at_server(args, stage, asked) if args.server else _run_here(args, stage, asked)


def _at_server(args: argparse.Namespace, stage: Stage, asked: DraftFields) -> tuple[Json, str]:
    """Submit a job and wait for it."""
    server = Server(args.server, args.token)
    files = submit.upload(server, args)
    data: dict[str, str] = {}
    if args.data:
        check_rows(args.data, files.model["model"]["inputs"])
        data = {name: answer["blob"] for name, answer in submit.arrays_of(server, args.data).items()}
    drafted = server.post("jobs/draft", _request.draft(args, f"cli-{uuid.uuid4().hex}", files) | asked(data))
    if drafted["errors"]:
        raise _draft_error(drafted["errors"])
    request = drafted["request"]
    request["specs"] = request["specs"][:1]  # the other configurations become candidates
    answer = submit.submitted(server, request)
    print(f"job {answer['job']['id']}: {server.url}#/run?job={answer['job']['id']}", file=sys.stderr)
    answer = _watch.wait(server, answer["job"]["id"], sys.stderr)
    runs = [task["run"] for task in answer["job"]["tasks"] if task["run"]]
    if not runs:
        raise VisualprofError("the job ended without a result", "the Jobs page has its log")
    warnings = [text for task in answer["job"]["tasks"] for text in task["warnings"]]
    has_failed = any(text.startswith(f"no {NOUN[stage]}: ") for text in warnings)
    path = f"evaluation/overlay?{urllib.parse.urlencode({'reports': runs[0]})}"
    end_s = time.monotonic() + (0 if has_failed else REPORT_S)
    while not (columns := server.get(path)[NOUN[stage]])["report"] and time.monotonic() < end_s:
        time.sleep(REPORT_POLL_S)
    return _with_report(columns, stage, next(iter(warnings), "")), runs[0]


def _with_report(columns: Json, stage: Stage, otherwise: str = "") -> Json:
    if not columns["report"]:
        error = f"there is no {NOUN[stage]}"
        raise VisualprofError(f"{error}: {otherwise}" if otherwise else error, "see the log")
    return columns


def _draft_error(errors: list[Json]) -> BadParameter:
    first = errors[0]
    named = f"{first['field']}: " if first["field"] else ""
    return BadParameter(f"{named}{first['error']}", first["hint"] or "")


def _run_here(args: argparse.Namespace, stage: Stage, asked: DraftFields) -> tuple[Json, str]:
    """Run everything on this machine, in child processes like those of an agent."""
    from visualprof.cli._subjects import reports_below
    from visualprof.remote.agent import bundle
    from visualprof.remote.agent.machine.nvml import Nvml
    from visualprof.remote.agent.machine.processes import default_memory_bytes
    from visualprof.remote.agent.machine.runtimes import probe_all
    from visualprof.remote.agent.machine.sandbox import sandbox_level
    from visualprof.remote.agent.work.local_task import TaskFiles, run_local_task
    from visualprof.remote.protocol import TaskFailure, agent_unsupported_reason
    from visualprof.views.evaluation import EvaluationParams, compute

    if why := agent_unsupported_reason():
        raise VisualprofError(why, f"{NOUN[stage]} is measured by agents: --server URL")
    folder = args.output or Path(f"{Path(args.model).stem}-{NOUN[stage]}")
    if folder.exists() and not (folder / "job.json").is_file():
        raise BadParameter(f"{folder} is there and no result", "name another folder: -o DIR")
    machine = probe_all([], [], sandbox_level("auto", _say), Nvml(), _say)
    with _work_folder(folder, stage) as place:
        queue = _LocalQueue(machine.capabilities, place)
        drafted = queue.drafted(args, asked)
        files = TaskFiles(queue.model, queue.parts, queue.inputs, queue.data)
        work, stages = place / "work", ("measure:0", stage)
        begun = _saved_trials(place, folder)
        result = work / "box" / "out"
        try:
            result = run_local_task(
                drafted.request,
                files,
                stages,
                machine=machine,
                memory_bytes=default_memory_bytes(),
                code=bundle.child_archive(),
                folder=work,
                say=_say,
                earlier_trials=begun,
            )
        except TaskFailure as failure:
            raise VisualprofError(failure.error, failure.hint) from None
        except KeyboardInterrupt:
            if stage != "search" or not (result / "search.json").is_file():
                raise
            _say("stopped; the trials so far are kept, and the same command resumes the search")
        _install_result(result, folder)
    reports = reports_below(str(folder))
    print(f"results: {folder}; open them with: visualprof {shlex.quote(str(folder))}", file=sys.stderr)
    columns = getattr(compute(reports, EvaluationParams()), NOUN[stage]).columns
    return _with_report({name: list(getattr(columns, name)) for name in columns.__struct_fields__}, stage), ""


@contextmanager
def _work_folder(folder: Path, stage: Stage) -> Generator[Path]:
    """Provide the work folder of a stage. The trials of a search stay next to its result until they are moved there."""
    if stage != "search":
        with tempfile.TemporaryDirectory(prefix=f"visualprof-{stage}-") as temporary:
            yield Path(temporary)
        return
    place = folder.with_name(f"{folder.name}.part").absolute()
    place.mkdir(parents=True, exist_ok=True)
    try:
        yield place
    finally:
        if not (place / TRIALS).is_file():
            shutil.rmtree(place, ignore_errors=True)


def _saved_trials(*folders: Path) -> bytes:
    """Return the trials of a search that was killed or stopped, b"" if it has ended."""
    for file in (folders[0] / TRIALS, folders[1] / "search.json"):
        if file.is_file():
            return file.read_bytes()
    return b""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _install_result(result: Path, folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    shutil.move(str(result), folder)


def check_rows(path: Path, inputs: list[Json]) -> None:
    """Reject rows that do not fit a model before any is uploaded.

    Args:
        inputs: Inputs of the model, as the server reports them.

    Raises:
        BadParameter: The rows do not fit.
    """
    from visualprof.remote.protocol import Input
    from visualprof.remote.queue.check.rows import row_errors
    from visualprof.remote.queue.check.shapes import Array

    wanted = [Input(row["name"], row["dtype"], row["dims"]) for row in inputs if row["dims"] is not None]
    whole = {name: Array(path.name, str(values.dtype), list(values.shape)) for name, values in rows_of(path).items()}
    fitting = {name: array for name, array in whole.items() if name in {item.name for item in wanted}}
    free = {dim for item in wanted for dim in item.dims if isinstance(dim, str)}
    if error := next(row_errors(wanted, {}, free, fitting if len(wanted) < len(inputs) else whole), None):
        raise BadParameter(f"--data {path.name}: {error.error}", error.hint or "")


def rows_of(path: Path) -> Mapping[str, Any]:
    """Return the arrays of an .npz.

    Raises:
        BadParameter: The file cannot be read.
    """
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise ValueError("a single array without the name of its input")
        with loaded as packed:
            return {name: packed[name] for name in packed.files}
    except (OSError, ValueError, AttributeError) as error:
        raise BadParameter(f"--data {path} cannot be read: {error}", "numpy.savez(path, **{input: rows})") from error


class _LocalQueue:
    """Local stand-in for a server: it knows the files of the command line, and this machine is its only agent."""

    def __init__(self, capabilities: Any, folder: Path) -> None:
        from visualprof.remote.protocol import Intervals
        from visualprof.remote.queue.store.records import Agent

        now = time.time_ns()
        self._agent = Agent(
            id="here",
            owner=None,
            name="this machine",
            public=False,
            local=True,
            address="",
            capabilities=capabilities,
            registered_ns=now,
            seen_ns=now,
        )
        self._kept: dict[str, Json] = {}
        self._folder = folder
        self.urgent = True
        self.intervals = Intervals(lease_s=1e6)
        self.parts: dict[str, Path] = {}
        self.inputs: dict[str, Path] = {}
        self.data: dict[str, Path] = {}

    def inspection(self, sha256: str) -> Json | None:
        """Return the result of inspecting a file."""
        return self._kept.get(sha256)

    def agents(self) -> list[Agent]:
        """Return this machine."""
        return [self._agent]

    def drafted(self, args: argparse.Namespace, asked: DraftFields) -> CheckedDraft:
        """Return the job that the command line describes.

        Raises:
            VisualprofError: The job is invalid.
        """
        from visualprof.remote.queue.draft.compose import compose
        from visualprof.remote.queue.draft.forms import parse_draft

        self.model = model_of(Path(args.model))
        model = self._file(self.model, "")
        parts = {place: self._part(place) for place in _request.external(model)}
        pairs = _request.pairs(args.input, "--input", "data=data.npy")
        self.inputs = {name: Path(file) for name, file in pairs.items()}
        arrays = {name: self._file(path, "array") for name, path in self.inputs.items()}
        data = self._data(args.data) if args.data else {}
        files = _request.Files(model, arrays, parts)
        body = _request.draft(args, "here", files) | asked(data)
        drafted = compose(parse_draft(body), self)
        if drafted.errors:
            raise _draft_error([asdict(error) for error in drafted.errors])
        return drafted

    def _file(self, path: Path, kind: str) -> Json:
        """Return the answer that a server would give to the upload of a file."""
        from visualprof.remote.agent.child_files import file_sha256
        from visualprof.remote.queue.check.inspect import inspect_file, inspection_to_json

        try:
            blob = file_sha256(path)
        except OSError as error:
            raise BadParameter(f"{path} cannot be read: {error.strerror}") from error
        inspected = inspection_to_json(inspect_file(path, path.name))
        if kind and inspected["kind"] != kind:
            raise BadParameter(f"{path.name} is a model", "an input is an .npy file: --input NAME=FILE.npy")
        self._kept[blob] = inspected | {"name": path.name, "size_bytes": path.stat().st_size}
        return {"blob": blob, "name": path.name, "model": inspected, "others": []}

    def _part(self, place: str) -> str:
        from visualprof.remote.agent.child_files import file_sha256

        file = self.model.parent / place
        if not file.is_file():
            raise BadParameter(f"{file} is missing: weights of {self.model.name} lie in it", "it belongs beside it")
        self.parts[place] = file
        blob = file_sha256(file)
        self._kept[blob] = {"kind": "part", "size_bytes": file.stat().st_size, "name": place}
        return blob

    def _data(self, path: Path) -> dict[str, str]:
        """Save the arrays of an .npz as separate files; return their sha256 by name."""
        import numpy as np

        for i, (name, values) in enumerate(rows_of(path).items()):
            self.data[name] = self._folder / f"data{i}.npy"
            np.save(self.data[name], values, allow_pickle=False)
        return {name: cast("str", self._file(file, "array")["blob"]) for name, file in self.data.items()}
