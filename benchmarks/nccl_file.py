"""Write a Kineto profile of data-parallel training: every kernel with a launch, an arrow and a correlation of its own.

Of ten kernels one is an NCCL collective on a stream of its own, with its message in its arguments; three process
groups, thirty kernels a step, four events a kernel (launch, kernel, two ends of the arrow) beside the operators.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.kineto_file import HEAD, KERNELS, OPS, SHAPES

PID, FORWARD, BACKWARD, COMPUTE, SIDE, COLLECTIVES = 2910249, 2910249, 2919752, 7, 13, 40
KERNELS_A_STEP, KERNELS_AN_OP, STEP_US = 30, 3, 600.0
COLLECTIVE = [
    ("allreduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", "Float"),
    ("_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", "BFloat16"),
    ("_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, unsigned long)", "BFloat16"),
]
GROUPS = [("0", "default_pg", list(range(8))), ("1", "tensor_parallel", [0, 1]), ("2", "data_parallel", [0, 2, 4, 6])]
BASE_US = 4458677000000.0


def message(number: int) -> str:
    """Return the arguments that describe the message of a collective."""
    name, _, dtype = COLLECTIVE[number % 3]
    group, description, ranks = GROUPS[number // 3 % 3]
    sent = 53120 * (1 + number % 40)
    received = sent * len(ranks) if name == "_allgather_base" else sent
    return (
        f'"Collective name": "{name}", "In msg nelems": {sent}, "Out msg nelems": {received}, '
        f'"Group size": {len(ranks)}, "dtype": "{dtype}", '
        f'"In split size": "[]", "Out split size": "[]", "Process Group Name": "{group}", '
        f'"Process Group Description": "{description}", "Process Group Ranks": "{ranks}", "Seq": {number}'
    )


def op(name: str, thread: int, ts: float, dur: float, number: int, args: str) -> str:
    """An operator of the host; `args` beside its numbers."""
    return (
        f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": {PID}, "tid": {thread},\n'
        f'    "ts": {ts:.3f}, "dur": {dur:.3f},\n    "args": {{\n      "External id": {number},'
        f'"Record function id": 0, {args}, "Ev Idx": {number}\n    }}\n  }}'
    )


def kernel(number: int, thread: int, ts: float, rng: random.Random) -> Iterator[str]:
    """A launch, its kernel and the arrow between them, after the operator's begin."""
    sends = number % 10 == 9
    stream = COLLECTIVES if sends else SIDE if number % 10 == 4 else COMPUTE
    name = COLLECTIVE[number // 10 % 3][1] if sends else KERNELS[number % len(KERNELS)]
    correlation, call = 60_000 + 3 * number, "cudaLaunchKernelExC" if sends else "cudaLaunchKernel"
    external, late = number // KERNELS_AN_OP + 1, ts + (9.0 if sends else 6.5) + rng.random()
    yield (
        f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "{call}", "pid": {PID}, "tid": {thread},\n'
        f'    "ts": {ts:.3f}, "dur": {3 + rng.random():.3f},\n    "args": {{\n      "External id": {external}, '
        f'"cbid": {430 if sends else 211}, "correlation": {correlation}\n    }}\n  }}'
    )
    sent = f", {message(number // 10)}" if sends else ""
    yield (
        f'  {{\n    "ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream},\n'
        f'    "ts": {late:.3f}, "dur": {(40 if sends else 12) + 6 * rng.random():.3f},\n    "args": {{\n'
        f'      "External id": {external},      "queued": 0, "device": 0, "context": 1,      "stream": {stream}, '
        f'"correlation": {correlation},      "registers per thread": {96 + 8 * (number % 5)},  '
        f'    "shared memory": 49152,      "blocks per SM": 4.740741,'
        f'      "warps per SM": 75.851852,      "grid": [{64 + number % 7}, 8, 1],'
        f'      "block": [128, 1, 1],      "est. achieved occupancy %": {70 + number % 5}{sent}\n    }}\n  }}'
    )
    for ph, pid, tid, at, end in (("s", PID, thread, ts, ""), ("f", 0, stream, late, ', "bp": "e"')):
        yield (
            f'  {{\n    "ph": "{ph}", "id": {correlation}, "pid": {pid}, "tid": {tid}, "ts": {at:.3f},\n'
            f'    "cat": "ac2g", "name": "ac2g"{end}\n  }}'
        )


def events(kernels: int) -> Iterator[str]:
    """Yield the events of a number of kernels, by host time."""
    rng = random.Random(12)
    for pid, label in ((PID, "python"), (0, "python")):
        yield (
            f'  {{"name": "process_name", "ph": "M", "ts": {BASE_US:.3f}, "pid": {pid}, "tid": 0,'
            f' "args": {{"name": "{label}"}}}}'
        )
    for number in range(kernels):
        step, place = divmod(number, KERNELS_A_STEP)
        start = BASE_US + step * STEP_US
        thread = FORWARD if place < KERNELS_A_STEP // 2 else BACKWARD
        if place == 0:
            yield (
                f'  {{\n    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": {PID}, '
                f'"tid": {FORWARD},\n    "ts": {start:.3f}, "dur": {STEP_US - 1:.3f},\n'
                f'    "args": {{"External id": 0, "Record function id": 0, "Ev Idx": {step}}}\n  }}'
            )
        ts, which = start + 3 + place * 19.0, number // KERNELS_AN_OP
        if place % KERNELS_AN_OP == 0:
            dims = f'"Concrete Inputs": ["", "", ""], "Input type": ["float", ""], "Input Dims": {SHAPES[which % 5]}'
            yield op(OPS[which * 7 % len(OPS)], thread, ts - 2, 3 * 19.0 - 2, which + 1, dims)
        if number % 10 == 9:
            yield op("record_param_comms", thread, ts - 1, 9.5, which + 1, message(number // 10))
        yield from kernel(number, thread, ts, rng)


def write(path: Path, count: int) -> None:
    """Write about `count` events, a quarter of them kernels."""
    place = '  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},\n'
    with path.open("w", encoding="utf-8") as file:
        file.write(HEAD.replace('  "traceEvents"', place + '  "traceEvents"'))
        separator = ""
        for event in events(count // 4):
            file.write(separator + event)
            separator = ",\n"
        file.write('\n  ],\n  "traceName": "nccl.json"\n}\n')
