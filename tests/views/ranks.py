"""Events of ranks, small enough to work out by hand."""

from __future__ import annotations

from typing import Any


def event(name: str, ts: float, dur: float, tid: int = 1, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    return event(f"ProfilerStep#{number}", ts, dur, cat="user_annotation")


def launched(name: str, ts: float, dur: float, call: int, stream: int = 7, **args: Any) -> list[dict[str, Any]]:
    """A kernel with its call of 1 us; `call` is its correlation id and the time of the call."""
    kernel = {"device": 0, "stream": stream, "correlation": call, **args}
    return [
        event("cudaLaunchKernel", call, 1, cat="cuda_runtime", correlation=call),
        {**event(name, ts, dur, tid=stream, cat="kernel"), "pid": 0, "args": kernel},
    ]


def met(name: str, ts: float, dur: float, call: int, group: str = "", **args: Any) -> list[dict[str, Any]]:
    """The kernel of a collective or a message on its own stream, with what torch tells of it; 1,000,000 bytes."""
    told = {"Collective name": name, "In msg nelems": 250_000, "Out msg nelems": 250_000, "dtype": "Float"}
    return launched(
        f"ncclDevKernel_{name}",
        ts,
        dur,
        call,
        stream=20,
        **told,
        **({"Process Group Name": group} if group else {}),
        **args,
    )


def told(rank: int, world: int, groups: dict[str, tuple[str, list[int]]]) -> dict[str, Any]:
    """`distributedInfo` of a rank. groups: description and ranks by name."""
    config = [
        {"pg_name": name, "pg_desc": description, "pg_size": len(ranks), "ranks": ranks}
        for name, (description, ranks) in groups.items()
    ]
    return {"backend": "nccl", "rank": rank, "world_size": world, "pg_config": config}
