"""Write a minified profile with Python stacks: times since the epoch, another order of keys, memory instants.

A step is a tree of Python frames whose innermost frames call an operator that allocates and frees.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

PID, THREADS, STEP_US = 8151, (8151, 8152), 20_000
MODULES = ("Linear", "LayerNorm", "MultiheadAttention", "Dropout", "GELU", "Embedding", "TransformerEncoderLayer")
OPERATORS = ("aten::linear", "aten::addmm", "aten::native_layer_norm", "aten::gelu", "aten::copy_", "aten::empty")
FRAMES = [
    f"{file}({17 * line}): {function}"
    for file in ("train.py", "torch/nn/modules/module.py", "torch/nn/functional.py", "torch/optim/adamw.py", "data.py")
    for line, function in enumerate(("forward", "_call_impl", "_wrapped_call_impl", "step", "__next__", "<lambda>"), 1)
] + [f"nn.Module: {module}_{number}" for module in MODULES for number in range(12)]
EPOCH_NS = 1_711_964_646_123_456_789
DEPTH, LEAVES = 8, 24


def moment(ns: int) -> str:
    """Microseconds in decimals, exact."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def span(category: str, name: str, start: int, end: int, thread: int, args: str) -> str:
    """A complete event, its keys as another writer orders them."""
    return (
        f'{{"args":{{{args}}},"cat":"{category}","dur":{moment(end - start)},"name":{json.dumps(name)},"ph":"X",'
        f'"pid":{PID},"tid":{thread},"ts":{moment(start)}}}'
    )


def memory(nbytes: int, address: int, total: int, ts: int, thread: int) -> str:
    """An allocation or a release."""
    return (
        f'{{"args":{{"Addr":{address},"Bytes":{nbytes},"Device Id":-1,"Device Type":0,"Total Allocated":{total}}},'
        f'"cat":"cpu_instant_event","name":"[memory]","ph":"i","pid":{PID},"s":"t","tid":{thread},"ts":{moment(ts)}}}'
    )


def tree(number: int, start: int, end: int, thread: int, rng: random.Random) -> Iterator[str]:
    """Frames in frames, then calls side by side: each an operator between an allocation and a release."""
    parent, first = "null", 1000 * number
    for depth in range(DEPTH):
        ids = f'"Python id":{first + depth},"Python parent id":{parent},"Python thread":0'
        frame = FRAMES[(number * 5 + depth * 3) % len(FRAMES)]
        yield span("python_function", frame, start + depth * 1001, end - depth * 503, thread, ids)
        parent = str(first + depth)
    begin, width = start + DEPTH * 1001, (end - start - DEPTH * 1504) // LEAVES
    for leaf in range(LEAVES):
        at = begin + leaf * width
        frame, ids = FRAMES[rng.randrange(len(FRAMES))], f'"Python id":{first + 500 + leaf},"Python parent id":{parent}'
        yield span("python_function", frame, at, at + width - 211, thread, f'{ids},"Python thread":0')
        outer = f'"Ev Idx":{first + leaf},"External id":{first + leaf + 1},"Sequence number":{number}'
        name, ran = OPERATORS[rng.randrange(len(OPERATORS))], at + width - 907
        yield span("cpu_op", name, at + 313, ran, thread, outer)
        nbytes, address = 512 * rng.randrange(1, 4096), 94_000_000_000_000 + 64 * (first + leaf)
        yield memory(nbytes, address, 1_000_000 + nbytes, at + 419, thread)
        yield memory(-nbytes, address, 1_000_000, ran - 97, thread)


def write(path: Path, count: int) -> None:
    """Write about `count` events."""
    rng = random.Random(34)
    a_tree = DEPTH + 4 * LEAVES
    trees, width = max(1, count // a_tree), STEP_US * 1000 // 4
    with path.open("w", encoding="utf-8") as file:
        file.write('{"traceEvents":[')
        file.write(f'{{"args":{{"name":"python"}},"name":"process_name","ph":"M","pid":{PID},"tid":0,"ts":0}}')
        for number in range(trees):
            step, place = divmod(number, 8)
            start = EPOCH_NS + step * STEP_US * 1000 + place // 2 * width
            if place == 0:
                name = f"ProfilerStep#{step}"
                file.write("," + span("user_annotation", name, start, start + 4 * width - 1, THREADS[0], '"Ev Idx":0'))
            for event in tree(number, start + 10, start + width - 11, THREADS[place % 2], rng):
                file.write("," + event)
        file.write('],"schemaVersion":1,"with_stack":1,"profile_memory":1,"displayTimeUnit":"ms"}')
