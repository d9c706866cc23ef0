"""Convert a model on this machine: to f16 or int8, for OpenVINO, simplified, ...

The conversion runs in a separate process with limits; with bubblewrap also without network and other files. The
command exits with 3 and writes no file if the new model would equal the old one. To find out whether the new model is
faster and correct, measure it (visualprof submit). All converters: docs/convert.md.

Examples:
  visualprof convert model.onnx --list                                     list applicable converters
  visualprof convert model.onnx --to onnx_fp16 -o small.onnx
  visualprof convert model.onnx --to ort_int8_static --data inputs.npz     calibrate with your own rows
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visualprof.cli._request import pairs
from visualprof.cli._sending import model_of
from visualprof.errors import BadParameter, VisualprofError
from visualprof.remote.protocol import TaskFailure, agent_unsupported_reason

if TYPE_CHECKING:
    from visualprof.remote.agent.work.conversion import ConversionEnvironment, ConvertedModel
    from visualprof.remote.converters import Converter
    from visualprof.remote.queue.check.inspect import InspectedModel

NO_EFFECT = 3
GIB = 1 << 30
SHOWN = 12  # operators


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("model", metavar="MODEL", help="A model that a runtime on this machine can load.")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        "--list",
        action="store_true",
        help="List the converters that accept the model, and how to install missing ones.",
    )
    group.add_argument("--to", metavar="NAME", help="Converter to use.")
    parser.add_argument(
        "--option", action="append", default=[], metavar="K=V", help="Option of the converter; repeatable."
    )
    parser.add_argument(
        "--data",
        default="",
        metavar="NPZ",
        help="File with your own rows, by which the conversion is calibrated and checked.",
    )
    out = "file or folder for it (default MODEL.NAME.suffix, here)"
    parser.add_argument("-o", "--out", default="", metavar="OUT", help=out)
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PATH",
        help=("Python interpreter to look into first; repeatable. This interpreter and the installed runtimes follow."),
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=0.0,
        metavar="S",
        help="Stop the conversion after S seconds (default: the converter's own limit).",
    )
    parser.add_argument(
        "--memory",
        type=float,
        default=0.0,
        metavar="GIB",
        help="Memory limit in GiB (default: 90 %% of the machine's memory).",
    )
    parser.add_argument(
        "--sandbox",
        choices=("auto", "off", "require"),
        default="auto",
        help="Whether to isolate the process with bubblewrap (default: %(default)s).",
    )
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="Output format (default: %(default)s)."
    )


def run(args: argparse.Namespace) -> int:
    """Convert the model or list the converters; return 3 if the conversion had no effect."""
    if why := agent_unsupported_reason():
        raise VisualprofError(why.replace("an agent needs", "a conversion needs"), "")
    from visualprof.remote.queue.check.inspect import InspectedModel, inspect_file

    path = model_of(Path(args.model))
    if not path.is_file():
        raise BadParameter(f"{args.model}: there is no such file", "give the path of a model")
    model = inspect_file(path, path.name)
    if not isinstance(model, InspectedModel):
        raise BadParameter(f"{path.name} is an array, no model", "--data takes arrays, as an .npz")
    return _list(args, path, model) if args.list else _convert(args, path, model)


def _convert(args: argparse.Namespace, path: Path, model: InspectedModel) -> int:
    kind = _kind(args.to, model.format)
    options = pairs(args.option, "--option", "level=all")
    try:
        options = kind.resolve_options(options)
    except TaskFailure as failure:
        raise BadParameter(failure.error, failure.hint) from None
    out = _out(args.out, path, kind)
    from visualprof.remote.agent.work.conversion import convert
    from visualprof.remote.converters import Conversion

    shop = next((shop for has, shop in _environments(args) if kind.name in has), None)
    if shop is None:
        raise VisualprofError(f"no Python here has what {kind.name} needs ({_needs(kind)})", _install(kind))
    data = str(Path(args.data).absolute()) if args.data else ""
    order = Conversion(kind.name, str(path.absolute()), options, data, out.stem)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".visualprof-convert-") as folder:
        work = Path(folder, "work")
        try:
            converted = convert(order, _parts(path, model), work, shop, args.timeout or kind.timeout_minutes * 60)
        except TaskFailure as failure:
            raise VisualprofError(f"{failure.reason}: {failure.error}", _with_log(failure.hint, work, out)) from None
        files = [] if converted.converted.changed is False else _install_files(converted, out)
    before = sum(file.stat().st_size for file in (path, *_parts(path, model).values()))
    _print_result(args, before, kind, converted, files)
    return 0 if files else NO_EFFECT


def _kind(name: str, form: str) -> Converter:
    from visualprof.remote.converters import all_converters

    taking = [converter for converter in all_converters() if converter.takes == form]
    for kind in all_converters():
        if kind.name == name and kind in taking:
            return kind
    reason = (
        "takes no model of this format"
        if name in {converter.name for converter in all_converters()}
        else "does not exist"
    )
    names = ", ".join(converter.name for converter in taking) or "no converter takes this format"
    raise BadParameter(f"--to {name}: that converter {reason} ({form})", names)


def _out(target: str, path: Path, kind: Converter) -> Path:
    """Return the path of the file to write.

    Raises:
        BadParameter: The file exists, or its suffix does not fit the converter.
    """
    from visualprof.remote.backends import all_formats

    suffix = kind.suffix or all_formats()[kind.makes].suffixes[0]
    name = f"{path.stem}.{kind.name}{suffix}"
    out = Path(target or name).absolute()
    if out.is_dir():
        out = out / name
    elif out.suffix.lower() != suffix:
        raise BadParameter(f"-o {name}: {kind.name} makes a {suffix}", f"for example: -o {out.stem}{suffix}")
    if out.exists():
        raise BadParameter(f"-o {out}: that file is there already", "choose another name, or remove it")
    return out


def _environments(args: argparse.Namespace) -> Iterator[tuple[list[str], ConversionEnvironment]]:
    """Yield each interpreter with the converters that it has."""
    from visualprof.remote.agent import bundle
    from visualprof.remote.agent.command import say
    from visualprof.remote.agent.errors import AgentError
    from visualprof.remote.agent.machine import runtimes
    from visualprof.remote.agent.machine.probe import Interpreter, inspect_interpreter
    from visualprof.remote.agent.machine.processes import default_memory_bytes
    from visualprof.remote.agent.machine.sandbox import sandbox_level
    from visualprof.remote.agent.work.conversion import ConversionEnvironment

    try:
        level = sandbox_level(args.sandbox, say)
    except AgentError as error:
        raise VisualprofError(error.error, error.hint) from None
    memory = round(args.memory * GIB) or default_memory_bytes()
    installed = runtimes.installed_pythons(runtimes.runtimes_folder())
    for python in dict.fromkeys([*args.python, sys.executable, *installed]):
        interpreter = Interpreter(python)
        if has := inspect_interpreter(interpreter, say):
            yield (
                has.converters,
                ConversionEnvironment(interpreter.python, has.prefixes, level, memory, bundle.child_archive()),
            )


def _parts(path: Path, model: InspectedModel) -> dict[str, Path]:
    """Return the external files of a model by path.

    Raises:
        BadParameter: A file is missing.
    """
    parts = {file.path: path.parent / file.path for file in model.external}
    for name, file in parts.items():
        if not file.is_file():
            raise BadParameter(f"{path.name}: its weights lie in {name}, which is not beside it", "copy it there")
    return parts


def _with_log(hint: str, work: Path, out: Path) -> str:
    """Return a hint that names the saved log."""
    log, saved = work / "log.txt", out.with_name(f"{out.name}.log.txt")
    if not log.is_file() or not log.stat().st_size:
        return hint
    shutil.copyfile(log, saved)
    return f"{hint}\nlog: {saved}" if hint else f"log: {saved}"


def _install_files(converted: ConvertedModel, out: Path) -> list[Path]:
    """Move the files of a converted model to their place.

    Raises:
        VisualprofError: A file exists already.
    """
    names = {
        converted.folder / name: out if len(converted.files) == 1 else out.parent / name for name in converted.files
    }
    for target in names.values():
        if target.exists():
            raise VisualprofError(f"{target} is there already and belongs to this model", "choose another folder")
    for source, target in names.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, target)
    return [names[converted.model], *(target for source, target in names.items() if source != converted.model)]


def _print_result(
    args: argparse.Namespace, before: int, kind: Converter, made_model: ConvertedModel, files: list[Path]
) -> None:
    converted = made_model.converted
    if args.format == "json":
        sizes = {"size_bytes": made_model.size_bytes, "files": [str(file) for file in files]}
        print(json.dumps({**asdict(converted), **sizes}, indent=2))
        return
    from visualprof.cli._terminal import cell

    tools = ", ".join(f"{cell('text', name)} {cell('text', version)}" for name, version in converted.tools.items())
    print(f"{kind.title}: {converted.took_ns / 1e9:.1f} s with {tools}")
    if not files:
        print("no effect: it has the operators, weights and types that the model had, so nothing is written")
        return
    print(f"{files[0]}: {cell('bytes', made_model.size_bytes)}, the model has {cell('bytes', before)}")
    for file in files[1:]:
        print(f"{file} belongs to it")
    names = {**converted.before, **converted.after} if converted.before else {}
    counts = {name: (converted.before.get(name, 0), converted.after.get(name, 0)) for name in names}
    changed = [f"{cell('text', name)} {old} -> {new}" for name, (old, new) in sorted(counts.items()) if old != new]
    if changed:
        more = f", and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        print(f"operators: {', '.join(changed[:SHOWN])}{more}")
    if converted.runtimes or converted.settings:
        flags = "".join(f" --option {key}={value}" for key, value in kind.settings.items())
        print(f"to run it: --backend {kind.runtimes[0]}{flags}" if kind.runtimes else f"to run it:{flags}")


def _list(args: argparse.Namespace, path: Path, model: InspectedModel) -> int:
    """Print each converter of the format: ready, without effect for this model, or its missing requirement."""
    from visualprof.remote.agent.work.conversion import inapplicable_reasons
    from visualprof.remote.converters import all_converters

    kinds = [kind for kind in all_converters() if kind.takes == model.format]
    states: dict[str, str] = {}
    for has, shop in _environments(args):
        if not {kind.name for kind in kinds} & {*has} - {*states}:
            continue
        with tempfile.TemporaryDirectory(prefix="visualprof-convert-") as folder:
            try:
                whys = inapplicable_reasons(
                    model.format, path.absolute(), _parts(path, model), Path(folder, "work"), shop
                )
            except TaskFailure as failure:
                raise VisualprofError(f"{failure.reason}: {failure.error}", failure.hint) from None
        for name, why in whys.items():
            states.setdefault(name, f"nothing for it: {why}" if why else "ready")
    rows = [_row(kind, states.get(kind.name) or f"missing: {_install(kind)}") for kind in kinds]
    if args.format == "json":
        print(json.dumps(rows, indent=2))
        return 0
    if not rows:
        print(f"no converter takes this format ({model.format})")
    for row in rows:
        print(f"{row['name']:25} {row['title']}\n{'':25} {row['state']}")
        for option, values in row["options"].items():
            print(f"{'':25} --option {option}={'|'.join(values) if values else 'TEXT'}")
    return 0


def _row(kind: Converter, state: str) -> dict[str, Any]:
    title = f"{kind.title}; needs --data" if kind.calibrates else kind.title
    return {"name": kind.name, "title": title, "makes": kind.makes, "state": state, "options": kind.options}


def _needs(kind: Converter) -> str:
    return ", ".join(kind.needs.values())


def _install(kind: Converter) -> str:
    return f"visualprof agent install-runtime {kind.name}"
