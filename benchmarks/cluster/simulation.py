"""When everything in a job happens: ranks wait for those with which they communicate, and for nobody else.

A collective ends when its last member has come and the message has been transferred; a message between stages when
both have. Kernels of a stream run one after another and no earlier than they are launched. All times are us on one
clock. Source of the rules: CUDA streams and NCCL as PyTorch uses them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.cluster.faults import Effects, Fault, effects
from benchmarks.cluster.links import collective_us, message_us
from benchmarks.cluster.program import COMPUTE, DATA, Op, Program
from benchmarks.cluster.topology import Topology
from visualprof.reader.trace import Floats

OP_US, LAUNCH_US, LOAD_US, COPY_US = 20.0, 2.0, 300.0, 120.0  # of the host
MULTIPROCESSORS = 132


@dataclass(frozen=True)
class Noise:
    """What differs from call to call and from rank to rank, as shares (sigma of a log-normal).

    spread: between devices, for good. pauses: chance that a rank's host stops once in a step. offset_us: of clocks.
    """

    kernels: float = 0.02
    hosts: float = 0.1
    transfers: float = 0.03
    spread: float = 0.004
    pauses: float = 0.0
    pause_us: float = 3_000.0
    offset_us: float = 200.0


@dataclass
class Job:
    """A job as it ran. values: by step and stage (values, ranks of the stage), in the order of its program.

    begin, end: us (steps, ranks). offset: us by which the clock of each host is ahead.
    """

    topology: Topology
    program: Program
    values: list[list[Floats]]
    begin: Floats
    end: Floats
    offset: Floats

    @property
    def step_us(self) -> float:
        """Of a step on average, from the first rank's beginning to the last one's end."""
        return float((self.end.max() - self.begin.min()) / len(self.end))


@dataclass
class _Stage:
    """Where the ranks (copies, tensor ranks) of a stage are within a step. log: values of what has run."""

    ops: list[Op]
    host: Floats
    streams: dict[int, Floats]
    place: int = 0
    log: list[Floats] = field(default_factory=list[Floats])


def simulate(
    topology: Topology,
    program: Program,
    steps: int,
    faults: Sequence[Fault] = (),
    seed: int = 0,
    noise: Noise | None = None,
) -> Job:
    """Runs a job; noise is the same for a seed, whatever is injected."""
    return _Simulation(topology, program, noise or Noise(), seed).run(steps, faults)


class _Simulation:
    def __init__(self, topology: Topology, program: Program, noise: Noise, seed: int) -> None:
        self.topology, self.program, self.noise = topology, program, noise
        self.rng = np.random.default_rng(seed)
        self.ops = [list(program.ops(stage)) for stage in range(topology.pipeline)]
        self.spread = self._vary(noise.spread, topology.shape)
        self.offset = self.rng.normal(0, noise.offset_us, topology.hosts)
        self.grid = np.arange(topology.ranks).reshape(topology.shape)

    def run(self, steps: int, faults: Sequence[Fault]) -> Job:
        pipeline, copies, tensor = self.topology.shape
        host = self._vary(0.3, self.topology.shape) * 1000
        streams = [defaultdict[int, Floats](lambda: np.zeros((copies, tensor))) for _ in range(pipeline)]
        values = list[list[Floats]]()
        times = np.zeros((2, steps, self.topology.ranks))
        for step in range(steps):
            stages = [_Stage(self.ops[i], host[i], streams[i]) for i in range(pipeline)]
            times[0, step] = host.ravel()
            self._step(stages, effects(self.topology, faults, step))
            host = np.stack([stage.host for stage in stages])
            times[1, step] = host.ravel()
            values.append([np.stack(stage.log).reshape(len(stage.log), -1) for stage in stages])
        return Job(self.topology, self.program, values, times[0], times[1], self.offset)

    def _vary(self, sigma: float, shape: tuple[int, ...]) -> Floats:
        return np.exp(sigma * self.rng.standard_normal(shape))

    def _step(self, stages: list[_Stage], now: Effects) -> None:
        self.now = now
        self.sent: dict[tuple[int, int], deque[tuple[Floats, Floats]]] = defaultdict(deque)
        self.free: dict[tuple[int, int], Floats] = {}
        self.gathered: dict[int, tuple[Floats, Floats]] = {}
        self.ended: Floats | None = None
        shape = self.topology.shape
        self.pause = np.where(
            self.rng.random(shape) < self.noise.pauses, self.rng.integers(0, len(stages[0].ops), shape), -1
        )
        while any(stage.place < len(stage.ops) for stage in stages):
            before = sum(stage.place for stage in stages)
            for number, stage in enumerate(stages):
                while stage.place < len(stage.ops) and self._op(number, stage, stage.ops[stage.place]):
                    stage.place += 1
            if sum(stage.place for stage in stages) == before:
                raise RuntimeError("the stages wait for each other")

    def _op(self, number: int, stage: _Stage, op: Op) -> bool:
        """Runs an operator on the ranks of a stage, unless another stage has to come first."""
        if op.kind == "receive" and not self.sent[number + op.peer, -op.peer]:
            return False
        if op.group == "world" and number in self.gathered:
            return self._gathered(number, stage)
        if op.kind in ("begin", "wait", "end"):
            self._mark(stage, op)
            return True
        if op.kind == "load":
            self._load(number, stage)
            return True
        launched = self._launch(number, stage)
        ready = np.maximum(launched, stage.streams[COMPUTE])
        if op.stream != COMPUTE and op.kind != "send":
            ready = np.maximum(ready, stage.streams[op.stream])
        if op.kind == "kernel":
            work = self.now.work[number]
            took = (
                op.us
                * work
                * self.now.device[number]
                * self.spread[number]
                * self._vary(self.noise.kernels, work.shape)
            )
            blocks = op.blocks * work
            stage.log += [ready, took, np.ceil(blocks * MULTIPROCESSORS), blocks]
            stage.streams[COMPUTE] = ready + took
        elif op.kind == "collective":
            return self._collective(number, stage, op, ready)
        elif op.kind == "send":
            took = np.zeros_like(ready)
            begin = ready.copy()  # both are known when the other side has come
            self.sent[number, op.peer].append((begin, took))
            stage.log += [begin, took]
        else:
            self._receive(number, stage, op, ready)
        return True

    def _launch(self, number: int, stage: _Stage) -> Floats:
        """When what the host launches next can start."""
        took = OP_US * self.now.host[number] * self._vary(self.noise.hosts, stage.host.shape)
        begin = stage.host + np.where(self.pause[number] == stage.place, self.noise.pause_us, 0.0)
        stage.log += [begin, took, begin + 0.1 * took, 0.85 * took, begin + 0.35 * took, 0.3 * took]
        stage.host = begin + 1.15 * took
        return begin + 0.65 * took + LAUNCH_US

    def _collective(self, number: int, stage: _Stage, op: Op, ready: Floats) -> bool:
        if op.group == "world":
            took = np.zeros_like(ready)
            stage.log += [ready, took]
            self.gathered[number] = ready, took
            if len(self.gathered) == self.topology.pipeline:
                us = self._transfer(op)[0]
                self.ended = max(start.max() for start, _ in self.gathered.values()) + us
            return self._gathered(number, stage)
        us = self._transfer(op)
        pipeline, copies, tensor = self.topology.shape
        if op.group == "tensor":
            end = ready.max(axis=1, keepdims=True) + us.reshape(pipeline, copies, 1)[number]
        elif op.group == "data":
            end = ready.max(axis=0, keepdims=True) + us.reshape(pipeline, 1, tensor)[number]
        else:
            split = ready.reshape(-1, self.topology.expert, tensor)
            end = split.max(axis=1, keepdims=True) + us.reshape(pipeline, -1, 1, tensor)[number]
            end = np.broadcast_to(end, split.shape).reshape(ready.shape)
        end = np.broadcast_to(end, ready.shape) + self.rng.random(ready.shape)  # members leave within a us
        stage.log += [ready, end - ready]
        stage.streams[op.stream] = end
        if op.waits:
            stage.streams[COMPUTE] = end
        return True

    def _gathered(self, number: int, stage: _Stage) -> bool:
        """The end of what all stages take part in, once all have come."""
        if self.ended is None:
            return False
        start, took = self.gathered[number]
        took += self.ended - start
        stage.streams[COMPUTE] = start + took
        return True

    def _transfer(self, op: Op) -> Floats:
        us = collective_us(self.topology, op.group, op.name, op.elements, self.now.bandwidth)
        return us * self._vary(self.noise.transfers, us.shape)

    def _receive(self, number: int, stage: _Stage, op: Op, ready: Floats) -> None:
        """Ends a message: the sender's kernel starts behind its message before, and both end together."""
        began, sending = self.sent[number + op.peer, -op.peer].popleft()
        channel = number + op.peer, number
        began[:] = np.maximum(began, self.free.get(channel, 0.0))
        us = message_us(
            self.topology, self.grid[number + op.peer], self.grid[number], op.elements, self.now.bandwidth
        ) * self._vary(self.noise.transfers, ready.shape)
        end = np.maximum(began, ready) + us
        sending[:] = end - began
        self.free[channel] = end + 1
        stage.log += [ready, end - ready]
        stage.streams[op.stream] = end
        stage.streams[COMPUTE] = end

    def _load(self, number: int, stage: _Stage) -> None:
        """The data loader, and the copy of the batch to the device."""
        took = (
            LOAD_US * self._vary(self.noise.hosts, stage.host.shape) * self.now.host[number] + self.now.loading[number]
        )
        stage.log += [stage.host, took]
        stage.host = stage.host + took + 5
        ready = np.maximum(self._launch(number, stage), stage.streams[COMPUTE])
        copied = COPY_US * self._vary(self.noise.kernels, ready.shape)
        stage.log += [ready, copied]
        stage.streams[COMPUTE] = ready + copied

    def _mark(self, stage: _Stage, op: Op) -> None:
        """The beginning and the end of the step; the host that waits for its device, the device for a stream."""
        if op.kind == "begin":
            stage.log += [stage.host.copy(), np.zeros_like(stage.host)]
        elif op.name == "data":
            stage.streams[COMPUTE] = np.maximum(stage.streams[COMPUTE], stage.streams[DATA])
        else:
            done = np.maximum(stage.streams[COMPUTE], stage.streams[DATA] if op.kind == "end" else 0.0)
            took = np.maximum(done - stage.host, 0) + 3
            stage.log += [stage.host, took]
            stage.host = stage.host + took + 2
            if op.kind == "end":
                stage.log[1][:] = stage.host - 1 - stage.log[0]
