"""A job from what was typed: inputs as the model has them, sizes, and a spec for each combination of choices."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from visualprof.errors import BadParameter

Json = dict[str, Any]

SHORT = {"onnxruntime": "ort", "openvino": "ov", "megengine": "mge"}
SHAPE = re.compile(r"(?P<name>.+?)=(?P<dtype>[a-z0-9]+)\[(?P<dims>[^\]]*)\]")
BATCH = re.compile(r"(batch|batch_?size|n|b)", re.IGNORECASE)
RANGE = re.compile(r"(\d+):(\d+)(?::(\d+))?")
MAX_VALUES = 64


@dataclass(frozen=True)
class Files:
    """What the server says of the uploads: the model's answer, and the arrays' by the input's name."""

    model: Json
    arrays: dict[str, Json]


def parse_sizes(text: str) -> list[int]:
    """1:64 doubles up to and with 64, 8:64:8 steps by 8, 1,2,4 is a list; also several of them.

    Raises: BadParameter.
    """
    values: list[int] = []
    for part in filter(None, re.split(r"[,\s]+", text)):
        span = RANGE.fullmatch(part)
        if not span and not part.isdecimal():
            raise BadParameter(f"--batch {text!r}: {part!r} is no size", "for example 1:64, 8:64:8 or 1,2,4")
        values += _range(text, *(int(n) if n else 0 for n in span.groups())) if span else [int(part)]
    if not values or 0 in values or len(set(values)) > MAX_VALUES:
        raise BadParameter(f"--batch {text!r} is not 1 to {MAX_VALUES} sizes from 1 up", "for example 1:64 or 1,2,4")
    return list(dict.fromkeys(values))


