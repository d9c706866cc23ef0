"""A conversion in a child of its own, within the limits and the sandbox of every child."""

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

MONITOR_INTERVAL_S = 0.5  # of the monitor
INVALID_RESULT_HINT = msg("agent.converter_broken_model_hostile", "the converter is broken, or the model is hostile")


@dataclass(frozen=True)
class ConversionEnvironment:
    """Where conversions run.

    python, prefixes: an interpreter and its folders. level: of the sandbox. memory_bytes: that a child may use.
    code: the child's archive. check: raises StopRequested when somebody wants the work to end. started: gets a child.
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
    """A made model: `folder / converted.file`. files: the sizes of all files of the folder, by their paths."""

    converted: Converted
    folder: Path
    files: dict[str, int]

    @property
    def model(self) -> Path:
        """The file that a runtime opens."""
        return self.folder / self.converted.file

    @property
    def size_bytes(self) -> int:
        """Of all of it."""
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
        order: what is asked for.
        parts: files that the model names, by their paths beside it.
        folder: gets everything, and is emptied first; its `log.txt` is the converter's log.
        shop: where it runs.
        timeout_s: after which it is ended.
    Raises: TaskFailure: why there is no model. StopRequested.
    """
    work, told = _run("convert", conversion, parts, folder, environment, timeout_s)
    return _validated(work.out / "made", told)


def inapplicable_reasons(
    file_format: str,
    model: Path,
    parts: Mapping[str, Path],
    folder: Path,
    environment: ConversionEnvironment,
    timeout_s: float = 120.0,
) -> dict[str, str]:
    """Why a model is nothing for each converter of an interpreter that takes its format, "" where it is something.

    Raises: TaskFailure, StopRequested.
    """
    _, told = _run("applies", Conversion(file_format, str(model)), parts, folder, environment, timeout_s)
    rows = told.get("applies")
    return {str(name): str(why) for name, why in cast("dict[Any, Any]", rows if isinstance(rows, dict) else {}).items()}


def _run(
    stage: str,
    order: Conversion,
    parts: Mapping[str, Path],
    folder: Path,
    shop: ConversionEnvironment,
    timeout_s: float,
) -> tuple[WorkFolder, dict[str, Any]]:
    require_sandbox(order.model, shop.level)
    remove_folder(folder)
    work = WorkFolder(folder.absolute())
    _lay_out(work, order, parts, shop.code)
    progress = TaskProgress(lambda _: None, lambda: None)
    log, monitor = CappedLog(work.log), Monitor(work.monitor, MONITOR_INTERVAL_S, Nvml(), [])
    runner = StageRunner(
        work=work,
        device=next((kind.device for kind in all_converters() if kind.name == order.converter), "cpu"),
        timeout_s=timeout_s,
        python=Path(shop.python),
        prefixes=shop.prefixes,
        level=shop.level,
        memory_bytes=shop.memory_bytes,
        monitor=monitor,
        log=log,
        progress=progress,
        check=shop.check,
        on_child_start=shop.on_child_start,
    )
    try:
        runner.run(stage, time.monotonic() + timeout_s)
    finally:
        monitor.close()
        log.close()
    return work, progress.converted


def _lay_out(work: WorkFolder, order: Conversion, parts: Mapping[str, Path], code: bytes) -> None:
    """The files of a conversion where the child may read them."""
    models, source = work.files / "model", Path(order.model)
    models.mkdir(parents=True)
    work.out.mkdir(parents=True)
    model = models / safe_name(source.name)
    link_or_copy(source, model)
    for path, file in parts.items():
        link_or_copy(file, part_path(models, path))
    data = work.files / "data.npz" if order.data else None
    if data:
        link_or_copy(Path(order.data), data)
    work.code.write_bytes(code)
    stem = Path(safe_name(f"{order.stem}.x")).stem if order.stem else ""
    task = replace(order, model=str(model), data=str(data or ""), stem=stem)
    work.task.write_text(json.dumps({"conversion": asdict(task)}), "utf-8")


def _validated(folder: Path, told: Mapping[str, Any]) -> ConvertedModel:
    """What a child made, which may be anything.

    Raises: TaskFailure: rejected.
    """
    try:
        converted: Converted = build(Converted, told)
        counts: list[object] = [*converted.before.values(), *converted.after.values(), converted.took_ns]
        texts: list[object] = [*converted.options.values(), *converted.tools.values(), *converted.runtimes]
        texts += [converted.file, converted.converter, converted.format, *converted.settings.values()]
        sound = all(isinstance(count, int) for count in counts) and all(isinstance(text, str) for text in texts)
    except (TypeError, KeyError, AttributeError) as error:
        raise TaskFailure(
            "rejected",
            msg("agent.child_did_not_tell", f"the child did not tell what it made: {error}"),
            INVALID_RESULT_HINT,
        ) from None
    names = [path.relative_to(folder).as_posix() for path in walk_files(folder)]
    plain = {name: file.stat().st_size for name in names if (file := regular_file_inside(folder, name))}
    there = any(name == converted.file or name.startswith(f"{converted.file}/") for name in plain)
    if not sound or len(plain) < len(names) or not there:
        raise TaskFailure(
            "rejected",
            msg("agent.child_made_links_not", "the child made links, or not the model that it told of"),
            INVALID_RESULT_HINT,
        )
    return ConvertedModel(converted, folder, plain)
