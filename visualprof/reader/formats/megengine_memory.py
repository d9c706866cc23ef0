"""MegEngine `StaticMemoryInfo.json`: `{"opr": ..., "chunk": ...}`, the memory plan of a graph in steps."""

from __future__ import annotations

import re

import numpy as np

from visualprof.messages import msg
from visualprof.reader.chrome.values import Json, json_object, load_object, natural
from visualprof.reader.megengine.memory_plan import Plan, add_plan
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

STEP_NS = 1000
MAX_STEPS = 10**7  # a graph has about ten thousand
CATEGORIES = {"weight_mem": "parameter", "static_mem": "activation"}


def sniff(head: bytes) -> bool:
    """Return whether one of the two keys comes first, followed by entries of this format."""
    return bool(re.match(rb'[\xef\xbb\xbf\s]*\{\s*"(opr|chunk)"\s*:\s*\{', head)) and (
        b'"logic_addr_begin"' in head or bool(re.search(rb'"\d+"\s*:\s*\{\s*"(name|id)"\s*:', head))
    )


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file, in which all values are text. A step of the plan is shown as one microsecond."""
    document = load_object(source, msg("formats.whole_megengine_memory_plan", "a whole MegEngine memory plan"))
    operators, chunks = json_object(document.get("opr")), json_object(document.get("chunk"))
    indexed_names = ((natural(i), str(json_object(o).get("name", i))) for i, o in operators.items())
    names = {step: name for step, name in indexed_names if 0 <= step < MAX_STEPS}
    if len(names) < len(operators):
        builder.warn(
            msg(
                "formats.operators_no_valid_step",
                f"{len(operators) - len(names):,} operators have no valid step and were left out",
            )
        )
    steps = np.array(sorted(names), np.int64)
    plan = [parsed for c in chunks.values() if (parsed := _parse_chunk(json_object(c)))]  # 1 us per chunk
    if len(plan) < len(chunks):
        builder.warn(
            msg(
                "formats.chunks_no_valid_time",
                f"{len(chunks) - len(plan):,} chunks have no valid time or address and were left out",
            )
        )
    track = builder.track(TrackKind.THREAD, "steps of the plan")
    builder.events(
        ts=steps * STEP_NS,
        dur=STEP_NS,
        name=builder.strings(names[i] for i in steps.tolist()),
        category=Category.OTHER,
        track=track,
        row=steps,
    )
    begin, end, addr, size = (np.array([p[i] for p in plan], np.int64) for i in range(4))
    category = builder.strings(p[4] for p in plan)
    stays = category == builder.string("parameter")
    ends, first_use, host = np.where(stays, -1, end * STEP_NS), np.where(stays, -1, begin), np.full(len(plan), -1)
    add_plan(
        builder,
        Plan(
            begin=begin * STEP_NS,
            end=ends,
            addr=addr,
            size=size,
            device=host,
            first_use=first_use,
            last_use=end - 1,
            category=category,
        ),
    )
    builder.warn(msg("formats.file_no_times_one", "the file has no times: one step of the plan is shown as 1 us"))
    builder.describe(framework="megengine", producer="megengine static memory plan", properties={"clock": "steps"})


def _parse_chunk(entry: Json) -> tuple[int, int, int, int, str] | None:
    """Return first and last step, address, bytes and category, or `None` if a number is missing or implausible."""
    try:
        begin, end, low, high = (int(entry[f"{k}_{e}"]) for k in ("time", "logic_addr") for e in ("begin", "end"))
    except (KeyError, TypeError, ValueError):
        return None
    if not (0 <= begin <= end < MAX_STEPS and 0 <= low <= high < 2**62):
        return None
    return begin, end, low, high - low, CATEGORIES.get(str(entry.get("type")), "")


FORMAT = Format("megengine-memory", "MegEngine", 13, sniff, read)
