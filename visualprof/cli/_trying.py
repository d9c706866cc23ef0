"""Trying a model in many ways, on this machine or on a server's: what `advise` and `search` share."""

from __future__ import annotations

import argparse
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
Asked = Callable[[dict[str, str]], Json]  # fields of a draft, of sha256 of the data by the inputs' names

MEMORY_SHARE = 0.9  # that two processes may take together
TRIALS = "work/box/out/search.json"
NOUN: dict[Stage, str] = {"advise": "advice", "search": "search"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where it is tried, on which inputs, and what is measured of the model itself."""
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
    parser.set_defaults(**dict.fromkeys(sent), name="", priority="normal", profile_runs=None, min_s=1.0, timeout=None)


def tried(args: argparse.Namespace, stage: Stage, asked: Asked) -> tuple[Json, str]:
    """Measure a model and runs a stage: its table, and the report that has it."""
    return _at_server(args, stage, asked) if args.server else _here(args, stage, asked)


def _at_server(args: argparse.Namespace, stage: Stage, asked: Asked) -> tuple[Json, str]:
    """Submit a job and waits for it."""
    server = Server(args.server, args.token)
    files = submit.upload(server, args)
    data: dict[str, str] = {}
    if args.data:
        check_rows(args.data, files.model["model"]["inputs"])
        data = {name: one["blob"] for name, one in submit.arrays_of(server, args.data).items()}
    drafted = server.post("jobs/draft", _request.draft(args, f"cli-{uuid.uuid4().hex}", files) | asked(data))
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
    found = server.get(f"evaluation/overlay?{urllib.parse.urlencode({'reports': runs[0]})}")[NOUN[stage]]
    warning = next((text for task in answer["job"]["tasks"] for text in task["warnings"]), "")
    return _with_report(found, stage, warning), runs[0]


def _with_report(columns: Json, stage: Stage, otherwise: str = "") -> Json:
    if not columns["report"]:
        what = f"there is no {NOUN[stage]}"
        raise VisualprofError(f"{what}: {otherwise}" if otherwise else what, "see the log")
    return columns


def _refused(errors: list[Json]) -> BadParameter:
    first = errors[0]
    named = f"{first['field']}: " if first["field"] else ""
    return BadParameter(f"{named}{first['error']}", first["hint"] or "")


def _here(args: argparse.Namespace, stage: Stage, asked: Asked) -> tuple[Json, str]:
    """Tries everything on this machine, in children like those of an agent."""
    import psutil

    from visualprof.cli.view import reports_below
    from visualprof.remote.agent import bundle
    from visualprof.remote.agent.machine.nvml import Nvml
    from visualprof.remote.agent.machine.runtimes import probe_all
    from visualprof.remote.agent.machine.sandbox import sandbox_level
    from visualprof.remote.agent.work.local_task import Files, work_alone
    from visualprof.remote.protocol import TaskFailure, agent_unsupported_reason
    from visualprof.views.evaluation import EvaluationParams, compute

    if why := agent_unsupported_reason():
        raise VisualprofError(why, f"{NOUN[stage]} is measured by agents: --server URL")
    folder = args.output or Path(f"{Path(args.model).stem}-{NOUN[stage]}")
    if folder.exists() and not (folder / "job.json").is_file():
        raise BadParameter(f"{folder} is there and no result", "name another folder: -o DIR")
    machine = probe_all([], [], sandbox_level("auto", _say), Nvml(), _say)
    memory = round(MEMORY_SHARE * psutil.virtual_memory().total)
    with _place(folder, stage) as place:
        known = _Here(machine.capabilities, place)
        drafted = known.drafted(args, asked)
        files = Files(known.model, known.parts, known.inputs, known.data)
        work, stages = place / "work", ("measure:0", stage)
        begun = _begun(place, folder)
        result = work / "box" / "out"
        try:
            result = work_alone(
                drafted.request, files, stages, machine, memory, bundle.child_archive(), work, _say, begun
            )
        except TaskFailure as failure:
            raise VisualprofError(failure.error, failure.hint) from None
        except KeyboardInterrupt:
            if stage != "search" or not (result / "search.json").is_file():
                raise
            _say("stopped; what was tried is kept, and the same command goes on with it")
        _moved(result, folder)
    reports = reports_below(str(folder))
    print(f"{folder}: visualprof {folder} shows it", file=sys.stderr)
    columns = getattr(compute(reports, EvaluationParams()), NOUN[stage]).columns
    return _with_report({name: list(getattr(columns, name)) for name in columns.__struct_fields__}, stage), ""


@contextmanager
def _place(folder: Path, stage: Stage) -> Generator[Path]:
    """Where a stage works: a search beside its result, where its trials stay until they are moved there."""
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


def _begun(*folders: Path) -> bytes:
    """The trials of a search that was killed, or stopped; none of one that has ended."""
    for file in (folders[0] / TRIALS, folders[1] / "search.json"):
        if file.is_file():
            return file.read_bytes()
    return b""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _moved(result: Path, folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    shutil.move(str(result), folder)


def check_rows(path: Path, inputs: list[Json]) -> None:
    """Refuse rows that do not fit a model before any is sent.

    Args: inputs: of the model, as the server tells them.
    Raises: BadParameter.
    """
    from visualprof.remote.protocol import Input
    from visualprof.remote.queue.check.rows import row_errors
    from visualprof.remote.queue.check.shapes import Array

    wanted = [Input(one["name"], one["dtype"], one["dims"]) for one in inputs if one["dims"] is not None]
    whole = {name: Array(path.name, str(values.dtype), list(values.shape)) for name, values in rows_of(path).items()}
    known = {name: array for name, array in whole.items() if name in {one.name for one in wanted}}
    free = {dim for one in wanted for dim in one.dims if isinstance(dim, str)}
    if error := next(row_errors(wanted, {}, free, known if len(wanted) < len(inputs) else whole), None):
        raise BadParameter(f"--data {path.name}: {error.error}", error.hint or "")


def rows_of(path: Path) -> Mapping[str, Any]:
    """The arrays of an .npz. Raises: BadParameter: it cannot be read."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as packed:
            return {name: packed[name] for name in packed.files}
    except (OSError, ValueError, AttributeError) as error:
        raise BadParameter(f"--data {path} cannot be read: {error}", "numpy.savez(path, **{input: rows})") from error


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

    def inspection(self, sha256: str) -> Json | None:
        """What inspection found in a file."""
        return self._kept.get(sha256)

    def agents(self) -> list[Agent]:
        """This machine."""
        return [self._agent]

    def drafted(self, args: argparse.Namespace, asked: Asked) -> CheckedDraft:
        """The job that the command means. Raises: VisualprofError: what is wrong with it."""
        from visualprof.remote.queue.draft.compose import compose
        from visualprof.remote.queue.draft.forms import parse_draft

        self.model = model_of(Path(args.model))
        model = self._file(self.model, "")
        parts = {place: self._part(place) for place in _request.external(model)}
        given = _request.pairs(args.input, "--input", "data=data.npy")
        self.inputs = {name: Path(file) for name, file in given.items()}
        arrays = {name: self._file(path, "array") for name, path in self.inputs.items()}
        data = self._data(args.data) if args.data else {}
        files = _request.Files(model, arrays, parts)
        body = _request.draft(args, "here", files) | asked(data)
        drafted = compose(parse_draft(body), self)
        if drafted.errors:
            raise _refused([asdict(error) for error in drafted.errors])
        return drafted

    def _file(self, path: Path, kind: str) -> Json:
        """A file as a server answers its upload."""
        from visualprof.remote.agent.child_files import digest
        from visualprof.remote.queue.check.inspect import inspect_file, inspection_to_json

        try:
            blob = digest(path)
        except OSError as error:
            raise BadParameter(f"{path} cannot be read: {error.strerror}") from error
        found = inspection_to_json(inspect_file(path, path.name))
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

        for i, (name, values) in enumerate(rows_of(path).items()):
            self.data[name] = self._folder / f"data{i}.npy"
            np.save(self.data[name], values, allow_pickle=False)
        return {name: cast("str", self._file(file, "array")["blob"]) for name, file in self.data.items()}