def _range(text: str, first: int, last: int, step: int) -> list[int]:
    if not 0 < first <= last or last > 1 << 31:
        raise BadParameter(f"--batch {text!r}: {first} to {last} is no range", "from the smaller to the larger size")
    if step:
        return list(range(first, last + 1, step))[: MAX_VALUES + 1]
    return [*(first << i for i in range((last // first).bit_length()) if first << i < last), last]


def pairs(given: Sequence[str], flag: str, example: str) -> dict[str, str]:
    """NAME=VALUE of a repeated flag.

    Raises: BadParameter.
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise BadParameter(f"{flag} {text!r} is not of the form NAME=VALUE", f"for example: {flag} {example}")
        if name in found:
            raise BadParameter(f"{flag} {name} is given twice", "leave one out")
        found[name] = value
    return found


def request(args: argparse.Namespace, key: str, files: Files, agents: list[Json]) -> Json:
    """The body of a submission.

    Raises: BadParameter: something is missing that only the user knows.
    """
    model = files.model["model"]
    inputs = _inputs(model, files, _shapes(args.shape))
    dim = args.sweep_dim if args.sweep_dim is not None else _swept(inputs)
    values = parse_sizes(args.batch) if args.batch else [model["dims"].get(dim, 1) if dim else 1]
    if not dim and values != [1]:
        why = " ".join(model["warnings"]) or "every dimension of the model is fixed"
        raise BadParameter("--batch: there is no dimension to sweep", why)
    wanted: Json = {
        "key": key,
        "name": args.name,
        "model": {"blob": files.model["blob"], "name": files.model["name"]},
        "specs": _specs(args, model, agents),
        "inputs": inputs,
        "dims": _dims(args.dim, inputs, model["dims"], files, dim),
        "sweep": {"dim": dim, "values": values},
        "measure": _given(min_s=args.min_s, max_s=args.max_s),
        "profile": _given(runs=args.profile_runs),
    }
    return wanted | _given(timeout_s=args.timeout)


def _given(**values: Any) -> Json:
    """Only what was typed: the server has the rest."""
    return {name: value for name, value in values.items() if value is not None}


def _shapes(given: Sequence[str]) -> dict[str, tuple[str, list[int | str]]]:
    shapes: dict[str, tuple[str, list[int | str]]] = {}
    for text in given:
        match = SHAPE.fullmatch(text.strip())
        if not match:
            raise BadParameter(f"--shape {text!r} is no shape", "for example: --shape 'x=float32[batch,3,224,224]'")
        parts = [p.strip() for p in match["dims"].split(",") if p.strip()]
        shapes[match["name"]] = (match["dtype"], [int(p) if re.fullmatch(r"-?\d+", p) else p for p in parts])
    return shapes


def _inputs(model: Json, files: Files, shapes: dict[str, tuple[str, list[int | str]]]) -> list[Json]:
    """In the model's order. Names that the model does not have are left to the server, which names the nearest."""
    named = {t["name"]: t for t in model["inputs"]}
    names = [*named, *(n for n in (*shapes, *files.arrays) if n not in named)]
    return [_input(n, named.get(n, {}), shapes.get(n), files.arrays.get(n)) for n in dict.fromkeys(names)]


def _input(name: str, tensor: Json, shape: tuple[str, list[int | str]] | None, array: Json | None) -> Json:
    dtype, dims = shape or (tensor.get("dtype") or "", tensor.get("dims"))
    if (dims is None or not dtype) and array:
        dtype, dims = array["array"]["dtype"], ["batch", *array["array"]["shape"][1:]]
    if dims is None or not dtype:
        raise BadParameter(
            f"the model's file does not say the shape of its input {name!r}",
            f"add --shape '{name}=float32[batch,3,224,224]', or --input {name}=FILE.npy",
        )
    given: Json = {"name": name, "dtype": dtype, "dims": dims}
    return given | ({"fill": "file", "blob": array["blob"]} if array else {})


def _names(inputs: Sequence[Json]) -> list[str]:
    return list(dict.fromkeys(d for i in inputs for d in i["dims"] if isinstance(d, str)))


def _swept(inputs: Sequence[Json]) -> str:
    """The batch by its name, else what stands first in the first input, else nothing."""
    names = _names(inputs)
    batch = [n for n in names if BATCH.fullmatch(n)] or [n for n in names if "batch" in n.lower()]
    first: list[int | str] = inputs[0]["dims"][:1] if inputs else []
    return batch[0] if batch else next((d for d in first if isinstance(d, str)), "")


def _dims(
    given: Sequence[str], inputs: Sequence[Json], known: dict[str, int], files: Files, swept: str
) -> dict[str, int]:
    """Sizes of what is not swept: typed ones, else those that the server starts from where no array decides."""
    sizes: dict[str, int] = {}
    for name, text in pairs(given, "--dim", "seq=64").items():
        if not text.isdecimal():
            raise BadParameter(f"--dim {name}={text}: {text!r} is no size", "for example: --dim seq=64")
        sizes[name] = int(text)
    decided = {d for i in inputs if i["name"] in files.arrays for d in i["dims"]} | {swept}
    started = {n: known[n] for n in _names(inputs) if n in known and n not in decided}
    return started | sizes


def _specs(args: argparse.Namespace, model: Json, agents: list[Json]) -> list[Json]:
    """The product of backends, precisions and threads."""
    agent = _agent(args.agent, agents) if args.agent else ""
    common = {"version": args.runtime_version, "agent": agent, "platform": args.platform}
    device = args.device or ("cuda" if args.platform == "cuda" else "cpu")
    options = pairs(args.option, "--option", "optimization=all")
    backends = args.backend or _there(model, agents, agent, args.platform, args.runtime_version, device)
    specs: dict[str, Json] = {}
    for backend, precision, threads in product(backends, args.precision or [""], args.threads or [0]):
        told = ["" if device == "cpu" else device.replace(":", ""), precision, f"{threads}t" if threads else ""]
        name = "-".join(filter(None, [SHORT.get(backend, backend), *told]))
        chosen = {"id": name, "backend": backend, "device": device, "precision": precision, "threads": threads}
        specs[name] = {**chosen, **common, "options": options}
    return list(specs.values())


def _there(model: Json, agents: list[Json], agent: str, platform: str, version: str, device: str) -> list[str]:
    """Backends that load the model and that a machine has which is there now."""
    chosen = [a for a in agents if a["online"] and agent in ("", a["id"])]
    chosen = [a for a in chosen if platform in ("", a["capabilities"]["platform"])]
    runtimes = [r for a in chosen for r in a["capabilities"]["runtimes"]]
    fitting = {r["backend"] for r in runtimes if version in ("", r["version"]) and _on(device, r["devices"])}
    found = [b for b in model["backends"] if b in fitting]
    if not found:
        offers = sorted({f"{r['backend']} {r['version']} ({', '.join(r['devices'])})" for r in runtimes})
        raise BadParameter(
            f"no agent that is online can run this {model['format']} model"
            + (f"; there is {', '.join(offers)}" if offers else ""),
            f"start one (visualprof agent), or queue it for later: --backend {' or '.join(model['backends'])}",
        )
    return found


def _on(device: str, devices: Sequence[str]) -> bool:
    """`cuda` is any CUDA device."""
    return device in devices or (device == "cuda" and any(d.startswith("cuda") for d in devices))


def _agent(name: str, agents: list[Json]) -> str:
    """The id of an agent by id or name; among several of a name the one that is online."""
    found = [a for a in agents if a["id"] == name] or [a for a in agents if a["name"] == name]
    online = [a for a in found if a["online"]]
    chosen = online if len(online) == 1 else found
    if not chosen:
        there = ", ".join(f"{a['name']} ({a['id']})" for a in agents)
        raise BadParameter(
            f"there is no agent {name!r}", f"there is {there}" if there else "start one: visualprof agent"
        )
    if len(chosen) > 1:
        ids = ", ".join(a["id"] for a in chosen)
        raise BadParameter(f"{len(chosen)} agents are named {name!r}", f"name one by its id: {ids}")
    return str(chosen[0]["id"])
