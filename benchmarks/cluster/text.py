"""The profile of one rank as torch.profiler writes it: a template for each stage and step, filled in with the times.

Process groups stand in it as torch has them: `Process Group Ranks` cut at 30, `Seq` counting the collectives of a
group, or a rank's own messages to and from others, of which only `Dst Rank` or `Src Rank` name the other side.
Source: torch/csrc/profiler/util.cpp, torch/distributed/distributed_c10d.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import numpy as np

from benchmarks.cluster.program import GATHER, SCATTER, Op
from benchmarks.cluster.simulation import MULTIPROCESSORS, Job
from benchmarks.cluster.topology import DESCRIPTIONS, Group, Topology
from visualprof.reader.trace import Floats

BASE_US, FIRST_STEP, SHOWN = 4_458_676_000_000.0, 10, 30
OPERATORS = {
    "allreduce": "c10d::allreduce_",
    "_allgather_base": "c10d::_allgather_base_",
    "recv": "c10d::recv_",
    "_reduce_scatter_base": "c10d::_reduce_scatter_base_",
    "all_to_allv": "c10d::alltoall_base_",
    "send": "c10d::send",
}
KERNELS = {
    "allreduce": "AllReduce_Sum_bf16_RING_LL",
    "_allgather_base": "AllGather_RING_LL",
    "_reduce_scatter_base": "ReduceScatter_Sum_bf16_RING_LL",
}
HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    %s
  ],
  "distributedInfo": %s,
  "with_stack": 0, "record_shapes": 0, "profile_memory": 0,
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1782864000000000000,
  "traceEvents": [
  {"name": "process_name", "ph": "M", "ts": %.3f, "pid": %d, "tid": 0, "args": {"name": "python"}},
"""
TAIL = '\n  ],\n  "traceName": "simulated.pt.trace.json"\n}\n'


def process(topology: Topology, rank: int) -> int:
    """A rank's process on its host."""
    return 41000 + rank % topology.per_host * 97


def file_name(topology: Topology, rank: int) -> str:
    """As torch names it: host, process, time."""
    stamp = 1_782_950_400_000_000_000 + rank * 1_000_037
    return f"node{topology.host(rank):03d}_{process(topology, rank)}.{stamp}.pt.trace.json"


def template(job: Job, stage: int, step: int) -> str:
    """Yield the events of a step of a stage: %-placeholders for values, @-words for properties of a rank."""
    return ",\n".join(_Step(job, stage, step).events())


def profile(job: Job, rank: int, templates: list[str], times: Floats) -> Iterator[str]:
    """The file of a rank in pieces. templates: of its stage, by step. times: `clocks` of the stage."""
    topology = job.topology
    pid, per_stage = process(topology, rank), topology.data * topology.tensor
    groups, stage = topology.of_rank[rank], rank // per_stage
    yield HEAD % (_devices(topology.per_host), json.dumps(_info(topology, rank)), BASE_US, pid)
    words = {"@PID": str(pid), "@BACK": str(pid + 1), "@DEV": str(rank % topology.per_host), "@RANK": str(rank)}
    words |= {f"@{kind.upper()}": _group(group, rank) for kind, group in groups.items()}
    words |= {f"@AT_{kind.upper()}": str(group.ranks.index(rank)) for kind, group in groups.items()}
    words |= {"@NEXT": str(rank + per_stage), "@BEFORE": str(rank - per_stage)}
    shift = BASE_US + float(job.offset[topology.host(rank)])
    for step, text in enumerate(templates):
        values = job.values[step][stage][:, rank % per_stage] + shift * times
        for word, value in words.items():
            text = text.replace(word, value)
        yield (",\n" if step else "") + text % tuple(values.tolist())
    yield TAIL


def clocks(job: Job, stage: int) -> Floats:
    """1 for the values of a stage's step that are times of a clock, 0 for durations and sizes."""
    counts = {"load": 10, "kernel": 10, "collective": 8, "send": 8, "receive": 8, "begin": 2, "wait": 2, "end": 2}
    ops = [op for op in job.program.ops(stage) if op != Op("wait", "data")]
    return np.array(
        [i % 2 == 0 and not (op.kind == "kernel" and i == 8) for op in ops for i in range(counts[op.kind])], float
    )


def _devices(count: int) -> str:
    first = (
        '{"id": %d, "name": "Simulated GPU (not measured)", "totalGlobalMem": 84942979072, "computeMajor": 9,'
        ' "computeMinor": 0, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536,'
        ' "warpSize": 32, "sharedMemPerBlock": 49152, "numSms": %d}'
    )
    return ",\n    ".join(first % (i, MULTIPROCESSORS) for i in range(count))


def _info(topology: Topology, rank: int) -> dict[str, object]:
    groups = topology.of_rank[rank].values()
    config = [
        {
            "pg_name": group.name,
            "pg_desc": DESCRIPTIONS[group.kind],
            "backend_config": "cuda:nccl",
            "pg_size": len(group.ranks),
            "ranks": list(group.ranks),
        }
        for group in groups
    ]
    place = {"backend": "nccl", "rank": rank, "world_size": topology.ranks}
    return {**place, "pg_count": len(config), "pg_config": config, "nccl_version": "2.21.5"}


def _group(group: Group, rank: int) -> str:
    """Return the arguments that describe a group."""
    ranks, step = group.ranks, group.ranks[1] - group.ranks[0] if len(group.ranks) > 1 else 1
    shown = ", ".join(str(item) for item in ranks[: SHOWN - 1 if len(ranks) > SHOWN else SHOWN])
    if len(ranks) > SHOWN:
        shown += f", ..., {ranks[-1]}"
    return (
        f'"Process Group Name": "{group.name}", "Process Group Description": "{DESCRIPTIONS[group.kind]}", '
        f'"Process Group Ranks": "[{shown}]", "Group size": {len(ranks)}, '
        f'"Global rank start": {ranks[0]}, "Global rank stride": {step}'
    )


