"""Write a Kineto-like profile of any size: the input of the speed measurements.

    python benchmarks/kineto_file.py OUT.json --events 1000000 [--rank 0 --ranks 2 --every 1]

The mix (operators with shapes, CUDA calls, kernels with launch attributes, flow arrows, memory
instants, Python frames) and the bytes an event takes follow torch 2.x files of GPU training runs:
about 350 bytes an event, eight operators of nesting depth two to four for each kernel burst. Of a rank among
several every so many-th kernel is an all-reduce, launched by an `nccl:all_reduce` with its message in its arguments.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

OPS = """
    aten::linear aten::addmm aten::matmul aten::layer_norm aten::native_layer_norm aten::softmax
    aten::_softmax aten::add aten::mul aten::gelu aten::dropout aten::view aten::transpose aten::as_strided
    aten::empty aten::copy_
""".split()
KERNELS = [
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
        "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
    ),
    (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*, "
        "float const*, float const*, float*, float*, float*)"
    ),
    (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*, float const*, "
        "int, int, int, bool const*, int, bool)"
    ),
    (
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1"
        "_tensor16x8x8"
    ),
]
SHAPES = [
    "[[16, 512, 1024], [1024, 1024], [1024]]",
    "[[16, 512, 1024], []]",
    "[[8192, 1024], [1024, 4096], []]",
    "[[16, 16, 512, 512], [], []]",
    "[[16, 512, 4096], [4096, 1024], [1024], [], []]",
]
HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "Synthetic GPU", "totalGlobalMem": 42297524224, "computeMajor": 8, "computeMinor": 0,
     "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
     "sharedMemPerBlock": 49152, "numSms": 108}
  ],
  "with_stack": 0, "record_shapes": 1, "profile_memory": 1,
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1711964646000000000,
  "traceEvents": [
"""
NCCL_KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MESSAGE = '"Collective name": "allreduce", "In msg nelems": 6553600, "dtype": "Float", '
PID, THREAD, STREAM, BURSTS_A_STEP = 4242, 4242, 7, 2000


def burst(i: int, ts: float, rng: random.Random, collective: bool = False) -> Iterator[str]:
    """One operator tree of 40 us with its launch, kernel, flow, allocation: ten events."""
    op, inner, kernel, message = OPS[i % len(OPS)], OPS[(i * 7 + 3) % len(OPS)], KERNELS[i % len(KERNELS)], ""
    if collective:
        op, inner, kernel, message = "c10d::allreduce_", "nccl:all_reduce", NCCL_KERNEL, MESSAGE
    shape = SHAPES[i % len(SHAPES)]
    corr = 100_000 + i

    def cpu_op(name: str, start: float, dur: float, depth: int) -> str:
        return (
            f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": {PID}, "tid": {THREAD},\n'
            f'    "ts": {start:.3f}, "dur": {dur:.3f},\n    "args": {{\n      "External id": {i * 8 + depth},'
            f'"Record function id": 0, "Sequence number": {i}, "Fwd thread id": 0, '
            f'"Concrete Inputs": ["", "", "", "False"], "Input type": ["float", "float", "float", ""], '
            f'"Input Strides": [[524288, 1024, 1], [1, 1024], [1]], "Input Dims": {shape}, '
            f'"Ev Idx": {i * 8 + depth}\n    }}\n  }}'
        )

    yield cpu_op(op, ts, 38.5, 0)
    yield cpu_op(inner, ts + 1.25, 34.125, 1)
    yield cpu_op("aten::empty", ts + 2.5, 4.75, 2)
    yield cpu_op("aten::as_strided", ts + 8.125, 3.0, 2)
    yield (
        f'  {{\n    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",\n    "pid": {PID}, '
        f'"tid": {THREAD},\n    "ts": {ts + 3:.3f},\n    "args": {{\n      "Total Reserved": 8589934592, '
        f'"Total Allocated": {4 * 10**9 + rng.randrange(10**8)}, "Bytes": {(1 if i % 2 else -1) * 33554432}, '
        f'"Addr": {139 * 10**12 + i % 512 * 33554432}, "Device Id": 0, "Device Type": 1, "Ev Idx": {i}\n    }}\n  }}'
    )
    yield (
        f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": {PID}, "tid": {THREAD},\n'
        f'    "ts": {ts + 20:.3f}, "dur": 5.125,\n    "args": {{\n      "External id": {i * 8 + 1}, "cbid": 211, '
        f'"correlation": {corr}\n    }}\n  }}'
    )
    yield (
        f'  {{\n    "ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": {STREAM},\n'
        f'    "ts": {ts + 30:.3f}, "dur": {20 + rng.random() * 15:.3f},\n    "args": {{\n      '
        f'"External id": {i * 8 + 1}, "queued": 0, "device": 0, "context": 1,\n      "stream": {STREAM}, '
        f'"correlation": {corr},\n      "registers per thread": 128, "shared memory": 49152, '
        f'"blocks per SM": 4.740741, "warps per SM": 75.851852,\n      "grid": [{64 + i % 4}, 8, 1], '
        f'"block": [128, 1, 1],\n      {message}"est. achieved occupancy %": 75\n    }}\n  }}'
    )
    for ph, pid, tid, at, end in (("s", PID, THREAD, ts + 20, ""), ("f", 0, STREAM, ts + 30, ', "bp": "e"')):
        yield (
            f'  {{\n    "ph": "{ph}", "id": {corr}, "pid": {pid}, "tid": {tid}, "ts": {at:.3f},\n'
            f'    "cat": "ac2g", "name": "ac2g"{end}\n  }}'
        )
    yield cpu_op("aten::record_stream", ts + 36.125, 1.5, 3)


def events(count: int, every: int = 0) -> Iterator[str]:
    rng = random.Random(7)
    base, span = 4458676522690.655, 40.0
    total = max(1, count // 10)
    for pid, label in ((PID, "python"), (0, "python")):
        yield (
            f'  {{"name": "process_name", "ph": "M", "ts": {base:.3f}, "pid": {pid}, "tid": 0,'
            f' "args": {{"name": "{label}"}}}}'
        )
    for i in range(total):
        if i % BURSTS_A_STEP == 0:
            bursts = min(BURSTS_A_STEP, total - i)
            yield (
                f'  {{\n    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{i // BURSTS_A_STEP}", '
                f'"pid": {PID}, "tid": {THREAD},\n    "ts": {base + i * span:.3f}, "dur": {bursts * span - 1:.3f},\n'
                f'    "args": {{"External id": {i * 8}, "Record function id": 0, "Ev Idx": {i * 8}}}\n  }}'
            )
        yield from burst(i, base + i * span, rng, every > 0 and i % every == 0)


def write(path: Path, count: int, rank: int = -1, ranks: int = 1, every: int = 0) -> None:
    """Write about `count` events to `path`; of a rank of so many in which every `every`-th kernel is an all-reduce."""
    place = f'  "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {ranks}}},\n' if rank >= 0 else ""
    with path.open("w", encoding="utf-8") as file:
        file.write(HEAD.replace('  "traceEvents"', place + '  "traceEvents"'))
        first = True
        for event in events(count, every):
            file.write(event if first else ",\n" + event)
            first = False
        file.write('\n  ],\n  "traceName": "synthetic.json"\n}\n')


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--every", type=int, default=0)
    options = parser.parse_args()
    write(options.out, options.events, options.rank, options.ranks, options.every)
