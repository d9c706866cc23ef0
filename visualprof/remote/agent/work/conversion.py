"""Runs the conversion of a model in a child, with the limits and the sandbox of any child."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from visualprof.messages import msg
from visualprof.remote.agent.child_files import link_or_copy, regular_file_inside, remove_folder, walk_files
from visualprof.remote.agent.machine.monitor import Monitor
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.work.child_events import TaskProgress
from visualprof.remote.agent.work.child_process import CappedLog, Child
from visualprof.remote.agent.work.result_folder import WorkFolder, part_path, safe_name
from visualprof.remote.agent.work.stage_runner import StageRunner, require_sandbox
from visualprof.remote.converters import Conversion, Converted, all_converters
from visualprof.remote.protocol import TaskFailure, build

MONITOR_INTERVAL_S = 0.5
INVALID_RESULT_HINT = msg("agent.converter_broken_model_hostile", "the converter is broken, or the model is hostile")


@dataclass(frozen=True)
class ConversionEnvironment:
    """The interpreter and the limits of conversions.

    Attributes:
        python: The interpreter.
        prefixes: Folders of the interpreter.
        level: Level of the sandbox.
        memory_bytes: Memory limit of the child.
        code: The child's archive.
        check: Called regularly; raises StopRequested to stop the conversion.
        on_child_start: Called with each child.
    """

    python: str
    prefixes: tuple[str, ...]
    level: int
    memory_bytes: int
    code: bytes
    check: Callable[[], None] = lambda: None
    on_child_start: Callable[[Child], None] = lambda _: None


@dataclass(frozen=True)
class ConvertedModel:
    """A converted model, stored in `folder / converted.file`.

    Attributes:
        converted: Description of the conversion.
        folder: Folder of the model.
        files: Sizes of all files of the folder, by path.
    """

    converted: Converted
    folder: Path
    files: dict[str, int]

    @property
    def model(self) -> Path:
        """The file that a runtime opens."""
        return self.folder / self.converted.file

    @property
    def size_bytes(self) -> int:
        """Total size of all files."""
        return sum(self.files.values())


def convert(
    conversion: Conversion,
    parts: Mapping[str, Path],
    folder: Path,
    environment: ConversionEnvironment,
    timeout_s: float = 600.0,
) -> ConvertedModel:
    """Convert a model.

    Args:
        conversion: What to convert, and how.
        parts: Files that the model names, by their paths relative to the model.
        folder: Work folder. It is emptied first; its `log.txt` is the converter's log.
        environment: Where the conversion runs.
        timeout_s: Time limit.

    Raises:
        TaskFailure: The conversion failed.
        StopRequested: The conversion was stopped.
    """
    work, event = _run_stage("convert", conversion, parts, folder, environment, timeout_s)
    return _validate(work.out / "made", event)


def inapplicable_reasons(
    file_format: str,
    model: Path,
    parts: Mapping[str, Path],
    folder: Path,
    environment: ConversionEnvironment,
    timeout_s: float = 120.0,
) -> dict[str, str]:
    """Return why each converter of the model's format cannot be applied to the model; "" if it can.

    Raises:
        TaskFailure: The check failed.
        StopRequested: The check was stopped.
    """
    _, event = _run_stage("applies", Conversion(file_format, str(model)), parts, folder, environment, timeout_s)
    rows = event.get("applies")
    return {str(name): str(why) for name, why in cast("dict[Any, Any]", rows if isinstance(rows, dict) else {}).items()}


def _run_stage(
    stage: str,
    conversion: Conversion,
    parts: Mapping[str, Path],
    folder: Path,
    environment: ConversionEnvironment,
    timeout_s: float,
) -> tuple[WorkFolder, dict[str, Any]]:
    require_sandbox(conversion.model, environment.level)
    remove_folder(folder)
    work = WorkFolder(folder.absolute())
    _lay_out(work, conversion, parts, environment.code)
    progress = TaskProgress(lambda _: None, lambda: None)
    log, monitor = CappedLog(work.log), Monitor(work.monitor, MONITOR_INTERVAL_S, Nvml(), [])
    runner = StageRunner(
        work=work,
        device=next((kind.device for kind in all_converters() if kind.name == conversion.converter), "cpu"),
        timeout_s=timeout_s,
        python=Path(environment.python),
        prefixes=environment.prefixes,
        level=environment.level,
        memory_bytes=environment.memory_bytes,
        monitor=monitor,
        log=log,
        progress=progress,
        check=environment.check,
        on_child_start=environment.on_child_start,
    )
    try:
        runner.run(stage, time.monotonic() + timeout_s)
    finally:
        monitor.close()
        log.close()
    return work, progress.converted


def _lay_out(work: WorkFolder, conversion: Conversion, parts: Mapping[str, Path], code: bytes) -> None:
    """Place the files of a conversion where the child can read them."""
    models, source = work.files / "model", Path(conversion.model)
    models.mkdir(parents=True)
    work.out.mkdir(parents=True)
    model = models / safe_name(source.name)
    link_or_copy(source, model)
    for path, file in parts.items():
        link_or_copy(file, part_path(models, path))
    data = work.files / "data.npz" if conversion.data else None
    if data:
        link_or_copy(Path(conversion.data), data)
    work.code.write_bytes(code)
    stem = Path(safe_name(f"{conversion.stem}.x")).stem if conversion.stem else ""
    task = replace(conversion, model=str(model), data=str(data or ""), stem=stem)
    work.task.write_text(json.dumps({"conversion": asdict(task)}), "utf-8")


def _validate(folder: Path, event: Mapping[str, Any]) -> ConvertedModel:
    """Check the output of a child, which may be anything.

    Raises:
        TaskFailure: `rejected`.
    """
    try:
        converted: Converted = build(Converted, event)
        counts: list[object] = [*converted.before.values(), *converted.after.values(), converted.took_ns]
        texts: list[object] = [*converted.options.values(), *converted.tools.values(), *converted.runtimes]
        texts += [converted.file, converted.converter, converted.format, *converted.settings.values()]
        well_typed = all(isinstance(count, int) for count in counts) and all(isinstance(text, str) for text in texts)
    except (TypeError, KeyError, AttributeError) as error:
        raise TaskFailure(
            "rejected",
            msg("agent.child_did_not_tell", f"the child did not report its result: {error}"),
            INVALID_RESULT_HINT,
        ) from None
    names = [path.relative_to(folder).as_posix() for path in walk_files(folder)]
    sizes = {name: file.stat().st_size for name in names if (file := regular_file_inside(folder, name))}
    has_model = any(name == converted.file or name.startswith(f"{converted.file}/") for name in sizes)
    if not well_typed or len(sizes) < len(names) or not has_model:
        raise TaskFailure(
            "rejected",
            msg("agent.child_made_links_not", "the child created links, or not the model that it reported"),
            INVALID_RESULT_HINT,
        )
    return ConvertedModel(converted, folder, sizes)
