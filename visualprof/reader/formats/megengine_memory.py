"""MegEngine `StaticMemoryInfo.json`: `{"opr": ..., "chunk": ...}`, the memory plan of a graph in steps."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from visualprof.errors import FormatError
from visualprof.reader.chrome.values import json_object
from visualprof.reader.megengine.memory_plan import Plan, add_plan
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

STEP_NS = 1000
CATEGORIES = {"weight_mem": "parameter", "static_mem": "activation"}
MAX_BYTES = 1 << 30


def sniff(head: bytes) -> bool:
    """One of its two keys stands first, and its entries are its own."""
    return bool(re.match(rb'[\xef\xbb\xbf\s]*\{\s*"(opr|chunk)"\s*:\s*\{', head)) and (
        b'"logic_addr_begin"' in head or bool(re.search(rb'"\d+"\s*:\s*\{\s*"(name|id)"\s*:', head))
    )


def read(source: Source, builder: TraceBuilder) -> None:
    """Reads a file, in which all values are text; a step of the plan is shown as one microsecond."""
    operators, chunks = _load(source)
    names = {int(i): str(json_object(o).get("name", i)) for i, o in operators.items() if i.isdigit()}
    steps = np.array(sorted(names), np.int64)
    told = [_chunk(json_object(c)) for c in chunks.values()]  # 1 us each
    plan = [c for c in told if c is not None]
    if len(plan) < len(told):
        builder.warn(f"{len(told) - len(plan):,} chunks have no valid time or address and were left out")
    track = builder.track(TrackKind.THREAD, "steps of the plan")
    builder.events(
        ts=steps * STEP_NS,
        dur=np.full(len(steps), STEP_NS),
        name=builder.strings(names[i] for i in steps.tolist()),
        category=np.full(len(steps), int(Category.OTHER)),
        track=np.full(len(steps), track),
        row=steps,
    )
    begin, end, addr, size = (np.array([p[i] for p in plan], np.int64) for i in range(4))
    category = builder.strings(p[4] for p in plan)
    stays = category == builder.string("parameter")
    add_plan(
        builder,
        Plan(
            begin=begin * STEP_NS,
            end=np.where(stays, -1, end * STEP_NS),
            addr=addr,
            size=size,
            device=np.full(len(plan), -1),
            made=np.where(stays, -1, begin),
            freed=end - 1,
            category=category,
        ),
    )
    builder.warn("the file has no times: one step of the plan is shown as 1 us")
    builder.describe(framework="megengine", producer="megengine static memory plan", properties={"clock": "steps"})


def _chunk(told: dict[str, Any]) -> tuple[int, int, int, int, str] | None:
    """First and last step, address, bytes and category; None where a number is missing or cannot be."""
    try:
        begin, end, low, high = (int(told[k]) for k in ("time_begin", "time_end", "logic_addr_begin", "logic_addr_end"))
    except (KeyError, TypeError, ValueError):
        return None
    if not (0 <= begin <= end < 2**40 and 0 <= low <= high < 2**62):
        return None
    return begin, end, low, high - low, CATEGORIES.get(str(told.get("type")), "")


def _load(source: Source) -> tuple[dict[str, Any], dict[str, Any]]:
    data = source.whole(MAX_BYTES, "a memory plan", "is it a MegEngine file?")
    try:
        document = json_object(msgspec.json.decode(data))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{source.name}: not a whole MegEngine memory plan ({error})",
            "it may still be being written; it opens by itself once complete",
        ) from error
    return json_object(document.get("opr")), json_object(document.get("chunk"))


FORMAT = Format("megengine-memory", "MegEngine", 13, sniff, read)
