"""Events of ranks that are small enough to compute results by hand."""

from __future__ import annotations

from typing import Any


def event(name: str, ts: float, dur: float, tid: int = 1, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    return event(f"ProfilerStep#{number}", ts, dur, cat="user_annotation")


def launched_kernel(name: str, ts: float, dur: float, call: int, stream: int = 7, **args: Any) -> list[dict[str, Any]]:
    """Return a kernel and its launch call of 1 us; `call` is the correlation id and the time of the call."""
    kernel = {"device": 0, "stream": stream, "correlation": call, **args}
    return [
        event("cudaLaunchKernel", call, 1, cat="cuda_runtime", correlation=call),
        {**event(name, ts, dur, tid=stream, cat="kernel"), "pid": 0, "args": kernel},
    ]


def collective_kernel(
    name: str, ts: float, dur: float, call: int, group: str = "", **args: Any
) -> list[dict[str, Any]]:
    """Return the kernel of a collective or message of 1,000,000 bytes on its own stream, with torch's arguments."""
    arguments = {"Collective name": name, "In msg nelems": 250_000, "Out msg nelems": 250_000, "dtype": "Float"}
    return launched_kernel(
        f"ncclDevKernel_{name}",
        ts,
        dur,
        call,
        stream=20,
        **arguments,
        **({"Process Group Name": group} if group else {}),
        **args,
    )


def distributed_info(rank: int, world: int, groups: dict[str, tuple[str, list[int]]]) -> dict[str, Any]:
    """Return the `distributedInfo` of a rank.

    Args:
        groups: Description and ranks by name.
    """
    config = [
        {"pg_name": name, "pg_desc": description, "pg_size": len(ranks), "ranks": ranks}
        for name, (description, ranks) in groups.items()
    ]
    return {"backend": "nccl", "rank": rank, "world_size": world, "pg_config": config}
