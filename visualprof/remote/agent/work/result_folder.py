"""The work folder of a task, and the files of its result that the agent writes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from visualprof.messages import msg
from visualprof.remote.agent.child_files import is_regular, link_or_copy, regular_file_inside, remove_path, walk_files
from visualprof.remote.agent.errors import Outcome
from visualprof.remote.agent.link import transfer
from visualprof.remote.agent.machine.host_settings import read_host_settings
from visualprof.remote.agent.machine.probe import Machine
from visualprof.remote.agent.work.case_result import complete_case
from visualprof.remote.agent.work.child_events import TaskProgress, sanitize
from visualprof.remote.agent.work.monitor_samples import ProfileTrace, add_counters, complete_points
from visualprof.remote.agent.work.repeats import merge_points_file
from visualprof.remote.backends import backend
from visualprof.remote.protocol import JOB_SCHEMA, Lease, Spec, TaskFailure

RESERVED_NAMES = set(
    """
    job.json env.json status.json points.jsonl latencies.bin monitor.jsonl timeline.json profile.json
    executed.onnx log.txt advice.json case.json search.json
    """.split()
)
SMALL_FILE_BYTES = 1 << 20
COUNTER_KINDS = ("chrome_list", "chrome_object")
PROFILE_KEYS = ("pass", "file", "start_ns", "batch", "runs", "error")
# Fields of the capabilities that env.json repeats.
MACHINE_KEYS = ("platform", "machine", "system", "hostname", "cpu", "cores", "gpus", "sandbox", "price_per_hour")


class WorkFolder:
    """Paths of one task.

    Attributes:
        folder: The work folder.
        mark: Value that identifies the task's processes.
        box: The child's folder, with task.json, events.jsonl and out/.
        out: The result folder.
        events: Events of the child.
        task: Description of the task for the child.
        task_inside: The same with the paths inside the sandbox; out of the child's reach.
        files: Model, inputs and code, which the child may only read.
        code: The child's archive.
        monitor: Samples of the monitor, out of the child's reach until it has ended.
        log: Log of the task, out of the child's reach like the samples.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = str(folder)
        self.box = folder / "box"
        self.out = self.box / "out"
        self.events = self.box / "events.jsonl"
        self.task = self.box / "task.json"
        self.task_inside = folder / "task.json"
        self.files = folder / "files"
        self.code = self.files / "code.pyz"
        self.monitor = folder / "monitor.jsonl"
        self.log = folder / "log.txt"

    def lay_out(
        self,
        lease: Lease,
        model: Path,
        inputs: dict[str, Path],
        cpus: list[int],
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the child's folder with task.json.

        Args:
            lease: Lease of the task.
            model: Path of the model.
            inputs: Paths of arrays, by input name.
            cpus: CPUs that the child may use; empty for all.
            extra: Further fields of task.json, such as those for advice and search.
        """
        self.out.mkdir(parents=True)
        paths = {name: str(path) for name, path in inputs.items()}
        task = {"lease": asdict(lease), "model": str(model), "inputs": paths, "cpus": cpus, **(extra or {})}
        self.task.write_text(json.dumps(task), "utf-8")

    def free_space(self) -> None:
        """Remove the large files of a result after the disk filled up, because they are incomplete."""
        for file in walk_files(self.out):
            if is_regular(file) and file.stat().st_size > SMALL_FILE_BYTES:
                file.unlink()


def tuning_context(machine: Machine, data: Mapping[str, Path], memory_bytes: int) -> dict[str, Any]:
    """Return the fields of task.json for the stages `advise` and `search`: the machine's tools and the user's data."""
    return {
        "data": {name: str(path) for name, path in data.items()},
        "runtimes": [asdict(runtime) for runtime in machine.capabilities.runtimes],
        "converters": machine.converters,
        "memory_bytes": memory_bytes,
    }


def safe_name(name: str) -> str:
    """Return a model's name as a plain file name that no other file of the result uses."""
    last = PurePosixPath(name.replace("\\", "/")).name
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", last).lstrip(".")[-120:] or "model"
    return f"model-{plain}" if plain in RESERVED_NAMES else plain


def part_path(folder: Path, path: str) -> Path:
    """Return the path of a file that the model names, in the model's folder. Its parent folder is created.

    Raises:
        TaskFailure: The path leads out of the folder.
    """
    if not transfer.is_valid_name(path):
        raise TaskFailure(
            "agent_error",
            msg("agent.server_names_file_beside", f"{path[:100]!r} is not a valid path for a file of the model"),
        )
    target = folder / path
    target.parent.mkdir(exist_ok=True)
    return target


def complete_result(
    work: WorkFolder, lease: Lease, outcome: Outcome, progress: TaskProgress, env: Mapping[str, Any], started_ns: int
) -> None:
    """Add the agent's files to the result folder.

    Args:
        work: The work folder.
        lease: Lease of the task.
        outcome: How the task ended.
        progress: Progress of the task.
        env: Result of `describe_environment`.
        started_ns: Start of the task, in ns since the epoch.

    Raises:
        OSError: A file cannot be written.
    """
    if work.out.is_symlink() or not work.out.is_dir():
        work.out.unlink(missing_ok=True)
        work.out.mkdir(parents=True)
    for file in (work.monitor, work.log):
        if file.is_file():
            link_or_copy(file, work.out / file.name)
    complete_points(work.out / "points.jsonl", work.monitor)
    if lease.request.case.name:
        complete_case(work.out, work.monitor, lease, outcome, env)
    if lease.request.repeat > 1:
        merge_points_file(work.out / "points.jsonl")
    for profile in progress.profiles:
        _add_counters(work, profile, progress.warnings)
    status = {
        "schema": JOB_SCHEMA,
        **outcome,
        "warnings": progress.warnings,
        "started_ns": started_ns,
        "finished_ns": time.time_ns(),
        "load_ns": progress.load_ns,
        "not_measured": progress.not_measured,
        "profiles": [_profile_row(profile) for profile in progress.profiles],
    }
    for name, body in (("job.json", _job_body(lease)), ("env.json", env), ("status.json", status)):
        _write(work.out, name, body)


def read_warnings(work: WorkFolder) -> list[str]:
    """Return the warnings of a completed result."""
    status: dict[str, Any] = json.loads((work.out / "status.json").read_text("utf-8"))
    return list(map(str, status["warnings"]))


def describe_environment(
    spec: Spec, agent: Mapping[str, str], machine: Machine, progress: TaskProgress
) -> dict[str, Any]:
    """Return where a task ran, for env.json.

    Args:
        spec: Run configuration of the task.
        agent: Name and id of the agent.
        machine: The machine.
        progress: Progress of the task.
    """
    capabilities, runtime = asdict(machine.capabilities), machine.newest_runtime(spec)
    return {
        **agent,
        **asdict(read_host_settings()),
        **{name: capabilities[name] for name in MACHINE_KEYS},
        "visualprof": capabilities["version"],
        "python": runtime.python_version if runtime else "",
        "backend": spec.backend,
        "version": progress.version or (runtime.version if runtime else spec.version),
        "device": spec.device,
        "effective": progress.effective,
    }


def _job_body(lease: Lease) -> dict[str, Any]:
    """Return the request, for job.json. The server copies the model into the result under the name `file`."""
    model = lease.request.model
    file = {"name": model.name, "sha256": model.blob, "format": _model_format(lease), "file": safe_name(model.name)}
    row = {"schema": JOB_SCHEMA, "job": lease.job, "task": lease.task, "attempt": lease.attempt}
    request = {"name": lease.request.name, "spec": asdict(lease.spec), "request": asdict(lease.request)}
    return {**row, "model": file, **request}


def _model_format(lease: Lease) -> str:
    """Return the format of the model, if its suffix identifies it; otherwise ""."""
    try:
        files = backend(lease.spec.backend).files
    except KeyError:
        return ""
    suffix = Path(lease.request.model.name).suffix.lower()
    return next((file.name for file in files if suffix in file.suffixes), files[0].name if len(files) == 1 else "")


def _profile_row(profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `profiles` in status.json. The profile comes from the child and may be anything."""
    values = {key: sanitize(profile.get(key)) for key in PROFILE_KEYS}
    return {key: value if isinstance(value, (str, int)) else None for key, value in values.items()}


def _add_counters(work: WorkFolder, profile: Mapping[str, Any], warnings: list[str]) -> None:
    """Add the monitor's samples to a profile, if its format supports counters."""
    kind, start = profile.get("counters"), profile.get("start_ns")
    file = regular_file_inside(work.out, str(profile.get("file") or "\0"))
    if file and kind in COUNTER_KINDS and isinstance(start, int) and start > 0:
        trace = ProfileTrace(file, kind, start, profile["begin_ns"], profile["end_ns"], profile["pid"])
        try:
            add_counters(trace, work.monitor)
        except ValueError as error:
            warnings.append(
                msg(
                    "agent.profile_shown_without_monitors",
                    f"a profile is shown without the monitor's counters: {error}",
                )
            )


def _write(folder: Path, name: str, body: object) -> None:
    """Write a JSON file atomically, whatever the child left under that name."""
    part = folder / f"{name}.part"
    remove_path(part)
    part.write_text(json.dumps(body, indent=1), "utf-8")
    remove_path(folder / name)
    part.rename(folder / name)
