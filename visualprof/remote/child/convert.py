"""The stages `convert` and `applies`: convert a model, or report which converters could.

`task.json` has the fields of a `Conversion` under "conversion". The converted model is written to `out/made`. The stage
does not judge the model: it only checks that the model loads, and whether it differs from the original (`changed`).
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

Emit = Callable[..., None]


def read_conversion(work: Path) -> Conversion:
    """Read the conversion of a work folder.

    Raises:
        OSError, ValueError, KeyError, TypeError: The file is missing or was not written by an agent.
    """
    return build(Conversion, json.loads((work / "task.json").read_text("utf-8"))["conversion"])


def convert(work: Path, emit: Emit) -> None:
    """Convert a model and load the result.

    Raises:
        TaskFailure: The conversion is not possible. The converter and the runtime may raise any other exception.
    """
    conversion = read_conversion(work)
    converter_spec = _converter(conversion.converter)
    options, model = converter_spec.resolve_options(conversion.options), Path(conversion.model)
    options |= {name: text for name, text in conversion.default_options().items() if options.get(name) == ""}
    emit("phase", phase="converting")
    if missing := converter_spec.missing_packages():
        raise TaskFailure("no_runtime", f"{converter_spec.title} needs {', '.join(missing)}", _install(converter_spec))
    rows = _rows(converter_spec, conversion)
    if reason := converter_spec.unsuitable_reason(model):
        raise TaskFailure(
            "model_error", msg("child.nothing_model", f"{converter_spec.title} is nothing for this model: {reason}")
        )
    folder = work / "out" / "made"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    target = (
        folder
        / f"{conversion.stem or model.stem}{converter_spec.suffix or all_formats()[converter_spec.makes].suffixes[0]}"
    )
    start = time.perf_counter_ns()
    converter_spec.convert(model, target, options, rows)
    took_ns = time.perf_counter_ns() - start
    if not target.exists():
        raise TaskFailure(
            "model_error",
            msg(
                "child.ended_without_error_without",
                f"{converter_spec.title} ended without an error and without a model",
            ),
        )
    formats.format_tools(converter_spec.makes).check(target)
    content_before = (
        _content(converter_spec.takes, model) if converter_spec.takes == converter_spec.makes else Content("")
    )
    content_after = _content(converter_spec.makes, target)
    result = Converted(
        converter=converter_spec.name,
        format=converter_spec.makes,
        file=target.name,
        took_ns=took_ns,
        changed=content_before.digest != content_after.digest
        if content_before.digest and content_after.digest
        else None,
        options=options,
        tools={"python": sys.version.split()[0], **converter_spec.tool_versions()},
        settings=converter_spec.settings,
        runtimes=list(converter_spec.runtimes),
        before=content_before.operators,
        after=content_after.operators,
    )
    emit("converted", converted=asdict(result))


def applies(work: Path, emit: Emit) -> None:
    """Report for each available converter of the model's format why it cannot convert the model, "" if it can.

    The conversion's `converter` is the name of the format here.
    """
    conversion = read_conversion(work)
    reasons: dict[str, str] = {}
    for kind in all_converters():
        if kind.takes == conversion.converter and not kind.missing_packages():
            try:
                reasons[kind.name] = kind.unsuitable_reason(Path(conversion.model))
            except Exception as error:  # noqa: BLE001 - one converter must not stop the others, and frameworks raise anything
                reasons[kind.name] = str(error).partition("\n")[0] or type(error).__name__
    emit("converted", converted={"applies": reasons})


STAGES: dict[str, Callable[[Path, Emit], None]] = {"convert": convert, "applies": applies}


def _converter(name: str) -> Converter:
    try:
        return converter(name)
    except KeyError:
        names = ", ".join(each.name for each in all_converters())
        raise TaskFailure(
            "no_runtime",
            msg("child.there_no_converter", f"unknown converter '{name}'"),
            msg("child.there_2", f"available converters: {names}"),
        ) from None


def _install(kind: Converter) -> str:
    return f"visualprof agent install-runtime {kind.name}"


def _rows(kind: Converter, conversion: Conversion) -> Rows | None:
    if not kind.calibrates:
        return None
    if not conversion.data:
        raise TaskFailure(
            "input_error",
            msg("child.needs_rows_your_data", f"{kind.title} needs rows of your data"),
            msg("child.data_inputs_npz", "--data inputs.npz"),
        )
    return Rows.read(Path(conversion.data)).calibration()


def _content(name: str, path: Path) -> Content:
    return formats.format_tools(name).content(path)
