"""Write the sample run `synthetic-4gpu`: a made-up data-parallel training on four GPUs, one file a rank.

    python benchmarks/synthetic_gpus.py visualprof/samples/synthetic-4gpu

Nothing in it was measured, and its devices say so. Rank 2 computes 25 % longer than the others, which wait
for it in the all-reduce, and the hosts for their devices at the end of a step; the third step of every rank starts
4 ms late in the data loader.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

BASE_US, HOST, STREAM, COMM_STREAM = 5_000_000.0, 4000, 7, 20
DEVICE = {
    "name": "Synthetic GPU (not measured)",
    "totalGlobalMem": 42949672960,
    "computeMajor": 8,
    "computeMinor": 0,
    "numSms": 108,
    "maxThreadsPerMultiprocessor": 2048,
}
ELEMENTS = (16 << 20) // 4  # of a bucket of gradients


class Layer(NamedTuple):
    """An operator and its forward kernel: duration us, blocks per SM, occupancy %."""

    op: str
    kernel: str
    dur: float
    blocks: float
    occupancy: int


LAYERS = [
    Layer(
        "aten::cudnn_convolution",
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1"
        "_tensor16x8x8",
        620,
        3.2,
        25,
    ),
    Layer(
        "aten::batch_norm",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct, float const*)",
        240,
        5.9,
        63,
    ),
    Layer(
        "aten::relu_",
        "void at::native::vectorized_elementwise_kernel<4, at::native::relu_kernel>(int, at::native::relu_kernel)",
        90,
        60.0,
        100,
    ),
    Layer("aten::addmm", "ampere_sgemm_128x64_tn", 310, 1.2, 38),
]


class Bucket(NamedTuple):
    """Gradients of a rank: when the host asks for their exchange, and when the device has them."""

    called: float
    ready: float


class Rank:
    """Collects the events of one rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.slow = 1.25 if rank == 2 else 1.0
        self.events: list[dict[str, Any]] = []
        self.id = 0
        self.device_free = BASE_US

    def add(self, cat: str, name: str, pid: int, tid: int, ts: float, dur: float, args: dict[str, Any]) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": round(dur, 3), "args": args}
        )

    def host(self, name: str, start: float, dur: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> int:
        self.id += 1
        self.add(cat, name, HOST + self.rank, tid, start, dur, {"External id": self.id, **args})
        return self.id

    def launch(
        self, name: str, start: float, dur: float, owner: int, stream: int = STREAM, cat: str = "kernel", **args: Any
    ) -> float:
        """A call at `start` and its device work, behind what the stream holds already; returns the end of the work."""
        correlation = 10_000 + len(self.events)
        call = {"kernel": "cudaLaunchKernel", "gpu_memcpy": "cudaMemcpyAsync"}[cat]
        self.host(call, start, 6, "cuda_runtime", correlation=correlation)
        begin = max(start + 10, self.device_free if stream == STREAM else start + 10)
        arguments = {"External id": owner, "device": self.rank, "stream": stream, "correlation": correlation, **args}
        self.add(cat, name, self.rank, stream, round(begin, 3), dur, arguments)
        if stream == STREAM:
            self.device_free = begin + dur + 1
        return begin + dur


def fill(registers: int, shared: int, blocks: float, occupancy: int) -> dict[str, Any]:
    """How a kernel fills its device, as Kineto spells it."""
    return {
        "registers per thread": registers,
        "shared memory": shared,
        "blocks per SM": blocks,
        "est. achieved occupancy %": occupancy,
    }


def layer(out: Rank, i: int, at: float, backward: bool) -> float:
    op, kernel, dur, blocks, occupancy = LAYERS[i % len(LAYERS)]
    name = op.replace("aten::", "autograd::engine::evaluate_function: ") + "Backward0" if backward else op
    call: dict[str, Any] = {"Input Dims": [[32, 64 << (i // 4), 56, 56], [64, 64, 3, 3]], "Sequence number": i}
    owner = out.host(name, at, 46, **call)
    grid = [int(blocks * 108), 1, 1]
    shape: dict[str, Any] = {"grid": grid, "block": [256, 1, 1], **fill(96, 16384, blocks, occupancy)}
    out.launch(kernel, at + 20, dur * (1.9 if backward else 1.0) * out.slow, owner, **shape)
    return at + 60


def step(out: Rank, number: int, at: float) -> tuple[float, list[Bucket]]:
    """Returns when the host is done, and the gradients in order."""
    buckets = list[Bucket]()
    loading = 4900 if number == 2 else 900
    out.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 5, loading, "user_annotation")
    now = at + loading + 20
    copy = out.host("aten::copy_", now, 30)
    transfer: dict[str, Any] = {"bytes": 9_633_792, "memory bandwidth (GB/s)": 23.5}
    out.launch("Memcpy HtoD (Pinned -> Device)", now + 5, 410, copy, cat="gpu_memcpy", **transfer)
    now += 50
    for i in range(12):
        now = layer(out, i, now, backward=False)
    for i in reversed(range(12)):
        now = layer(out, i, now, backward=True)
        if i % 4 == 0:
            buckets.append(Bucket(now, out.device_free))
    out.host("Optimizer.step#SGD.step", now, 900, "user_annotation")
    owner = out.host("aten::_foreach_add_", now + 100, 60)
    shape: dict[str, Any] = {"grid": [320, 1, 1], "block": [512, 1, 1], **fill(40, 0, 2.96, 75)}
    out.launch("void at::native::multi_tensor_apply_kernel<SGD>", now + 110, 380, owner, **shape)
    return now + 910, buckets


def collectives(ranks: list[Rank], each: list[list[Bucket]], free: float) -> float:
    """All-reduces of a step, one after the other: a rank's kernel starts when its gradients are ready and the one
    before has ended, and ends 700 us after the last rank's. Returns when the last one has ended.
    """
    for place in range(len(each[0])):
        end = max(free, *(rank_times[place].ready for rank_times in each)) + 700
        for rank, rank_times in zip(ranks, each, strict=True):
            all_reduce(rank, rank_times[place].called, max(rank_times[place].ready, free + 1), end)
        free = end
    return free


def all_reduce(rank: Rank, called: float, start: float, end: float) -> None:
    correlation = 90_000 + len(rank.events)
    what: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": ELEMENTS, "dtype": "Float"}
    owner = rank.host("record_param_comms", called, 40, tid=2, **what)
    call = {"correlation": correlation, "External id": owner}
    rank.add("cuda_runtime", "cudaLaunchKernelExC", HOST + rank.rank, 2, called + 20, 8, call)
    arguments = {
        "device": rank.rank,
        "stream": COMM_STREAM,
        "correlation": correlation,
        "External id": owner,
        "grid": [24, 1, 1],
        "block": [544, 1, 1],
        **fill(96, 82240, 0.22, 12),
        "Collective name": "allreduce",
        "In msg nelems": ELEMENTS,
        "Out msg nelems": ELEMENTS,
        "dtype": "Float",
        "Group size": 4,
    }
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    rank.add("kernel", kernel, rank.rank, COMM_STREAM, round(start, 3), end - start, arguments)


def main(folder: Path) -> None:
    ranks = [Rank(r) for r in range(4)]
    at = BASE_US
    for number in range(4):
        for rank in ranks:
            rank.device_free = max(rank.device_free, at)
        hosts, buckets = zip(*(step(rank, number, at) for rank in ranks), strict=True)
        reduced = collectives(ranks, list(buckets), at)
        until = max(reduced, *(rank.device_free for rank in ranks)) + 500
        for rank, done in zip(ranks, hosts, strict=True):
            rank.host(f"ProfilerStep#{number}", at, until - at - 5, "user_annotation")
            awaited = max(rank.device_free - 1, reduced) + 8
            rank.host("cudaDeviceSynchronize", done, awaited - done, "cuda_runtime", correlation=1 + number)
        at = until
    folder.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        document = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": i, **DEVICE} for i in range(4)],
            "host_name": "synthetic",
            "baseTimeNanoseconds": 1790000000000000000,
            "distributedInfo": {"backend": "nccl", "rank": rank.rank, "world_size": 4},
            "traceEvents": rank.events,
        }
        data = json.dumps(document, separators=(",", ":")).encode()
        (folder / f"rank{rank.rank}.pt.trace.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