class _Step:
    """Writes the template of a stage's step. Every event gets ids that its step and place tell."""

    def __init__(self, job: Job, stage: int, step: int) -> None:
        self.ops = list(job.program.ops(stage))
        self.sizes = {kind: job.topology.members(kind).shape[1] for kind in DESCRIPTIONS}
        self.stage, self.number, self.step, self.step_ids = stage, 0, step, 4 * len(self.ops) + 8
        counts = Counter(op.group for op in self.ops if op.group)
        self.seq = Counter({kind: step * count for kind, count in counts.items()})

    def events(self) -> Iterator[str]:
        """The events in the order of the program, each operator's with its kernel."""
        for op in self.ops:
            yield from getattr(self, f"_{op.kind}")(op)

    def _id(self) -> int:
        self.number += 1
        return 1 + self.step * self.step_ids + self.number

    def _host(self, cat: str, name: str, args: str = "", *, backward: bool = False) -> str:
        """An event of a host thread."""
        arguments = f'"External id": {self._id()}, "Record function id": 0{args}' if cat != "cuda_runtime" else args
        thread = "@BACK" if backward else "@PID"
        return (
            f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": @PID, "tid": {thread},\n'
            f'    "ts": %.3f, "dur": %.3f,\n    "args": {{\n      {arguments}\n    }}\n  }}'
        )

    def _called(self, name: str, *, backward: bool = False) -> str:
        """A call into the runtime of the operator that was last, which launches what follows."""
        same = 1 + self.step * self.step_ids + self.number
        return self._host(
            "cuda_runtime", name, f'"External id": {same}, "cbid": 211, "correlation": {same}', backward=backward
        )

    def _device(self, cat: str, name: str, stream: int, args: str) -> str:
        same = 1 + self.step * self.step_ids + self.number
        return (
            f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": @DEV, "tid": {stream},\n'
            f'    "ts": %.3f, "dur": %.3f,\n    "args": {{\n      "External id": {same}, "queued": 0, "device": @DEV,'
            f' "context": 1, "stream": {stream}, "correlation": {same},\n      {args}\n    }}\n  }}'
        )

    def _begin(self, op: Op) -> Iterator[str]:
        yield self._host("user_annotation", f"ProfilerStep#{FIRST_STEP + self.step}")

    def _load(self, op: Op) -> Iterator[str]:
        yield self._host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
        yield self._host("cpu_op", "aten::to")
        yield self._host("cpu_op", "aten::copy_")
        yield self._called("cudaMemcpyAsync")
        yield self._device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 7, '"bytes": 4194304')

    def _kernel(self, op: Op) -> Iterator[str]:
        yield self._host("cpu_op", op.name, backward=op.backward)
        yield self._host("cpu_op", op.inner, backward=op.backward)
        yield self._called("cudaLaunchKernel", backward=op.backward)
        args = (
            '"registers per thread": 128, "shared memory": 49152, "grid": [%d, 1, 1], "block": [256, 1, 1],'
            ' "blocks per SM": %.4f, "est. achieved occupancy %%": 50'
        )
        yield self._device("kernel", op.kernel, op.stream, args)

    def _collective(self, op: Op, rank: str = "", peer: str = "") -> Iterator[str]:
        members = self.sizes[op.group]
        sent, got = (op.elements // (members if op.name == kind else 1) for kind in (GATHER, SCATTER))
        group = f'@{op.group.upper()}, "Rank": {rank or f"@AT_{op.group.upper()}"}'
        text = (
            f'"Collective name": "{op.name}", "In msg nelems": {sent}, "Out msg nelems": {got}, "dtype": "BFloat16",'
            f' "In split size": "[]", "Out split size": "[]", {group},'
            f' "Seq": {self.seq[op.group]}{peer}'
        )
        self.seq[op.group] += 1
        yield self._host("cpu_op", OPERATORS[op.name], backward=op.backward)
        yield self._host("cpu_op", "record_param_comms", f", {text}", backward=op.backward)
        yield self._called("cudaLaunchKernelExC", backward=op.backward)
        kernel = f"ncclDevKernel_{KERNELS.get(op.name, 'SendRecv')}(ncclDevKernelArgsStorage<4096ul>)"
        grid = '"registers per thread": 96, "shared memory": 82240, "grid": [24, 1, 1], "block": [544, 1, 1]'
        yield self._device("kernel", kernel, op.stream, f'{grid}, "blocks per SM": 0.1818, {text}')

    def _send(self, op: Op) -> Iterator[str]:
        return self._message(op, "Dst Rank")

    def _receive(self, op: Op) -> Iterator[str]:
        return self._message(op, "Src Rank")

    def _message(self, op: Op, key: str) -> Iterator[str]:
        """Of a message, `Rank` is the other side's place in the group."""
        other = "@NEXT" if op.peer > 0 else "@BEFORE"
        return self._collective(op, str(self.stage + op.peer), f', "{key}": {other}')

    def _wait(self, op: Op) -> Iterator[str]:
        if op.name == "host":
            yield self._host("cuda_runtime", "cudaStreamSynchronize", f'"cbid": 131, "correlation": {self._id()}')

    def _end(self, op: Op) -> Iterator[str]:
        yield self._host("cuda_runtime", "cudaDeviceSynchronize", f'"cbid": 165, "correlation": {self._id()}')
