"""The stages `convert` and `applies`: makes another model of a model, or says which converters could.

`task.json` has the fields of a `Conversion` under "conversion"; what is made lies in `out/made`. What the made model is
worth is nobody's claim here: it loads, and `changed` says whether it is another one at all.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from visualprof.messages import msg
from visualprof.remote.backends import all_formats
from visualprof.remote.converters import Conversion, Converted, Converter, Rows, all_converters, converter, formats
from visualprof.remote.converters.formats import Content
from visualprof.remote.protocol import TaskFailure, build

Tell = Callable[..., None]


def read_conversion(work: Path) -> Conversion:
    """The conversion of a work folder. Raises: OSError, ValueError, KeyError, TypeError: it is not what is written."""
    return build(Conversion, json.loads((work / "task.json").read_text("utf-8"))["conversion"])


def convert(work: Path, tell: Tell) -> None:
    """Convert, and loads what was made.

    Raises: TaskFailure, and whatever the converter or the runtime raises.
    """
    order = read_conversion(work)
    kind = _converter(order.converter)
    options, model = kind.resolve_options(order.options), Path(order.model)
    options |= {name: text for name, text in order.default_options().items() if options.get(name) == ""}
    tell("phase", phase="converting")
    if lacking := kind.missing_packages():
        raise TaskFailure("no_runtime", f"{kind.title} needs {', '.join(lacking)}", _install(kind))
    rows = _rows(kind, order)
    if why := kind.unsuitable_reason(model):
        raise TaskFailure("model_error", msg("child.nothing_model", f"{kind.title} is nothing for this model: {why}"))
    folder = work / "out" / "made"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    target = folder / f"{order.stem or model.stem}{kind.suffix or all_formats()[kind.makes].suffixes[0]}"
    begin = time.perf_counter_ns()
    kind.convert(model, target, options, rows)
    took_ns = time.perf_counter_ns() - begin
    if not target.exists():
        raise TaskFailure(
            "model_error",
            msg("child.ended_without_error_without", f"{kind.title} ended without an error and without a model"),
        )
    formats.tool_versions(kind.makes).check(target)
    before = _content(kind.takes, model) if kind.takes == kind.makes else Content("")
    after = _content(kind.makes, target)
    made = Converted(
        converter=kind.name,
        format=kind.makes,
        file=target.name,
        took_ns=took_ns,
        changed=before.digest != after.digest if before.digest and after.digest else None,
        options=options,
        tools={"python": sys.version.split()[0], **kind.tool_versions()},
        settings=kind.settings,
        runtimes=list(kind.runtimes),
        before=before.operators,
        after=after.operators,
    )
    tell("converted", converted=asdict(made))


def applies(work: Path, tell: Tell) -> None:
    """Tells of each converter that this interpreter has, and that takes the format of the model, why it is not for it.

    The conversion's `converter` is the name of that format here.
    """
    order = read_conversion(work)
    told: dict[str, str] = {}
    for kind in all_converters():
        if kind.takes == order.converter and not kind.missing_packages():
            try:
                told[kind.name] = kind.unsuitable_reason(Path(order.model))
            except Exception as error:  # noqa: BLE001 - each alone; a framework raises what it likes
                told[kind.name] = str(error).partition("\n")[0] or type(error).__name__
    tell("converted", converted={"applies": told})


STAGES: dict[str, Callable[[Path, Tell], None]] = {"convert": convert, "applies": applies}


def _converter(name: str) -> Converter:
    try:
        return converter(name)
    except KeyError:
        names = ", ".join(each.name for each in all_converters())
        raise TaskFailure(
            "no_runtime",
            msg("child.there_no_converter", f"there is no converter '{name}'"),
            msg("child.there_2", f"there are {names}"),
        ) from None


def _install(kind: Converter) -> str:
    return f"visualprof agent install-runtime {kind.name}"


def _rows(kind: Converter, order: Conversion) -> Rows | None:
    if not kind.calibrates:
        return None
    if not order.data:
        raise TaskFailure(
            "input_error",
            msg("child.needs_rows_your_data", f"{kind.title} needs rows of your data"),
            msg("child.data_inputs_npz", "--data inputs.npz"),
        )
    return Rows.read(Path(order.data)).calibration()


def _content(name: str, path: Path) -> Content:
    return formats.tool_versions(name).content(path)
