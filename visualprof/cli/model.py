"""Manage registered models: names with immutable versions, stored on the server.

A version is resnet/3, resnet@production, or resnet for the newest. `visualprof submit` accepts it in place of a file.

Examples:
  visualprof model add resnet resnet50.onnx        add a version, the first one or the next
  visualprof model add resnet fp16.onnx --parent resnet/1 --converter onnxconverter-common
  visualprof model add resnet --job ID             add the model of a job with the input sizes of that job
  visualprof model list | show resnet@production | versions resnet
  visualprof model tag resnet@production 3         move an alias to a version; --remove deletes the alias
  visualprof model tag resnet vision cnn           set keywords to find the model by; --remove deletes them
  visualprof model get resnet/3 -o folder          write its files
  visualprof model delete resnet/2                 show what depends on it; --yes deletes it
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visualprof.cli import _request, _server
from visualprof.cli._sending import send_model
from visualprof.cli._server import Json, Server
from visualprof.cli._watch import plain
from visualprof.errors import BadParameter

if TYPE_CHECKING:
    from visualprof.views.answers.kinds import Kind

MODELS: dict[str, Kind] = {
    "name": "name",
    "newest": "count",
    "aliases": "text",
    "tags": "text",
    "format": "name",
    "size_bytes": "bytes",
    "parameters": "count",
    "best_p50_ns": "ns",
    "best_samples_per_s": "count",
    "added": "name",
}
VERSIONS: dict[str, Kind] = {
    "version": "name",
    "aliases": "text",
    "from": "name",
    "by": "name",
    "format": "name",
    "size_bytes": "bytes",
    "parameters": "count",
    "best_p50_ns": "ns",
    "best_samples_per_s": "count",
    "added": "name",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    _server.add_arguments(parser)
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="Output format (default: %(default)s)."
    )
    action = _server.actions_of(parser, required=True)
    _add(action("add", help="Add a version of a model."))
    action("list", help="List all models.")
    action("show", help="Show one version.").add_argument(
        "address", metavar="ADDRESS", help="NAME, NAME/VERSION or NAME@ALIAS of a registered model."
    )
    action("versions", help="List the versions of a model.").add_argument("name", metavar="NAME")
    tag = action("tag", help="Move an alias to a version, or set the keywords of a model.")
    tag.add_argument("address", metavar="NAME@ALIAS | NAME")
    tag.add_argument("values", nargs="*", metavar="VERSION | TAG")
    tag.add_argument("--remove", action="store_true", help="Remove the alias or the keywords.")
    get = action("get", help="Write the files of a version.")
    get.add_argument("address", metavar="ADDRESS", help="NAME, NAME/VERSION or NAME@ALIAS of a registered model.")
    get.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="Output directory (default: the current directory).",
    )
    delete = action("delete", help="Delete a version, or with NAME alone the whole model.")
    delete.add_argument("address", metavar="ADDRESS", help="NAME, NAME/VERSION or NAME@ALIAS of a registered model.")
    delete.add_argument(
        "--yes", action="store_true", help="Delete it. Without this option, only show what depends on it."
    )
    delete.add_argument("--force", action="store_true", help="Delete it even if a job uses it.")


def _add(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME")
    add("path", nargs="?", metavar="MODEL", help="A model file, or a folder with the model and its weight files.")
    add("--job", default="", metavar="ID", help="Register the model of this job instead of a file.")
    add("--parent", default="", metavar="ADDRESS", help="Version that this model was derived from.")
    add("--converter", default="", metavar="C", help="Converter that made this model.")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="Option of the converter; repeatable.")
    add(
        "--tool",
        action="append",
        default=[],
        metavar="PACKAGE=VERSION",
        help="Package and version that took part in the conversion; repeatable.",
    )
    add("--host", default="", metavar="H", help="Machine on which the model was made.")
    add("--notes", default="", metavar="TEXT")


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    server = Server(args.server, args.token)
    actions: dict[str, Callable[[Server, argparse.Namespace], int]] = {
        "add": _run_add,
        "list": _run_list,
        "show": _run_show,
        "versions": _run_versions,
        "tag": _run_tag,
        "get": _run_get,
        "delete": _run_delete,
    }
    return actions[args.action](server, args)


def _run_add(server: Server, args: argparse.Namespace) -> int:
    if bool(args.path) == bool(args.job):
        raise BadParameter("a version is made of a file or of a job", "visualprof model add NAME FILE, or --job ID")
    body: Json = {"name": args.name, "notes": args.notes, "parent": args.parent}
    options, tools = (
        _request.pairs(args.option, "--option", "opset=17"),
        _request.pairs(args.tool, "--tool", "onnx=1.19"),
    )
    if args.converter or options or tools or args.host:
        body["lineage"] = {"converter": args.converter, "options": options, "tools": tools, "host": args.host}
    if args.job:
        body["job"] = args.job
    else:
        model, parts = send_model(server, Path(args.path))
        body |= {"blob": model["blob"], "file": model["name"], "parts": parts, "path": str(Path(args.path).absolute())}
    answer = server.post("registry", body)
    state = "added" if answer["new"] else "has this content already"
    return _print_answer(args, answer, f"{plain(answer['version']['address'])} {state}")


def _run_list(server: Server, args: argparse.Namespace) -> int:
    models = server.get("registry")["models"]
    return _table(args, models, MODELS, [_model_row(model) for model in models])


def _run_versions(server: Server, args: argparse.Namespace) -> int:
    versions = server.get(_place(server, args.name)[0])["versions"]
    return _table(args, versions, VERSIONS, [_version_row(version) for version in versions])


def _run_show(server: Server, args: argparse.Namespace) -> int:
    answer = _at(server, args.address)
    version: Json = answer["version"]
    lineage: Json = version["lineage"] or {}
    rows = _version_row(version)
    shown = {
        **{name: rows[name] for name in ("version", "aliases", "format", "parameters", "added")},
        "sha256": version["sha256"],
        "files": ", ".join(f"{file['path']} ({file['size_bytes']:,} B)" for file in version["files"]),
        "inputs": ", ".join(_input(entry) for entry in version["configuration"]["inputs"]),
        "batch": "-".join(str(n) for n in _batches(version["configuration"])),
        "from": rows["from"],
        "by": rows["by"],
        "options": _pairs(lineage.get("options")),
        "tools": _pairs(lineage.get("tools")),
        "host": lineage.get("host"),
        "notes": version["notes"],
        "evaluations": ", ".join(evaluation["id"] for evaluation in version["evaluations"]),
    }
    lines = [f"{name:12} {plain(str(value))}" for name, value in shown.items() if value not in (None, "", [])]
    return _print_answer(args, answer, "\n".join(lines))


def _run_tag(server: Server, args: argparse.Namespace) -> int:
    name, at, alias = args.address.partition("@")
    place, model = _place(server, name)
    if at:
        path = f"{place}/aliases/{urllib.parse.quote(alias, safe='')}"
        if args.remove:
            return _print_answer(args, server.send("DELETE", path), f"{plain(args.address)} is no more")
        if len(args.values) != 1 or not args.values[0].isdecimal():
            raise BadParameter("which version?", f"visualprof model tag {args.address} 3")
        answer = server.send("PUT", path, {"number": int(args.values[0])})
        return _print_answer(args, answer, f"{plain(args.address)} is {plain(name)}/{args.values[0]}")
    tags = [tag for tag in model["tags"] if tag not in args.values] if args.remove else [*model["tags"], *args.values]
    answer = server.send("PATCH", place, {"tags": tags})
    return _print_answer(args, answer, f"{plain(name)}: {plain(', '.join(answer['model']['tags'])) or 'no tags'}")


def _run_get(server: Server, args: argparse.Namespace) -> int:
    answer = _at(server, args.address)
    place = f"registry/{answer['model']['id']}/{answer['version']['number']}/file"
    for file in answer["version"]["files"]:
        target = args.output / file["path"]
        if not target.resolve().is_relative_to(args.output.resolve()):
            raise BadParameter(
                f"the server names a file {file['path']!r} outside of the folder", "is it the right server?"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        server.download(f"{place}?{urllib.parse.urlencode({'path': file['path']})}", target, file["sha256"])
        if args.format == "table":
            print(plain(str(target)))
    return _print_answer(args, answer, "") if args.format == "json" else 0


def _run_delete(server: Server, args: argparse.Namespace) -> int:
    if "/" in args.address or "@" in args.address:
        answer = _at(server, args.address)
        place = f"registry/{answer['model']['id']}/{answer['version']['number']}"
    else:
        place, _ = _place(server, args.address)
    losses = server.get(f"{place}/losses")
    if args.yes or args.force:
        losses = server.send("DELETE", f"{place}?force={'true' if args.force else 'false'}")
    lines = [
        f"{'removed' if args.yes or args.force else 'would remove'} {plain(', '.join(losses['versions'])) or 'it'}"
    ]
    texts = {"jobs": "jobs that use it", "children": "made of it", "aliases": "aliases", "evaluations": "evaluations"}
    lines += [f"  {text}: {plain(', '.join(losses[name]))}" for name, text in texts.items() if losses[name]]
    _print_answer(args, losses, "\n".join(lines))
    if not (args.yes or args.force):
        print("nothing is removed without --yes", file=sys.stderr)
    return 0


def _at(server: Server, address: str) -> Json:
    return server.get(f"registry/version?{urllib.parse.urlencode({'address': address})}")


def _place(server: Server, name: str) -> tuple[str, Json]:
    """Return the path of a model in the API, and the model, which may have no versions."""
    named = [model for model in server.get("registry")["models"] if model["name"].lower() == name.lower()]
    candidates = [model for model in named if model["changeable"]] or named
    if len(candidates) != 1:
        raise BadParameter(f"{len(candidates) or 'no'} registered models are called {name!r}", "visualprof model list")
    return f"registry/{candidates[0]['id']}", candidates[0]


def _print_answer(args: argparse.Namespace, answer: Json, text: str) -> int:
    print(json.dumps(answer) if args.format == "json" else text)
    return 0


def _table(args: argparse.Namespace, answer: Sequence[Json], kinds: dict[str, Kind], rows: list[dict[str, Any]]) -> int:
    from visualprof.cli._terminal import render
    from visualprof.views.answers.table import Table

    if args.format == "json":
        print(json.dumps(answer))
        return 0
    columns = {name: [row[name] for row in rows] for name in kinds}
    print(render(Table(columns=columns, kinds=kinds), "", shutil.get_terminal_size().columns, len(rows)), end="")
    return 0


def _model_row(model: Json) -> dict[str, Any]:
    newest: Json = model["newest"] or {}
    aliases = ", ".join(f"{name}: {number}" for name, number in model["aliases"].items())
    return {
        "name": plain(model["name"]),
        "newest": newest.get("number"),
        "aliases": plain(aliases),
        "tags": plain(", ".join(model["tags"])),
        "format": newest.get("format", ""),
        "size_bytes": newest.get("size_bytes"),
        "parameters": newest.get("parameters"),
        "best_p50_ns": model["best_p50_ns"],
        "best_samples_per_s": model["best_samples_per_s"],
        "added": _day(newest.get("created_ns", model["created_ns"])),
    }


def _version_row(version: Json) -> dict[str, Any]:
    lineage: Json = version["lineage"] or {}
    parent: Json = version["parent"] or {}
    return {
        "version": plain(version["address"]),
        "aliases": plain(", ".join(version["aliases"])),
        "from": plain(parent.get("address") or lineage.get("parent", "")[:12]),
        "by": plain(lineage.get("converter", "")),
        "format": version["format"],
        "size_bytes": version["size_bytes"],
        "parameters": version["parameters"],
        "best_p50_ns": version["best_p50_ns"],
        "best_samples_per_s": version["best_samples_per_s"],
        "added": _day(version["created_ns"]),
    }


def _day(at_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_ns / 1e9))


def _input(entry: Json) -> str:
    dims = "?" if entry["dims"] is None else ",".join(map(str, entry["dims"]))
    return f"{entry['name']}={entry['dtype']}[{dims}]"


def _batches(configuration: Json) -> list[int]:
    return [configuration[name] for name in ("min_batch", "max_batch") if configuration[name] is not None]


def _pairs(values: dict[str, str] | None) -> str:
    return ", ".join(f"{name}={value}" for name, value in (values or {}).items())
