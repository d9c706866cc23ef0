"""Turn command-line arguments into the body of a job draft, from which the server makes a job."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from visualprof.errors import BadParameter

Json = dict[str, Any]

SHAPE = re.compile(r"(?P<name>.+?)=(?P<dtype>[a-z0-9]+)(?P<dims>\[[^\]]*\])")


@dataclass(frozen=True)
class Files:
    """Server's answers to the uploads.

    Attributes:
        parts: sha256 of the files next to the model, by path.
        begun: Draft that a registered model starts with.
    """

    model: Json
    arrays: dict[str, Json]
    parts: dict[str, str]
    begun: Json | None = None


def external(model: Json) -> list[str]:
    """Return the paths of the external files that the model names."""
    return [file["path"] for file in model["model"]["external"]]


def parts_of(model: Json) -> dict[str, str]:
    """Return the external files that came in one archive with the model: sha256 by path."""
    uploaded = {file["name"]: file["blob"] for file in model["others"]}
    return {path: uploaded[path] for path in external(model) if path in uploaded}


def pairs(texts: Sequence[str], flag: str, example: str) -> dict[str, str]:
    """Parse the NAME=VALUE arguments of a repeated flag.

    Raises:
        BadParameter: An argument is not of this form.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise BadParameter(f"{flag} {text!r} is not of the form NAME=VALUE", f"for example: {flag} {example}")
        if name in values:
            raise BadParameter(f"{flag} {name} is given twice", "leave one out")
        values[name] = value
    return values


def draft(args: argparse.Namespace, key: str, files: Files) -> Json:
    """Return the body of a draft.

    Raises:
        BadParameter: A flag is not of its form.
    """
    spec = {
        "backends": args.backend,
        "version": args.runtime_version,
        "agent": args.agent,
        "platform": args.platform,
        "device": args.device,
        "precisions": args.precision or [""],
        "threads": [str(n) for n in args.threads or [""]],
        "options": pairs(args.option, "--option", "optimization=all"),
    }
    measure = {
        "min_s": args.min_s,
        "max_s": args.max_s,
        "profile_runs": args.profile_runs,
        "timeout_s": args.timeout,
        "repeat": args.repeat,
        "quiet_s": args.quiet_host,
        "pin": args.pin,
        **{name: getattr(args, name) for name in ("concurrency", "rate", "slo", "mlperf", "price_per_hour")},
    }
    begun = files.begun or {}
    return {
        "key": key,
        "name": args.name or begun.get("name", ""),
        "model": files.model["blob"],
        "model_name": files.model["name"],
        "parts": files.parts,
        "inputs": _inputs(args.shape, files),
        "sweep": args.sweep_dim or begun.get("sweep"),
        "sizes": args.batch or begun.get("sizes"),
        "dims": {**begun.get("dims", {}), **pairs(args.dim, "--dim", "seq=64")},
        "specs": [spec],
        "spread": args.spread,
        "priority": args.priority,
        "measure": {name: str(value) for name, value in measure.items() if value is not None},
    }


def _inputs(shapes: Sequence[str], files: Files) -> list[Json]:
    """Return the model's inputs and those that only a flag names. The server suggests names for the latter."""
    inputs: dict[str, Json] = {}
    begun = {row["name"]: row for row in (files.begun or {}).get("inputs") or ()}
    names = (t["name"] for t in files.model["model"]["inputs"])
    for name in (*names, *files.arrays):
        blob = files.arrays[name]["blob"] if name in files.arrays else ""
        inputs[name] = {**begun.get(name, {}), "name": name, "fill": "file" if blob else "random", "blob": blob}
    for text in shapes:
        match = SHAPE.fullmatch(text.strip())
        if not match:
            raise BadParameter(f"--shape {text!r} is no shape", "for example: --shape 'x=float32[batch,3,224,224]'")
        inputs.setdefault(match["name"], {"fill": "random"}).update(match.groupdict())
    return list(inputs.values())
